"""The default scheduler: deadlines inside shares, early refusal, and what is given up."""

from __future__ import annotations

from collections import Counter
from math import inf

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from simulated import affine, simulate

from shoal.core import PriorityClass
from shoal.serve.scheduling import Batch, DeadlineScheduler, Item, Profiles, QueueSpec, Rejection
from shoal.serve.scheduling.queues import USE_MEMORY_S, PriorityLevel, Queue
from shoal.serve.scheduling.simulate import Stream

from .oracle_edf import all_can_be_in_time, completions


def scheduler_of(executions_s: dict[str, float], *, slots: int = 1, **specs: QueueSpec) -> DeadlineScheduler:
    """Queues whose executions are known to take exactly so long, each of the tenant named before the slash."""
    profiles = Profiles()
    for key, seconds in executions_s.items():
        profiles.prime(key, [(1, seconds)] * 30)
    scheduler = DeadlineScheduler(slots, profiles)
    for key in executions_s:
        scheduler.add_queue(specs.get(key.replace("/", "_"), QueueSpec(key, key.partition("/")[0])))
    return scheduler


class OpenDoor(DeadlineScheduler):
    """Takes everything, to look at the order alone."""

    def _refuse(self, queue: Queue, item: Item, now: float) -> Rejection | None:
        return None


@settings(max_examples=150, deadline=None)
@given(jobs=st.lists(st.tuples(st.sampled_from([1, 2, 3, 5]), st.integers(1, 16)), min_size=1, max_size=6))
@example(jobs=[(5, 16), (1, 2), (2, 3)])
def test_meets_all_deadlines_whenever_an_order_exists_that_does(jobs: list[tuple[int, int]]) -> None:
    profiles = Profiles()
    for seconds in (1, 2, 3, 5):
        profiles.prime(f"a/{seconds}", [(1, float(seconds))] * 30)
    scheduler = OpenDoor(1, profiles)
    for seconds in (1, 2, 3, 5):
        scheduler.add_queue(QueueSpec(f"a/{seconds}", "a"))
    for number, (seconds, deadline) in enumerate(jobs):
        scheduler.offer(Item(number, f"a/{seconds}", 0.0, float(deadline)), 0.0)
    now, late, dropped = 0.0, 0, 0
    while scheduler.waiting():
        decision = scheduler.decide(now)
        dropped += len(decision.rejected)
        for batch in decision.batches:
            seconds = float(batch.queue.removeprefix("a/"))
            now += seconds
            late += any(now > item.deadline + 1e-9 for item in batch.items)
            scheduler.finished(batch, now, seconds)
    assert late == 0
    assert (dropped == 0) >= all_can_be_in_time(jobs)


@settings(max_examples=80, deadline=None)
@given(
    gaps=st.lists(st.sampled_from([0.0, 0.001, 0.004, 0.011, 0.05]), min_size=1, max_size=60),
    within_s=st.sampled_from([0.0113, 0.0253, 0.0803]),
)
def test_refuses_exactly_what_one_slot_cannot_complete_in_time(gaps: list[float], within_s: float) -> None:
    arrivals, now = [], 0.0
    for gap in gaps:
        now += gap
        arrivals.append(now)
    stream = Stream(QueueSpec("a/m", "a", slo_s=within_s), arrivals, affine(0.0, 0.01))
    scheduler = scheduler_of({"a/m": 0.01}, a_m=stream.spec)
    outcome = simulate(scheduler, [stream]).queues["a/m"]
    ends = completions(arrivals, 0.01, within_s)
    latencies = [end - at for end, at in zip(ends, arrivals, strict=True) if end is not None]
    assert outcome.latencies_s == pytest.approx(latencies)
    assert (outcome.in_time, outcome.dropped, outcome.refused) == (len(outcome.latencies_s), 0, ends.count(None))


