"""What every policy keeps to, whatever it sees; and what the adaptive ones do about it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from host.simulate import policy_of
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.core import Invalid, PriorityClass
from shoal.host.guard.journal import state_from_json, state_json
from shoal.host.policy import POLICIES, make_policy
from shoal.host.policy.contention import LEAST_SENSITIVITY, Contention, divide
from shoal.host.policy.pauses import PROBE_SHARE
from shoal.host.policy.violation import HOLD_TICKS, Quiet, Source, Watch, is_idle, look
from shoal.host.sensors.senses import Undisturbed
from shoal.host.types import (
    UNLIMITED,
    Control,
    Domain,
    DomainState,
    Group,
    GroupState,
    Missing,
    Plan,
    Reading,
    Setting,
    Snapshot,
    idle_below,
)

ADAPTIVE = ("core-throttle", "kelp", "model")
UNKNOWN = Reading(Missing("a test hides it"))
MILD = frozenset(Control)


def guaranteed(step_s: Reading = UNKNOWN, *, name: str = "feed", **more: Any) -> GroupState:
    more.setdefault("alone_s", Reading(0.001))
    more.setdefault("cpus", Reading(1.0))
    return GroupState(
        Group(name, PriorityClass.GUARANTEED, max_slowdown=1.05), frozenset({0}), step_s=step_s, **more
    )  # fmt: skip


def neighbour(name: str = "flood", *, cores: int = 1, min_share: float = 0.02, **more: Any) -> GroupState:
    more.setdefault("cpus", Reading(float(cores)))
    group = Group(name, PriorityClass.BEST_EFFORT, min_share=min_share)
    return GroupState(group, more.pop("domains", frozenset({0})), cores=cores, **more)


def host(*groups: GroupState, at: float = 0.0, domains: int = 1, **home: Any) -> Snapshot:
    places = [Domain(number, frozenset({2 * number, 2 * number + 1})) for number in range(domains)]
    homes = tuple(DomainState(place, **(home if place.id == 0 else {})) for place in places)
    return Snapshot(at, homes, groups, controls=MILD)


class Run:
    """Drives a policy by hand: what is applied is what was planned."""

    def __init__(self, name: str, controls: frozenset[Control] = MILD) -> None:
        self.policy = policy_of(name)
        self.controls = controls
        self.state = self.policy.start()
        self.applied: dict[str, Setting] = {}
        self.alone: dict[str, Undisturbed] = {}
        self.at = 0.0

    def see(self, *groups: GroupState, domains: int = 1, **home: Any) -> Plan:
        """Undisturbed times are learnt as a guard's senses do."""
        seen = tuple(replace(one, applied=self.applied.get(one.group.name, UNLIMITED)) for one in groups)
        quiet = not any(
            one.group.priority_class is PriorityClass.BEST_EFFORT and not (one.applied.frozen or is_idle(one))
            for one in seen
        )  # fmt: skip
        for one in seen:
            if quiet and (step := one.step_s.known()) is not None:
                self.alone.setdefault(one.group.name, Undisturbed()).add(step, self.at, everywhere=True)
        seen = tuple(
            replace(one, alone_s=known.reading(self.at)) if (known := self.alone.get(one.group.name)) else one
            for one in seen
        )  # fmt: skip
        snapshot = replace(host(*seen, at=self.at, domains=domains, **home), controls=self.controls)
        plan, self.state = self.policy.step(snapshot, self.state)
        self.applied = dict(plan.settings)
        self.at += plan.next_in_s
        return plan

    def share(self, name: str = "flood") -> float:
        return self.applied.get(name, UNLIMITED).share

    def contended(self, ticks: int, sensitivity: float = 0.6, name: str = "flood") -> None:
        """A neighbour that costs `sensitivity` of the guaranteed work's speed at its full share."""
        for _ in range(ticks):
            setting = self.applied.get(name, UNLIMITED)
            loss = 0.0 if setting.frozen else sensitivity * setting.share * (setting.cores or 4) / 4
            self.see(guaranteed(Reading(0.001 / (1 - loss))), neighbour(name, cores=4))


