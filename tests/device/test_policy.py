"""What the compiled policy keeps to, whatever it sees; and that it agrees with an oracle that was written apart."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.device import native
from shoal.device.policy import Class, Decision, Rules, Tenant, Verdict, Way, Ways, bound_ns, decide
from tests.device.launching import Plan, Profile, choose, learn, next_gap_ns, start_ns

pytestmark = pytest.mark.skipif(not native.capability().available, reason=native.capability().detail)

RULES = Rules()
NOW = 1_000_000_000_000
AWAY_NS = 50_000_000
US = 1000
MS = 1000 * US

times = st.one_of(
    st.sampled_from([0, NOW - 1, NOW, NOW + 5]),
    st.integers(0, 300 * US).map(lambda ago: NOW - ago),
    st.integers(0, 20_000_000 * US).map(lambda ago: NOW - ago),
)
costs = st.one_of(st.integers(0, 200 * US), st.integers(0, 10_000 * US))
tenants = st.builds(
    Tenant,
    cls=st.sampled_from(Class),
    weight=st.integers(1, 5),
    pending=st.sampled_from([0, 0, 0, 1, 7]),
    waiting=st.booleans(),
    last_active_ns=times,
    progress_ns=times,
    gap_ns=st.integers(0, 3_000 * US),
    outstanding_ns=st.sampled_from([0, 0, 0, 10 * US, 49 * US, 3_000 * US]),
    running_ns=st.sampled_from([0, 0, 5 * US, 30 * US]),
    used_ns=st.integers(0, 20_000 * US),
)
rules_of = st.builds(
    Rules,
    min_share_pm=st.sampled_from([0, 0, 20, 500, 1000, 2000]),
    max_wait_ns=st.sampled_from([0, 0, 100 * US, 10_000 * US]),
    bound_ns=st.sampled_from([0, 50 * US, 1_000 * US]),
    idle_bound_ns=st.sampled_from([0, 2_000 * US]),
)


def oracle(rules: Rules, seen: list[Tenant], own: int, cost: int, since: int, now: int) -> Verdict:
    """The rules as sentences, with exact fractions and no early ends."""
    me = seen[own]
    if me.cls is not Class.BEST_EFFORT:
        return Verdict.GO
    cost = max(cost, 1)
    counted = [
        one for one in seen
        if one.cls is not Class.FREE and not (one.pending and now - one.progress_ns >= rules.stuck_ns)
    ]  # fmt: skip
    guaranteed = [one for one in counted if one.cls is Class.GUARANTEED]
    rivals = [
        one for one in counted
        if one.cls is Class.BEST_EFFORT and one is not me and one.waiting and now - one.last_active_ns < AWAY_NS
    ]  # fmt: skip
    silent = [now - one.last_active_ns for one in guaranteed]
    idle = all(not one.pending and ago >= rules.idle_ns for one, ago in zip(guaranteed, silent, strict=True))
    bound = max(rules.bound_ns, rules.idle_bound_ns) if idle else rules.bound_ns
    blocked = Verdict.GO
    for one, ago in zip(guaranteed, silent, strict=True):
        if one.pending:
            blocked = Verdict.WAIT_BUSY
        elif blocked is Verdict.GO and ago < max(rules.grace_ns, min(one.gap_ns, rules.grace_most_ns)):
            blocked = Verdict.WAIT_GRACE
    due = bool(rules.max_wait_ns) and now - since >= rules.max_wait_ns
    if rules.min_share_pm:
        share = Fraction(min(rules.min_share_pm, 1000), 1000) * me.weight / sum(one.weight for one in [me, *rivals])
        due = due or now - since + cost >= int(cost / share)
    if blocked and not due:
        return blocked
    flying = [one for one in counted if one.cls is Class.BEST_EFFORT and one.outstanding_ns]
    left = sum(max(one.outstanding_ns - min(one.running_ns, max(now - one.progress_ns, 0)), 0) for one in flying)
    if flying and left + cost > bound:
        return Verdict.WAIT_BOUND
    if due:
        return Verdict.GO_SHARE if blocked else Verdict.GO
    least = min((one.used_ns // one.weight for one in rivals), default=None)
    ahead = least is not None and me.used_ns // me.weight > least
    over = least is not None and (me.used_ns + cost) // me.weight > least + rules.quantum_ns
    return Verdict.WAIT_TURN if ahead and over else Verdict.GO


@st.composite
def cases(draw: st.DrawFn) -> tuple[Rules, list[Tenant], int, int, int]:
    seen = draw(st.lists(tenants, min_size=1, max_size=6))
    own = draw(st.integers(0, len(seen) - 1))
    seen[own] = replace(seen[own], cls=draw(st.sampled_from([Class.BEST_EFFORT, Class.BEST_EFFORT, Class.GUARANTEED])))
    return draw(rules_of), seen, own, draw(costs), min(draw(times), NOW)


@given(cases())
@settings(max_examples=600)
def test_it_decides_as_the_oracle_does(case: tuple[Rules, list[Tenant], int, int, int]) -> None:
    rules, seen, own, cost, since = case
    found = decide(rules, seen, own, cost_ns=cost, since_ns=since, now_ns=NOW)
    assert found.verdict is oracle(rules, seen, own, cost, since, NOW)
    assert found.cause == own or not found.goes
    assert found.look_at_ns > NOW


@given(cases())
@settings(max_examples=300)
def test_guaranteed_work_is_never_made_to_wait(case: tuple[Rules, list[Tenant], int, int, int]) -> None:
    rules, seen, own, cost, since = case
    seen[own] = replace(seen[own], cls=Class.GUARANTEED)
    assert decide(rules, seen, own, cost_ns=cost, since_ns=since, now_ns=NOW).verdict is Verdict.GO


@given(cases(), st.floats(0, 1))
@settings(max_examples=300)
def test_it_looks_again_before_time_alone_changes_the_answer(
    case: tuple[Rules, list[Tenant], int, int, int], part: float
) -> None:
    rules, seen, own, cost, since = case
    rules = replace(rules, stuck_ns=1 << 62)  # who is stuck, and who is away, is seen within 10 ms of it
    seen = [replace(one, waiting=False) for one in seen]
    found = decide(rules, seen, own, cost_ns=cost, since_ns=since, now_ns=NOW)
    if found.goes:
        return
    assert NOW < found.look_at_ns <= NOW + 10_000_000
    between = NOW + int((found.look_at_ns - 1 - NOW) * part)
    assert not decide(rules, seen, own, cost_ns=cost, since_ns=since, now_ns=between).goes or bound_ns(
        rules, seen, between
    ) > bound_ns(rules, seen, NOW)


def one(cls: Class, **more: int) -> Tenant:
    return Tenant(cls, **{"last_active_ns": NOW - 1_000_000_000, "progress_ns": NOW, **more})  # type: ignore[arg-type]


SERVICE = one(Class.GUARANTEED)
TRAINING = one(Class.BEST_EFFORT)


def ask(*seen: Tenant, cost: int = 10 * US, waited: int = 0, **rules: int) -> Decision:
    return decide(replace(RULES, **rules), seen, 0, cost_ns=cost, since_ns=NOW - waited, now_ns=NOW)  # type: ignore[arg-type]


def test_reasons_name_what_is_waited_for() -> None:
    service = replace(SERVICE, name="web")
    assert ask(TRAINING, replace(service, pending=3)).reason == "waits: web has 3 launches on the device"
    assert ask(TRAINING, replace(service, last_active_ns=NOW)).reason == "waits: web was active a moment ago"
    assert ask(TRAINING, service).reason == "goes: guaranteed work is quiet"
    assert ask(SERVICE, service).reason == "goes: guaranteed work never waits"
    full = ask(replace(TRAINING, outstanding_ns=1990 * US), cost=20 * US)
    assert full.verdict is Verdict.WAIT_BOUND
    assert "50 us of best-effort work" in full.reason
    turn = ask(replace(TRAINING, used_ns=9_000 * US), replace(TRAINING, waiting=True, last_active_ns=NOW, name="other"))
    assert turn.reason == "waits: other has had less of the device, for its weight"
    assert turn.cause == 1
    due = ask(TRAINING, replace(service, pending=3), waited=2_000 * US, max_wait_ns=1_000 * US)
    assert due.verdict is Verdict.GO_SHARE
    assert "longest wait" in due.reason


def test_grace_follows_the_gaps_of_a_tenant_up_to_a_most() -> None:
    def waits(gap: int, silent: int) -> bool:
        return not ask(TRAINING, replace(SERVICE, gap_ns=gap * US, last_active_ns=NOW - silent * US)).goes

    assert waits(0, 99)
    assert not waits(0, 100)
    assert waits(200, 199)
    assert not waits(200, 200)
    assert waits(5_000, 299)
    assert not waits(5_000, 300)


def test_a_stuck_tenant_holds_up_nobody() -> None:
    stuck = replace(SERVICE, pending=1, progress_ns=NOW - RULES.stuck_ns)
    assert ask(TRAINING, stuck).goes
    assert not ask(TRAINING, replace(stuck, progress_ns=stuck.progress_ns + 1)).goes
    holder = replace(TRAINING, pending=1, outstanding_ns=5_000 * US, progress_ns=stuck.progress_ns)
    assert ask(TRAINING, holder).goes
    assert not ask(TRAINING, replace(holder, progress_ns=NOW)).goes


def test_the_bound_is_wider_once_guaranteed_work_is_long_silent() -> None:
    assert bound_ns(RULES, [TRAINING], NOW) == RULES.idle_bound_ns
    assert bound_ns(RULES, [TRAINING, SERVICE], NOW) == RULES.idle_bound_ns
    assert bound_ns(RULES, [replace(SERVICE, last_active_ns=NOW - RULES.idle_ns + 1)], NOW) == RULES.bound_ns
    assert bound_ns(RULES, [replace(SERVICE, pending=1)], NOW) == RULES.bound_ns


def test_a_piece_over_the_bound_goes_alone() -> None:
    assert ask(TRAINING, cost=9_000 * US).goes
    assert ask(replace(TRAINING, outstanding_ns=1), cost=9_000 * US).verdict is Verdict.WAIT_BOUND


@given(st.integers(1, 1000), st.integers(1 * US, 500 * US), st.integers(1, 4), st.integers(1, 4))
@settings(max_examples=50)
def test_the_minimum_share_is_kept_by_weight_beside_work_that_never_ends(
    share: int, cost: int, weight: int, other: int
) -> None:
    """Two tenants that always wait, and a guaranteed one that is always busy: pieces go one after the other."""
    rules = replace(RULES, min_share_pm=share)
    since, had, now = [0, 0], [0, 0], NOW
    weights = (weight, other)
    since = [now, now]
    for _ in range(400):
        seen = [
            *(one(Class.BEST_EFFORT, weight=weights[i], waiting=1, last_active_ns=now) for i in (0, 1)),
            one(Class.GUARANTEED, pending=1, progress_ns=now),
        ]
        found = [decide(rules, seen, i, cost_ns=cost, since_ns=since[i], now_ns=now) for i in (0, 1)]
        for i in (0, 1):
            if found[i].goes:
                had[i] += cost
                now += cost
                since[i] = now
                break
        else:
            now = min(one.look_at_ns for one in found)
    spent = now - NOW
    assert sum(had) <= spent * share / 1000 + 2 * cost
    if share <= 500:  # with more, two that each wait for a piece of the other cannot both have it in time
        for i in (0, 1):
            mine = Fraction(share * weights[i], 1000 * sum(weights))
            assert had[i] >= spent * mine * Fraction(1, 2) - 2 * cost


class Fair:
    """Several best-effort tenants alone on a device that runs one piece at a time, driven as gates drive the policy."""

    def __init__(self, rules: Rules, weights: list[int]) -> None:
        self.rules, self.now, self.fair = rules, NOW, 0
        self.seen = [one(Class.BEST_EFFORT, weight=weight) for weight in weights]
        self.had = [0] * len(weights)
        self.since = [0] * len(weights)

    def wait(self, i: int) -> None:
        me = self.seen[i]
        used = start_ns(self.rules, me.used_ns, me.weight, self.fair)
        self.seen[i] = replace(me, waiting=True, used_ns=used)
        self.since[i] = self.now

    def step(self, costs: list[int]) -> int | None:
        """One piece of any waiting tenant that may go, the last asked first, or nothing."""
        self.seen = [replace(me, last_active_ns=self.now) for me in self.seen]
        for i, me in reversed(list(enumerate(self.seen))):
            if (
                me.waiting
                and decide(self.rules, self.seen, i, cost_ns=costs[i], since_ns=self.since[i], now_ns=self.now).goes
            ):
                self.fair = max(self.fair, me.used_ns // me.weight)
                self.seen[i] = replace(me, used_ns=me.used_ns + costs[i], waiting=False)
                self.had[i] += costs[i]
                self.now += costs[i]
                return i
        return None


@given(
    st.lists(st.integers(1, 4), min_size=2, max_size=4),
    st.lists(st.lists(st.integers(1, 900 * US), min_size=4, max_size=4), min_size=20, max_size=60),
)
@settings(max_examples=60)
def test_tenants_that_always_wait_stay_within_a_quantum_by_weight(weights: list[int], costs: list[list[int]]) -> None:
    device = Fair(RULES, weights)
    for i in range(len(weights)):
        device.wait(i)
    longest = 0
    for row in costs:
        longest = max(longest, *row)
        went = device.step(row)
        assert went is not None, "the device is quiet and somebody waits: one must go"
        device.wait(went)
        shares = [had / weight for had, weight in zip(device.had, weights, strict=True)]
        assert max(shares) - min(shares) <= max(RULES.quantum_ns, longest) + len(weights)


def test_time_away_is_neither_credit_nor_debt() -> None:
    device = Fair(RULES, [1, 1])
    device.wait(0)
    for _ in range(1000):
        assert device.step([500 * US, 0]) == 0
        device.wait(0)
    device.wait(1)
    before = device.had[0]
    order = []
    for _ in range(100):
        went = device.step([500 * US, 500 * US])
        assert went is not None
        order.append(went)
        device.wait(went)
    assert device.had[0] - before <= device.had[1] + RULES.quantum_ns
    assert device.had[1] <= device.had[0] - before + 2 * RULES.quantum_ns + 500 * US
    assert order[:5] == [1] * 5, "it may catch up on one quantum, and begins with it"


def test_one_that_has_stopped_looking_is_not_waited_for() -> None:
    ahead = replace(TRAINING, used_ns=90_000 * US)
    rival = replace(TRAINING, waiting=True, last_active_ns=NOW - AWAY_NS + 1)
    assert ask(ahead, rival).verdict is Verdict.WAIT_TURN
    assert ask(ahead, replace(rival, last_active_ns=NOW - AWAY_NS)).goes
    assert ask(ahead, replace(rival, waiting=False)).goes


@given(st.integers(0, 2**31), st.integers(2, 80), st.floats(0, 0.5))
@settings(max_examples=20)
def test_the_gap_settles_where_most_gaps_are_shorter(seed: int, mean_us: int, busy: float) -> None:
    """Some launches find the device busy: for them the gap is 0."""
    rng = random.Random(seed)

    def gap() -> int:
        return 0 if rng.random() < busy else int(rng.expovariate(1 / (mean_us * US)))

    estimate = 0
    for _ in range(3000):
        estimate = next_gap_ns(RULES, estimate, gap())
    assert 0.87 <= sum(gap() < estimate for _ in range(3000)) / 3000 <= 0.99


def test_gaps_of_no_request_teach_nothing() -> None:
    most = RULES.grace_most_ns
    assert next_gap_ns(RULES, 0, most + 1) == 0
    assert next_gap_ns(RULES, 777, most + 1) == 777
    assert next_gap_ns(RULES, 0, 300) == 300
    assert next_gap_ns(RULES, 200 * US, 100) == 199 * US
    assert next_gap_ns(RULES, 200 * US, 250 * US) == 219 * US + 1
    assert next_gap_ns(RULES, most - 5, most) == most


def test_a_piece_may_be_launched_before_the_one_before_it_has_ended() -> None:
    flying = replace(TRAINING, pending=1, outstanding_ns=45 * US, running_ns=45 * US, progress_ns=NOW - 30 * US)
    busy = replace(SERVICE, last_active_ns=NOW - 200 * US)
    assert ask(flying, busy, cost=35 * US).goes
    assert ask(flying, busy, cost=36 * US).verdict is Verdict.WAIT_BOUND
    assert not ask(replace(flying, running_ns=0), busy, cost=35 * US).goes
    overdue = replace(flying, outstanding_ns=90 * US, progress_ns=NOW - 300 * US)
    assert not ask(overdue, busy, cost=6 * US).goes, "what runs late says nothing of what comes after it"
    assert ask(overdue, busy, cost=5 * US).goes


def choose_oracle(known: Profile, ways: Ways, blocks: int, bound: int) -> set[Plan]:
    """Tries every number of waves; a set, where a measured size may be kept. `cost_ns` is left out."""
    wave = known.wave_blocks or 1
    waves, sliced = -(-blocks // wave), -(-known.slice_blocks // wave)
    measured = bool(known.slice_ns) and 0 < sliced < waves
    launch, doubt, whole = 4_000.0, 0.0, float(known.whole_ns)
    if measured:
        doubt = 2 * known.slice_dev_ns / known.slice_ns
        each = (whole - known.slice_ns) / (waves - sliced) if whole else 0.0
        launch = known.slice_ns - each * sliced if whole else launch
        if launch < 0 or each <= 0:
            launch = min(4_000.0, known.slice_ns)
            each = (known.slice_ns - launch) / sliced
        whole = whole or launch + each * waves
    else:
        doubt = 2 * known.whole_dev_ns / whole if whole else 0.0
        whole = whole or 200.0 * US
        each = max(whole - launch, 0) / waves
    predicted = known.whole_ns + 2 * known.whole_dev_ns if known.whole_ns else int(whole * (1 + doubt))
    if predicted <= bound:
        return {Plan(Way.WHOLE, blocks, 0, False)}

    def added(n: int) -> float | None:
        took = (launch + each * n) * (1 + doubt)
        if took > bound or launch > 0.25 * each * n:
            return None
        return (launch + max(8_000 - (bound - took), 0)) / (each * n)

    if Ways.SLICE in ways and waves > 1:
        costs = {n: cost for n in range(1, waves) if (cost := added(n)) is not None}
        if not known.seen:
            return {Plan(Way.SLICE, wave, 0, False)}
        if costs:
            best = min(costs.values())
            # The largest that fits, and the largest that hides the host, are what it looks at.
            return {
                Plan(Way.SLICE, -(-waves // -(-waves // n)) * wave, 0, False)
                for n, cost in costs.items()
                if cost <= best + 0.12 or n == sliced
            }
    if Ways.TICKET in ways and (known.ticket_ns or min(predicted, bound)) <= bound:
        return {Plan(Way.TICKET, blocks, 0, False)}
    return {Plan(Way.WHOLE, blocks, 0, True)}


@given(
    st.builds(
        Profile,
        whole_ns=st.sampled_from([0, 30 * US, 70 * US, 900 * US, 20_000 * US]),
        whole_dev_ns=st.integers(0, 20 * US),
        slice_ns=st.sampled_from([0, 6 * US, 45 * US, 80 * US]),
        slice_dev_ns=st.integers(0, 5 * US),
        ticket_ns=st.sampled_from([0, 20 * US, 60 * US]),
        slice_blocks=st.integers(0, 64),
        wave_blocks=st.sampled_from([0, 0, 1, 7, 32]),
        seen=st.sampled_from([0, 5, 5, 5]),
    ),
    st.integers(0, 3).map(lambda bits: Ways(1 | bits << 1)),
    st.integers(1, 300),
    st.sampled_from([0, 50 * US, 2_000 * US]),
)
@settings(max_examples=500)
def test_it_chooses_as_the_oracle_does(known: Profile, ways: Ways, blocks: int, bound: int) -> None:
    found = choose(known, ways, blocks=blocks, bound_ns=bound)
    assert replace(found, cost_ns=0) in choose_oracle(known, ways, blocks, bound)
    assert found.violates == (found.way is Way.WHOLE and found.cost_ns > bound)
    if found.way is Way.SLICE:
        assert found.cost_ns <= max(bound, 1)
        assert known.seen or found.cost_ns == max(bound, 1), "they go one after the other"
        assert found.blocks < blocks + wave_of(known)


def wave_of(known: Profile) -> int:
    return known.wave_blocks or 1


def test_a_measured_slice_is_kept_where_another_is_hardly_better() -> None:
    known = Profile(slice_ns=34 * US, slice_blocks=216, seen=9, wave_blocks=108)
    ways = Ways.WHOLE | Ways.SLICE
    assert choose(known, ways, blocks=6000, bound_ns=50 * US) == Plan(Way.SLICE, 216, 34 * US, False)
    small = Profile(slice_ns=9 * US, slice_blocks=108, seen=9, wave_blocks=108)
    assert choose(small, ways, blocks=6000, bound_ns=50 * US).blocks >= 5 * 108


def test_one_disturbed_sample_moves_a_mean_by_less_than_half() -> None:
    known = Profile()
    for _ in range(8):
        known = learn(known, Way.WHOLE, blocks=10, took_ns=40 * US)
    assert (known.whole_ns, known.seen) == (40 * US, 8)
    assert learn(known, Way.WHOLE, blocks=10, took_ns=10_000 * US).whole_ns == 55 * US
    assert learn(known, Way.WHOLE, blocks=10, took_ns=0).whole_ns == 35 * US + 1
    ticket = learn(known, Way.TICKET, blocks=0, took_ns=7)
    assert replace(ticket, ticket_ns=0, seen=8, firsts=known.firsts) == known


@pytest.mark.parametrize("way", list(Way))
def test_a_mean_begins_as_the_least_of_three_samples(way: Way) -> None:
    """The first launch of a process loads code, the next ones find cold caches."""
    known = Profile(whole_ns=9, slice_ns=9, slice_blocks=10, ticket_whole_ns=9, ticket_ns=9, firsts=0b11_11_11_11)
    name = {Way.WHOLE: "whole_ns", Way.SLICE: "slice_ns", Way.TICKET: "ticket_whole_ns"}[way]
    known = replace(known, **{name: 0})
    for took, mean in ((20_000 * US, 20_000 * US), (12 * US, 12 * US), (40 * US, 12 * US), (20 * US, 14 * US)):
        known = learn(known, way, blocks=10, took_ns=took)
        assert getattr(known, name) == mean
    assert known.firsts == 0b11_11_11_11


@pytest.mark.parametrize("way", [Way.WHOLE, Way.TICKET])
@pytest.mark.parametrize("slices_took", [[90 * US], [9_000 * US], [30 * US, 110 * US, 30 * US, 110 * US]])
def test_slices_that_were_disturbed_are_tried_again_after_a_few_whole_runs(slices_took: list[int], way: Way) -> None:
    """Slices of 10 of 300 blocks take 34 us in truth, and the kernel a millisecond."""
    ways = Ways.WHOLE | Ways.SLICE | (Ways.TICKET if way is Way.TICKET else Ways.WHOLE)

    def launched(known: Profile) -> Way:
        return choose(known, ways, blocks=300, bound_ns=50 * US).way

    known = Profile(ticket_ns=20 * US)
    for took in slices_took:
        known = learn(known, Way.SLICE, blocks=10, took_ns=took)
    known = learn(known, way, blocks=300, took_ns=1_000 * US)
    if way is Way.WHOLE and len(slices_took) == 1:
        assert launched(known) is way
    runs = 0
    while launched(known) is not Way.SLICE:
        known, runs = learn(known, way, blocks=300, took_ns=1_000 * US), runs + 1
        assert runs < 16
    settled = learn(known, way, blocks=300, took_ns=1_000 * US)
    for _ in range(50):
        settled = learn(settled, way, blocks=300, took_ns=1_000 * US)
    assert settled.slice_ns >= 1_000 * US * 10 // 300, "never less than their part of the kernel"


def test_slices_that_are_in_use_keep_what_was_measured() -> None:
    known = Profile(whole_ns=1_000 * US, slice_ns=38 * US, slice_dev_ns=US, slice_blocks=10, seen=20)
    after = learn(known, Way.WHOLE, blocks=300, took_ns=1_000 * US)
    assert (after.slice_ns, after.slice_dev_ns) == (38 * US, US)
    assert learn(replace(known, slice_ns=50 * US), Way.WHOLE, blocks=300, took_ns=1_000 * US).slice_ns < 50 * US


def test_python_and_the_library_have_the_same_rules() -> None:
    assert Rules.of_native(native.library().shoal_default_rules()) == Rules()
    given_rules = Rules(*range(1, 10))
    assert Rules.of_native(given_rules.to_native()) == given_rules


def test_what_is_missing_says_what_to_install(tmp_path: pytest.TempPathFactory) -> None:
    from pathlib import Path

    said = native.capability(Path(str(tmp_path)))
    assert not said.available
    assert "g++" in said.detail
    assert "without a gate" in said.consequence


def test_a_piece_that_overdue_work_of_its_own_may_wait_for_passes_the_bound_and_later_guaranteed_work() -> None:
    full = replace(TRAINING, pending=1, outstanding_ns=9_000 * US, progress_ns=NOW)
    busy = replace(SERVICE, pending=1, progress_ns=NOW)
    for overdue, beside, verdict in (
        (0, (), Verdict.WAIT_BOUND),
        (MS - 1, (), Verdict.WAIT_BOUND),
        (MS, (), Verdict.GO),
        (MS, (busy,), Verdict.WAIT_BUSY),
        (100 * MS - 1, (busy,), Verdict.WAIT_BUSY),
        (100 * MS, (busy,), Verdict.GO_SHARE),
    ):
        tenants = [replace(full, overdue_ns=overdue), *beside]
        found = decide(Rules(), tenants, 0, cost_ns=20 * US, since_ns=NOW, now_ns=NOW)
        assert found.verdict is verdict, (overdue, found)