def test_a_refusal_says_why_and_when_it_would_be_taken() -> None:
    scheduler = scheduler_of({"a/m": 0.01})
    for number in range(3):
        assert scheduler.offer(Item(number, "a/m", 0.0, 0.035), 0.0) is None
        scheduler.decide(0.0)
    refused = scheduler.offer(Item(9, "a/m", 0.0, 0.035), 0.0)
    assert refused is not None
    assert refused.reason.code == "deadline"
    assert "it would be done in" in refused.reason.text
    assert "wanted in 0.035 s" in refused.reason.text
    assert refused.reason.facts["execution_s"] == pytest.approx(0.01)


@pytest.mark.parametrize("within_s", [0.012, 0.03, 0.1])
@pytest.mark.parametrize("slots", [1, 3])
def test_whoever_asks_again_as_told_is_taken(within_s: float, slots: int) -> None:
    spec = QueueSpec("a/m", "a", executors=slots)
    scheduler = scheduler_of({"a/m": 0.01}, slots=slots, a_m=spec)
    running: list[tuple[float, Batch]] = []

    def decide(now: float) -> None:
        running.extend((now + 0.01, batch) for batch in scheduler.decide(now).batches)

    refused, number = None, 0
    while refused is None:
        number += 1
        refused = scheduler.offer(Item(number, "a/m", 0.0, within_s), 0.0)
        decide(0.0)
    assert number == slots * int(within_s / 0.01) + 1
    again_at = refused.retry_after_s + 1e-6
    while running and running[0][0] <= again_at:
        now, batch = running.pop(0)
        scheduler.finished(batch, now, 0.01)
        decide(now)
    assert scheduler.offer(Item(number + 1, "a/m", again_at, again_at + within_s), again_at) is None


def test_an_unknown_model_is_let_in_and_learned() -> None:
    scheduler = DeadlineScheduler(1)
    scheduler.add_queue(QueueSpec("a/m", "a", slo_s=0.001))
    assert scheduler.offer(Item(1, "a/m", 0.0, 0.001), 0.0) is None
    assert scheduler.decide(0.0).batches


@settings(max_examples=60, deadline=None)
@given(
    measured=st.lists(st.floats(0.0001, 100.0), max_size=150),
    within_s=st.floats(0.0001, 10.0),
    best=st.sampled_from(PriorityClass),
)
def test_an_idle_device_tries_whatever_might_be_in_time(
    measured: list[float], within_s: float, best: PriorityClass
) -> None:
    """Only what took longer each time of at least twenty within the last minute may be refused."""
    scheduler = DeadlineScheduler(1)
    scheduler.add_queue(QueueSpec("a/m", "a", priority_class=best))
    scheduler.profiles.prime("a/m", [(1, 1.0), *((1, seconds) for seconds in measured)], 5.0)
    scheduler.offer(Item(0, "a/m", 5.0, inf), 5.0)
    scheduler.finished(scheduler.decide(5.0).batches[0], 5.0, 1.0)
    taken = scheduler.offer(Item(1, "a/m", 5.0, 5.0 + within_s), 5.0) is None
    if taken:
        scheduler.finished(scheduler.decide(5.0).batches[0], 6.0, 1.0)
    elif min(measured[-127:]) <= within_s / 4:
        raise AssertionError("it could have been in time")
    assert taken or len(measured) >= 18
    assert scheduler.offer(Item(2, "a/m", 7.0, 6.9), 7.0) is not None
    assert scheduler.offer(Item(3, "a/m", 66.1, 66.1 + within_s), 66.1) is None  # all of that is long ago