readings = st.one_of(
    st.just(UNKNOWN), st.builds(Reading, st.floats(0, 1e12), st.floats(0, 5)), st.builds(Reading, st.floats(0, 0.01))
)
applied = st.builds(
    Setting, share=st.floats(0.01, 1), cores=st.none() | st.integers(1, 8), prefetching=st.none() | st.integers(0, 8),
    frozen=st.booleans(),
)  # fmt: skip


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    count = draw(st.integers(1, 3))
    domains = tuple(
        DomainState(
            Domain(number, frozenset({2 * number, 2 * number + 1})), draw(readings), draw(readings), draw(readings),
            draw(st.just(UNKNOWN) | st.builds(Reading, st.floats(0, 1))),
        )
        for number in range(count)
    )  # fmt: skip
    groups = []
    for number in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(PriorityClass))
        group = Group(
            f"g{number}", kind, draw(st.floats(0.1, 10)), draw(st.floats(0, 0.5)), draw(st.floats(1.0, 3.0))
        )  # fmt: skip
        state = GroupState(
            group, frozenset({draw(st.integers(0, count - 1))}), draw(st.integers(1, 16)),
            draw(readings), draw(readings), draw(readings), draw(readings), draw(readings),
            draw(applied) if kind is PriorityClass.BEST_EFFORT else UNLIMITED,
        )  # fmt: skip
        groups.append(state)
    controls = frozenset(draw(st.sets(st.sampled_from(Control))))
    return Snapshot(draw(st.floats(0, 100)), domains, tuple(groups), controls, draw(st.floats(0.001, 0.2)))


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=60, deadline=None)
@given(seen=st.lists(snapshots(), min_size=1, max_size=6))
def test_any_policy_keeps_to_the_rules_whatever_it_sees(name: str, seen: list[Snapshot]) -> None:
    policy = make_policy(name)
    state = policy.start()
    for at, snapshot in enumerate(seen):
        snapshot = replace(snapshot, at=snapshot.at + 100.0 * at)
        plan, after = policy.step(snapshot, state)
        again, _ = policy.step(snapshot, state)
        assert plan == again
        best_effort = {one.group.name: one for one in snapshot.of(PriorityClass.BEST_EFFORT)}
        assert set(plan.settings) <= set(best_effort), "guaranteed work is never limited"
        assert plan.next_in_s > 0
        for one_name, setting in plan.settings.items():
            one = best_effort[one_name]
            assert min(1.0, one.group.min_share) <= setting.share <= 1
            assert setting.cores is None or setting.cores >= 1
            assert setting.prefetching is None or setting.prefetching >= 0
            if setting.domains is not None:
                assert setting.domains
                assert setting.domains <= {home.domain.id for home in snapshot.domains}
                assert Control.DOMAINS in snapshot.controls
            assert not (setting.frozen and Control.FREEZE not in snapshot.controls)
        for group in best_effort:
            assert group in plan.reasons or name == "none"
        state = state_from_json(type(after), state_json(after))
        assert state == after, "a state survives JSON"


@pytest.mark.parametrize("name", ADAPTIVE)
def test_contention_is_brought_down_and_everything_comes_back_when_it_ends(name: str) -> None:
    run = Run(name)
    run.contended(80)
    assert run.share() < 0.2 or (run.applied["flood"].cores or 4) == 1
    for _ in range(400):
        run.see(guaranteed(Reading(0.001)), neighbour(cores=4))
    assert run.applied.get("flood", UNLIMITED) in (UNLIMITED, Setting(frozen=True))


@pytest.mark.parametrize("name", ADAPTIVE)
def test_silence_holds_limits_then_lifts_them(name: str) -> None:
    run = Run(name)
    run.contended(100)
    held = replace(run.applied["flood"], frozen=False)
    lifted_after = None
    for tick in range(HOLD_TICKS + 10):
        plan = run.see(guaranteed(cpus=UNKNOWN), neighbour(cores=4))
        if not plan.settings:
            lifted_after = tick
            break
        assert replace(plan.settings["flood"], frozen=False) == held
    assert lifted_after is not None
    assert lifted_after >= HOLD_TICKS - 2
    assert plan.reasons["flood"].code == "blind"