def test_what_is_always_too_slow_is_tried_in_a_small_part_of_the_time_and_taken_again_when_it_got_faster() -> None:
    arrivals = [at / 20 for at in range(800)]
    works = [(1.0, 0.5 if at < 20 else 0.005) for at in arrivals]
    other = Stream(QueueSpec("b/m", "b"), [at / 100 for at in range(4000)], affine(0.0, 0.009))
    one = Stream(QueueSpec("a/m", "a", slo_s=0.1), arrivals, affine(0.0, 0.0), works=works)
    for beside in ([other], []):
        result = simulate(scheduler_of({"a/m": 0.5, "b/m": 0.009}), [one, *beside])
        tried = [span.start_s for span in result.timeline if span.queue == "a/m" and span.start_s < 20]
        assert 1 <= len(tried) <= 4
        again = [end for end in result.ended_s["a/m"][-400:] if end == end]
        assert len(again) > 400 - 20 * 10 - 100 * bool(beside)
        assert len([end for end in again if end > 35]) >= 0.9 * 100


def test_a_busy_device_takes_what_is_nearly_sure_and_a_calm_one_what_may_be() -> None:
    """One execution in five takes ten times as long; the request would wait for a short one."""
    for busy_s, taken in ((0.0, True), (20.0, False)):
        scheduler = scheduler_of({"a/m": 0.01, "b/m": 0.02})
        scheduler.profiles.prime("a/m", [(1, seconds) for seconds in [0.01] * 4 + [0.1]] * 25)
        if busy_s:
            scheduler.offer(Item(1, "b/m", 0.0, inf), 0.0)
            scheduler.finished(scheduler.decide(0.0).batches[0], busy_s, 0.02)
        scheduler.offer(Item(2, "b/m", busy_s, inf), busy_s)
        assert scheduler.decide(busy_s).batches
        assert (scheduler.offer(Item(3, "a/m", busy_s, busy_s + 0.11), busy_s) is None) is taken


def test_what_became_late_is_dropped_before_it_costs_anything() -> None:
    scheduler = scheduler_of({"a/m": 0.01})
    for number in range(3):
        scheduler.offer(Item(number, "a/m", 0.0, 0.04), 0.0)
    (batch,) = scheduler.decide(0.0).batches
    scheduler.finished(batch, 0.035, 0.01)
    decision = scheduler.decide(0.035)
    assert not decision.batches
    assert [each.reason.code for each in decision.rejected] == ["late", "late"]
    assert scheduler.waiting() == 0


def test_a_head_that_would_keep_batches_small_is_dropped_early() -> None:
    profiles = Profiles()
    profiles.prime("a/m", [(samples, 0.01 + 0.001 * samples) for samples in (1, 8, 16)] * 10)
    scheduler = OpenDoor(1, profiles)
    scheduler.add_queue(QueueSpec("a/m", "a", max_batch=16))
    scheduler.offer(Item(0, "a/m", 0.0, 0.012), 0.0)
    for number in range(1, 21):
        scheduler.offer(Item(number, "a/m", 0.0, 0.2), 0.0)
    decision = scheduler.decide(0.0)
    assert [each.item.number for each in decision.rejected] == [0]
    assert decision.rejected[0].reason.code == "early-drop"
    assert decision.batches[0].samples == 16


def test_a_batch_grows_only_as_far_as_its_most_urgent_request_allows() -> None:
    profiles = Profiles()
    profiles.prime("a/m", [(samples, 0.01 + 0.001 * samples) for samples in (1, 8, 16)] * 10)
    scheduler = OpenDoor(1, profiles)
    scheduler.add_queue(QueueSpec("a/m", "a", max_batch=16))
    for number, deadline in enumerate([0.0225] + [0.2] * 14):
        scheduler.offer(Item(number, "a/m", 0.0, deadline), 0.0)
    (batch,) = scheduler.decide(0.0).batches
    assert batch.samples == 12
    assert batch.items[0].number == 0


def test_only_alike_requests_share_a_batch() -> None:
    profiles = Profiles()
    profiles.prime("a/m", [(samples, 0.01 + 0.001 * samples) for samples in (1, 8, 16)] * 10)
    scheduler = DeadlineScheduler(1, profiles)
    scheduler.add_queue(QueueSpec("a/m", "a", max_batch=16))
    for number in range(8):
        scheduler.offer(Item(number, "a/m", 0.0, inf, batch_key=number % 2), 0.0)
    (batch,) = scheduler.decide(0.0).batches
    assert [item.number for item in batch.items] == [0, 2, 4, 6]


def test_inside_their_shares_the_more_urgent_tenant_goes_first() -> None:
    scheduler = scheduler_of({"loose/m": 0.01, "tight/m": 0.01})
    scheduler.offer(Item(1, "loose/m", 0.0, 5.0), 0.0)
    scheduler.offer(Item(2, "tight/m", 0.0, 0.05), 0.0)
    (batch,) = scheduler.decide(0.0).batches
    assert batch.queue == "tight/m"


def test_when_not_all_can_be_in_time_the_one_that_used_least_wins() -> None:
    scheduler = scheduler_of({"much/m": 0.01, "little/m": 0.01})
    now = 0.0
    for number in range(3):
        scheduler.offer(Item(number, "much/m", now, now + 1.0), now)
        (batch,) = scheduler.decide(now).batches
        now += 0.01
        scheduler.finished(batch, now, 0.01)
    scheduler.offer(Item(10, "much/m", now, now + 0.012), now)
    scheduler.offer(Item(11, "little/m", now, now + 0.013), now)
    (batch,) = scheduler.decide(now).batches
    assert batch.queue == "little/m"


def far_over_its_share() -> tuple[DeadlineScheduler, float]:
    """`much` alone used a device of which half is `little`'s; and what time it is now."""
    scheduler = scheduler_of({"much/m": 0.01, "little/m": 0.01})
    now = 0.0
    for number in range(40):
        scheduler.offer(Item(number, "much/m", now, now + 1.0), now)
        (batch,) = scheduler.decide(now).batches
        now += 0.01
        scheduler.finished(batch, now, 0.01)
    return scheduler, now


@pytest.mark.parametrize(
    ("waited_s", "wanted_within_s", "first"),
    [
        (0.0, 0.2, "much/m"),  # little's request can wait for one of 10 ms
        (0.07, 0.2, "much/m"),
        (0.11, 0.2, "little/m"),  # half of its time would be gone
        (0.0, 5.0, "much/m"),
        (0.13, 5.0, "little/m"),  # much time is no reason to wait for long
        (0.13, inf, "little/m"),
    ],
)
def test_a_tenant_over_its_share_goes_first_only_where_that_harms_nobody(
    waited_s: float, wanted_within_s: float, first: str
) -> None:
    scheduler, now = far_over_its_share()
    scheduler.offer(Item(100, "little/m", now - waited_s, now - waited_s + wanted_within_s), now)
    scheduler.offer(Item(101, "much/m", now, now + 0.05), now)
    (batch,) = scheduler.decide(now).batches
    assert batch.queue == first
    assert batch.reason is not None
    assert batch.reason.code == ("urgent" if first == "much/m" else "owed")


def test_nothing_that_may_arrive_for_others_is_reckoned_before_what_a_tenant_is_owed() -> None:
    scheduler = scheduler_of({"much/m": 0.01, "little/m": 0.01})
    now = 0.0
    for number, queue in enumerate(["much/m"] * 20 + ["little/m"] * 5 + ["much/m"] * 20):
        scheduler.offer(Item(number, queue, now, now + 1.0), now)
        (batch,) = scheduler.decide(now).batches
        now += 0.01
        scheduler.finished(batch, now, 0.01)
    scheduler.offer(Item(100, "much/m", now, now + 5.0), now)
    for number in range(101, 105):
        assert scheduler.offer(Item(number, "little/m", now, now + 0.045), now) is None
    refused = scheduler.offer(Item(105, "little/m", now, now + 0.046), now)
    assert refused is not None
    assert refused.reason.facts["wait_s"] == pytest.approx(0.04)