def test_one_silent_group_forbids_loosening_until_it_is_given_up() -> None:
    run = Run("model")
    run.contended(20)
    before = run.share()
    assert before < 1
    for _ in range(HOLD_TICKS):
        run.see(guaranteed(Reading(0.001)), guaranteed(name="other", cpus=UNKNOWN), neighbour())
    assert run.share() == before
    for _ in range(HOLD_TICKS):
        run.see(guaranteed(Reading(0.001)), guaranteed(name="other", cpus=UNKNOWN), neighbour())
    assert run.share() > before


def test_a_newcomer_starts_low_and_the_first_thing_is_a_pause() -> None:
    run = Run("model")
    first = run.see(guaranteed(Reading(0.001)), neighbour())
    assert first.settings["flood"].frozen
    assert first.settings["flood"].share <= 0.1
    assert first.reasons["flood"].code == "measuring"


def test_the_model_pauses_until_undisturbed_is_known() -> None:
    run = Run("model")
    for _ in range(100):
        setting = run.applied.get("flood", UNLIMITED)
        loss = 0.0 if setting.frozen else 0.6 * setting.share
        run.see(guaranteed(Reading(0.0031 / (1 - loss)), alone_s=UNKNOWN), neighbour(cores=4))
    assert run.alone["feed"].reading(run.at).value == pytest.approx(0.0031)
    assert 0.04 < run.share() < 0.12


def test_the_model_finds_the_one_that_disturbs() -> None:
    run = Run("model")
    cost = {"flood": 0.6, "render": 0.0}
    for _ in range(300):
        loss = sum(
            0.0 if (setting := run.applied.get(name, UNLIMITED)).frozen else sensitivity * setting.share
            for name, sensitivity in cost.items()
        )
        run.see(guaranteed(Reading(0.001 / (1 - loss))), neighbour("flood"), neighbour("render"))
    assert run.share("flood") < 0.12
    assert run.share("render") > 0.9


def beside(run: Run, cost: dict[str, float], seconds: float) -> list[float]:
    """These groups run, and cost so much of the guaranteed work's speed at their full shares. Returns when all were
    paused."""
    pauses, until = list[float](), run.at + seconds
    while run.at < until:
        limits = {name: run.applied.get(name, UNLIMITED) for name in cost}
        loss = sum(
            0.0 if limits[name].frozen else sensitivity * limits[name].share for name, sensitivity in cost.items()
        )
        at = run.at
        run.see(guaranteed(Reading(0.001 / (1 - loss))), *map(neighbour, cost))
        if all(one.frozen for one in limits.values()) and (not pauses or at - pauses[-1] > 0.2):
            pauses.append(at)
    return pauses


def test_several_groups_are_told_apart_by_one_probe_each() -> None:
    run = Run("model")
    pauses = beside(run, {"flood": 0.3, "reader": 0.15, "render": 0.0}, 1.0)
    assert run.share("flood") < run.share("reader") < 0.3
    assert run.share("render") == 1
    assert len(pauses) == 1


def test_who_was_cleared_is_blamed_again_when_a_probe_says_so() -> None:
    run = Run("model")
    beside(run, {"flood": 0.3, "render": 0.0}, 5.0)
    beside(run, {"flood": 0.3, "render": 0.3}, 0.6)
    assert run.share("render") < 0.2
    beside(run, {"flood": 0.0, "render": 0.3}, 4.0)
    assert run.share("flood") == 1
    assert run.share("render") < 0.2


@pytest.mark.parametrize("cost", [dict.fromkeys("abc", 0.035), dict.fromkeys("abcd", 0.03)])
def test_those_who_disturb_only_together_are_limited(cost: dict[str, float]) -> None:
    run, lost = Run("model"), 0.0
    while run.at < 30.0:
        limits = {name: run.applied.get(name, UNLIMITED) for name in cost}
        loss = sum(0.0 if limits[name].frozen else part * limits[name].share for name, part in cost.items())
        at = run.at
        run.see(guaranteed(Reading(0.001 / (1 - loss))), *map(neighbour, cost))
        lost += loss * (run.at - at)
    assert lost / 30.0 < 0.05, "what is allowed"
    assert min(run.share(name) for name in cost) > 0.2