def test_of_two_over_their_shares_the_one_not_chosen_is_still_known_to_be_urgent() -> None:
    scheduler = scheduler_of({f"{name}/m": 0.01 for name in ("one", "two", "little")})
    now = 0.0
    for number in range(40):
        for name in ("one", "two"):
            scheduler.offer(Item(2 * number + (name == "two"), f"{name}/m", now, now + 1.0), now)
        for _ in range(2):
            (batch,) = scheduler.decide(now).batches
            now += 0.01
            scheduler.finished(batch, now, 0.01)
    scheduler.offer(Item(100, "little/m", now, now + 5.0), now)
    scheduler.offer(Item(101, "one/m", now, now + 0.06), now)
    scheduler.offer(Item(102, "two/m", now, now + 0.05), now)
    order = []
    for _ in range(3):
        (batch,) = scheduler.decide(now).batches
        order.append(batch.queue)
        now += 0.01
        scheduler.finished(batch, now, 0.01)
    assert order == ["two/m", "one/m", "little/m"]


def test_best_effort_requests_reckon_with_the_guaranteed_ones() -> None:
    scheduler = scheduler_of(
        {"g/m": 0.01, "b/m": 0.001},
        g_m=QueueSpec("g/m", "g"),
        b_m=QueueSpec("b/m", "b", priority_class=PriorityClass.BEST_EFFORT),
    )
    for number in range(20):
        scheduler.offer(Item(number, "g/m", 0.0, inf), 0.0)
    refused = scheduler.offer(Item(50, "b/m", 0.0, 0.1), 0.0)
    assert refused is not None
    assert refused.reason.facts["wait_s"] >= 0.2
    assert scheduler.offer(Item(51, "b/m", 0.0, 1.0), 0.0) is None


def test_every_execution_says_why_it_was_started() -> None:
    scheduler = scheduler_of({"a/m": 0.01, "b/m": 0.01})
    codes: Counter[str] = Counter()
    for number in range(20):
        scheduler.offer(Item(number, "ab"[number % 2] + "/m", 0.0, 1.0 + (number % 3)), 0.0)
    now = 0.0
    while scheduler.waiting():
        (batch,) = scheduler.decide(now).batches
        assert batch.reason is not None
        codes[batch.reason.code] += 1
        now += 0.01
        scheduler.finished(batch, now, 0.01)
    assert set(codes) == {"urgent", "owed"}


def test_for_how_long_answers_are_wanted_follows_what_is_asked_for() -> None:
    level = PriorityLevel(best_effort=False)
    level.asked(0.1, 0.01)
    level.asked(0.3, USE_MEMORY_S / 2)
    assert level.patience_s == pytest.approx(0.2)
    level.asked(0.05, 10 * USE_MEMORY_S)
    assert level.patience_s == pytest.approx(0.05)


def test_a_free_slot_of_several_is_not_waited_for() -> None:
    scheduler = scheduler_of({"a/long": 1.0, "b/short": 0.1}, slots=2)
    assert scheduler.offer(Item(0, "a/long", 0.0, inf), 0.0) is None
    assert len(scheduler.decide(0.0).batches) == 1
    for number in (1, 2):  # the first one may be let in just to see
        assert scheduler.offer(Item(number, "b/short", 0.0, 0.3), 0.0) is None


@pytest.mark.parametrize(("within_s", "taken"), [(2.5, False), (3.5, True)])
def test_requests_of_one_executor_follow_each_other_however_many_slots_there_are(within_s: float, taken: bool) -> None:
    scheduler = scheduler_of({"a/m": 1.0}, slots=4)
    for number, within in enumerate((1.5, 2.2)):
        assert scheduler.offer(Item(number, "a/m", 0.0, within), 0.0) is None
    refused = scheduler.offer(Item(2, "a/m", 0.0, within_s), 0.0)
    assert (refused is None) == taken
    if refused is not None:
        assert f"and is wanted in {within_s:.3g} s" in refused.reason.text
        assert refused.reason.facts["wanted_in_s"] == within_s