def test_a_group_on_probe_that_becomes_guaranteed_is_judged_no_more() -> None:
    run = Run("model")
    while not any(one.share == PROBE_SHARE for one in run.applied.values()):
        run.see(guaranteed(Reading(0.001)), neighbour("batch"))
    plan = run.see(guaranteed(Reading(0.001)), guaranteed(Reading(0.001), name="batch"), neighbour("other"))
    assert "batch" not in plan.settings
    assert set(run.state.groups) == {"other"}


def test_nobody_is_frozen_for_a_probe_where_nothing_can_freeze_any_longer() -> None:
    run = Run("model")
    while run.applied.get("a", UNLIMITED).frozen or not run.applied:
        run.see(guaranteed(Reading(0.001)), neighbour("a"), neighbour("b"))
    seen = host(guaranteed(Reading(0.001)), neighbour("a"), neighbour("b"), neighbour("c"), at=run.at)
    for _ in range(5):
        plan, run.state = run.policy.step(replace(seen, controls=frozenset({Control.SHARE})), run.state)
        assert not any(one.frozen for one in plan.settings.values())
        seen = replace(seen, at=seen.at + plan.next_in_s)


def test_newcomers_of_which_none_does_harm_are_tried_together() -> None:
    run = Run("model")
    pauses = beside(run, dict.fromkeys("abcde", 0.0), 0.5)
    assert len(pauses) == 1
    assert all(run.share(name) == 1 for name in "abcde")
    assert len({one.at for one in run.state.pause.probed.values()}) == 1


@pytest.mark.parametrize("count", [24, 40])
def test_many_newcomers_are_no_flood(count: int) -> None:
    run, names = Run("model"), [f"one-{number}" for number in range(count)]
    beside(run, dict.fromkeys(names, 0.0), 1.0)
    assert all(run.share(name) == 1 for name in names)


def test_floods_are_tried_with_a_share_that_bounds_what_they_cost() -> None:
    run, worst = Run("model"), 0.0
    run.see(guaranteed(Reading(0.001)), neighbour("a", cpus=Reading(0.0)), neighbour("b", cpus=Reading(0.0)))
    while run.at < 1.0:
        limits = {name: run.applied.get(name, UNLIMITED) for name in "ab"}
        loss = sum(0.0 if one.frozen else 0.4 * one.share for one in limits.values())
        run.see(guaranteed(Reading(0.001 / (1 - loss))), neighbour("a"), neighbour("b"))
        worst = max(worst, loss)
    assert worst < 0.2, "0.4 if one is tried with all of its share"
    assert len(run.state.pause.probed) == 2
    assert run.share("a") + run.share("b") < 0.2


def test_a_group_that_has_become_harmless_is_let_go_within_a_second() -> None:
    run = Run("model")
    beside(run, {"flood": 0.3}, 5.0)
    assert run.share() < 0.2
    beside(run, {"flood": 0.0}, 1.0)
    assert run.share() > 0.8


def test_a_sudden_neighbour_is_met_within_three_ticks() -> None:
    run = Run("model")
    for _ in range(60):
        run.see(guaranteed(Reading(0.001)), neighbour(cpus=UNKNOWN))
    assert run.share() == 1
    run.contended(3)
    assert run.share() < 0.13


def test_the_machines_own_drift_is_no_fault_of_a_neighbour_elsewhere() -> None:
    run, frozen_s = Run("model"), 0.0
    while run.at < 120.0:  # it becomes 8 % slower, and faster again, whatever the neighbour does
        at = run.at
        slow = 1.08 if at % 8 > 4 else 1.0
        plan = run.see(guaranteed(Reading(0.001 * slow)), neighbour(domains=frozenset({1})), domains=2)
        setting = plan.settings.get("flood", UNLIMITED)
        assert setting.share in (1, PROBE_SHARE)
        frozen_s += setting.frozen * (run.at - at)
    assert frozen_s < 0.02 * run.at, "what measuring costs it"


@pytest.mark.parametrize("loss", [0.06, 0.3])
def test_a_neighbour_elsewhere_that_does_disturb_is_found_out(loss: float) -> None:
    run = Run("model")
    for _ in range(300):
        setting = run.applied.get("flood", UNLIMITED)
        lost = 0.0 if setting.frozen else loss * 2 * setting.share
        away = neighbour(domains=frozenset({1}))
        controls = frozenset({Control.SHARE, Control.FREEZE})
        seen = tuple(replace(one, applied=setting if one is away else UNLIMITED) for one in (
            guaranteed(Reading(0.001 / (1 - lost))), away,
        ))  # fmt: skip
        plan, run.state = run.policy.step(replace(host(*seen, at=run.at, domains=2), controls=controls), run.state)
        run.applied = dict(plan.settings)
        run.at += plan.next_in_s
    assert run.share() < 0.7


def test_work_is_stopped_when_less_is_not_enough_and_comes_back_when_it_harms_no_longer() -> None:
    run, stopped = Run("model"), list[float]()
    while run.at < 12.0:  # nothing helps while it runs, whatever its share
        frozen, at = run.applied.get("flood", UNLIMITED).frozen, run.at
        plan = run.see(guaranteed(Reading(0.001 if frozen else 0.002)), neighbour(cores=2))
        if plan.settings["flood"].frozen and plan.reasons["flood"].code != "measuring":
            stopped.append(at)
    assert 0.1 < stopped[0] < 1.0, "once its share is at its floor"
    assert len(stopped) > 50, "then it runs in a tick now and then"
    while run.at < 40.0:
        run.see(guaranteed(Reading(0.001)), neighbour(cores=2))
    assert replace(run.applied.get("flood", UNLIMITED), frozen=False) == UNLIMITED


def test_after_a_time_without_guaranteed_work_groups_are_limited_from_all_of_their_share() -> None:
    run = Run("model")
    assert run.see(neighbour()).settings == {}
    run.see(guaranteed(Reading(0.001)), neighbour())
    assert run.share() == 1


def test_a_group_that_keeps_more_elsewhere_is_moved_not_throttled() -> None:
    run = Run("model")
    for _ in range(60):
        setting = run.applied.get("flood", UNLIMITED)
        away = setting.domains is not None and 0 not in setting.domains
        loss = 0.0 if setting.frozen or away else 0.6 * setting.share
        where = setting.domains or frozenset({0})
        run.see(guaranteed(Reading(0.001 / (1 - loss))), neighbour(domains=where), domains=2)
    assert run.applied["flood"].domains == {1}
    assert run.share() == 1


@pytest.mark.parametrize("gone", ["domain", "control"])
def test_a_group_that_was_moved_is_judged_anew_where_its_place_is_gone(gone: str) -> None:
    run = Run("model")
    while run.applied.get("flood", UNLIMITED).domains != {1} and run.at < 6.0:
        setting = run.applied.get("flood", UNLIMITED)
        loss = 0.0 if setting.frozen else 0.6 * setting.share
        run.see(guaranteed(Reading(0.001 / (1 - loss))), neighbour(domains=frozenset({0})), domains=2)
    assert run.applied["flood"].domains == {1}
    seen = host(guaranteed(Reading(0.001)), neighbour(), at=run.at, domains=1 if gone == "domain" else 2)
    if gone == "control":
        seen = replace(seen, controls=seen.controls - {Control.DOMAINS})
    plan, _ = run.policy.step(seen, run.state)
    assert plan.settings["flood"].domains is None
    assert plan.settings["flood"].share <= 0.1


@pytest.mark.parametrize(
    ("home", "sensor"),
    [
        ({"latency_ns": Reading(544.0), "alone_ns": Reading(272.0)}, Source.LATENCY),
        ({"latency_ns": Reading(544.0), "saturation": Reading(0.5)}, Source.LATENCY),
        ({"saturation": Reading(0.5), "bandwidth": Reading(20e9), "capacity": Reading(25e9)}, Source.SATURATION),
        ({"bandwidth": Reading(24e9), "capacity": Reading(25e9)}, Source.BANDWIDTH),
    ],
)
def test_without_a_step_time_the_next_best_sensor_is_believed(home: dict[str, Any], sensor: Source) -> None:
    seen = look(host(guaranteed(), neighbour(), **home), Watch(), Quiet(latency_ns={"0": 272.0}))
    assert seen.worst is not None
    assert seen.worst.sensor is sensor
    assert seen.worst.value > 1


@pytest.mark.parametrize(("now", "loss"), [(272.0, 0.0), (200.0, 0.0), (289.0, 0.0983), (544.0, 0.5), (5440.0, 0.9134)])
def test_the_loss_that_a_latency_means(now: float, loss: float) -> None:
    """The 0.8th power of what the latency grew by."""
    seen = look(host(guaranteed(), neighbour(), latency_ns=Reading(now), alone_ns=Reading(272.0)), Watch())
    assert seen.worst is not None
    assert seen.worst.loss == pytest.approx(loss, abs=0.0005)
    assert seen.worst.value == pytest.approx(seen.worst.loss / (1 - 1 / 1.05))


def test_a_move_that_cost_cores_is_undone_after_half_a_minute_to_see_whether_it_is_still_needed() -> None:
    run, places, codes = Run("model"), list[tuple[float, frozenset[int] | None]](), list[set[str]]()
    crowd = neighbour("crowd", cores=1, domains=frozenset({1}), cpus=Reading(0.0))
    while run.at < 40.0:
        setting = run.applied.get("flood", UNLIMITED)
        loss = 0.0 if setting.frozen or setting.domains or run.at > 5.0 else 0.9 * setting.share
        flood = neighbour(cores=2, domains=setting.domains or frozenset({0}))
        plan = run.see(guaranteed(Reading(0.001 / (1 - loss))), flood, crowd, domains=2)
        now = plan.settings.get("flood", UNLIMITED)
        if not places or places[-1][1] != now.domains:
            places.append((run.at, now.domains))
            assert now.domains is not None or now.share <= 0.1, "it starts low where it was found"
            reason = plan.reasons["flood"].as_json()
            codes.append({reason["code"], reason["facts"].get("then", {}).get("code")})
    assert [where for _, where in places] == [{1}, None]
    assert "moved" in codes[0]
    assert "returned" in codes[1]
    assert places[1][0] - places[0][0] == pytest.approx(30.0, abs=0.5)


def test_unknown_is_not_zero() -> None:
    seen = look(host(guaranteed(cpus=UNKNOWN), neighbour()), Watch())
    assert seen.worst is None
    assert seen.hold
    idle = look(host(guaranteed(cpus=Reading(0.0)), neighbour()), Watch())
    assert idle.worst is not None
    assert idle.worst.value == 0
    stale = look(host(guaranteed(Reading(0.001, age_s=60), cpus=UNKNOWN)), Watch())
    assert stale.worst is None


@given(
    sensitivity=st.dictionaries(st.sampled_from("abcd"), st.floats(LEAST_SENSITIVITY, 50), min_size=1),
    budget=st.floats(0.01, 5), floor=st.floats(0.001, 0.1), weight=st.floats(0.1, 10),
)  # fmt: skip
def test_shares_use_up_the_budget_and_no_more(
    sensitivity: dict[str, float], budget: float, floor: float, weight: float
) -> None:
    weights = {name: weight if name == "a" else 1.0 for name in sensitivity}
    shares = divide(budget, sensitivity, weights, dict.fromkeys(sensitivity, floor))
    assert set(shares) == set(sensitivity)
    assert all(floor <= share <= 1 for share in shares.values())
    spent = sum(sensitivity[name] * share for name, share in shares.items())
    if all(floor < share < 1 for share in shares.values()):
        assert spent == pytest.approx(budget)
    free = [name for name, share in shares.items() if floor < share < 1]
    charges = {sensitivity[name] * shares[name] / weights[name] for name in free}
    assert max(charges, default=0) == pytest.approx(min(charges, default=0)), "in proportion to weight"


@given(shares=st.dictionaries(st.sampled_from("abc"), st.floats(0.01, 1), min_size=1), true=st.floats(0.3, 20))
def test_what_is_observed_again_and_again_is_learnt(shares: dict[str, float], true: float) -> None:
    violation = sum(true * share for share in shares.values())
    known = Contention()
    for _ in range(40):
        known = known.observe(violation, shares)
    predicted = known.predict(shares)
    assert predicted == pytest.approx(violation, rel=0.01)


def test_noise_to_both_sides_moves_the_model_less_than_being_wrong() -> None:
    def after(violations: list[float]) -> float:
        known = Contention({"a": 8.0})
        for violation in violations:
            known = known.observe(violation, {"a": 0.1})
        return known.sensitivity["a"]

    noisy = after([0.8 + 0.25 * (-1) ** tick for tick in range(20)])
    wrong = after([0.55] * 20)
    assert noisy == pytest.approx(8.0, rel=0.15)  # a little too careful: what is too slow is acted on
    assert wrong == pytest.approx(5.5, rel=0.1)


def test_an_observation_far_beyond_the_usual_error_is_believed_at_once() -> None:
    known = Contention({"a": 1.0})
    for tick in range(20):
        known = known.observe(0.5 + 0.2 * (-1) ** tick, {"a": 0.5})
    assert known.observe(6.0, {"a": 0.5}).sensitivity["a"] == pytest.approx(12.0)
    assert known.observe(1.1, {"a": 0.5}).sensitivity["a"] < 1.6


def test_a_probe_is_believed() -> None:
    known = Contention({"flood": 60.0, "render": 3.0}).probed("flood", 0.98, 5.88).probed("render", 0.98, 0.4)
    assert known.sensitivity == {"flood": pytest.approx(6.0), "render": LEAST_SENSITIVITY}


def test_blame_goes_to_who_runs_with_a_share_that_explains_it() -> None:
    known = Contention({"flood": 0.4, "render": 28.0})
    for _ in range(3):
        known = known.observe(5.0, {"flood": 0.9, "render": 0.02})
    assert known.sensitivity["flood"] > 8 * 0.4
    assert known.sensitivity["render"] < 3 * 28.0


def test_a_policy_that_there_is_not_is_refused_with_those_there_are() -> None:
    with pytest.raises(Invalid, match="core-throttle"):
        make_policy("best")
    with pytest.raises(Invalid, match="no setting speed"):
        make_policy("model", speed=3)
    with pytest.raises(Invalid, match="between 0 and 1"):
        make_policy("static", share=7.0)


def test_a_group_that_is_unlimited_is_not_paused_to_be_tried_again() -> None:
    run, frozen = Run("model"), 0
    for _ in range(150):
        setting = run.applied.get("flood", UNLIMITED)
        run.see(guaranteed(Reading(0.001 / (1 - 0.03 * setting.share * (not setting.frozen)))), neighbour())
        frozen += run.applied.get("flood", UNLIMITED).frozen and not setting.frozen
    assert run.share() == 1
    assert run.at < 20, "before undisturbed is measured anew"
    assert frozen == 1, "the first pause"


def test_a_single_newcomer_has_all_its_share_as_soon_as_it_has_shown_that_it_does_no_harm() -> None:
    run, reached = Run("model"), None
    for _ in range(30):
        run.see(guaranteed(Reading(0.001)), neighbour())
        if run.share() == 1 and reached is None:
            reached = run.at
    assert reached is not None
    assert reached < 0.6


def test_a_probe_tells_a_share_at_once() -> None:
    """One that costs twice what is allowed goes from its slow start to its share in one step."""
    run, shares = Run("model"), []
    for _ in range(12):
        setting = run.applied.get("flood", UNLIMITED)
        run.see(guaranteed(Reading(0.001 / (1 - 0.095 * setting.share * (not setting.frozen)))), neighbour())
        shares.append(run.share())
    known = [share for share in shares if share > 0.2 and share != PROBE_SHARE]
    assert known[0] == pytest.approx(0.45, abs=0.05)
    assert len(set(known)) == 1


@pytest.mark.parametrize(("share", "cores", "below"), [(1.0, 4, 0.02), (1.0, 1, 0.02), (0.05, 2, 0.01), (0.1, 1, 0.01)])
def test_idle_means_one_thing(share: float, cores: int, below: float) -> None:
    assert idle_below(share, cores) == pytest.approx(below)
    state = GroupState(Group("a", PriorityClass.BEST_EFFORT), frozenset({0}), cores, applied=Setting(share=share))
    assert is_idle(replace(state, cpus=Reading(below * 0.9)))
    assert not is_idle(replace(state, cpus=Reading(below * 1.1)))


def test_what_is_seen_makes_a_sensitivity_more_certain() -> None:
    known = Contention().observe(2.0, {"a": 0.5, "b": 0.5})
    for _ in range(10):
        before = known.variance
        known = known.observe(2.0, {"a": 0.5})
    assert before
    assert known.variance["a"] < 1.0 < (1 + known.sensitivity["b"]) ** 2
    assert "b" not in known.variance, "it did not run"
