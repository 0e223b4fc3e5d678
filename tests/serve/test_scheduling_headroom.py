"""Which best-effort executions a gap is lent to."""

from __future__ import annotations

from math import inf

import pytest
from simulated import affine, simulate

from shoal.base.arrivals import poisson
from shoal.core import PriorityClass
from shoal.serve.scheduling import Item, Profiles, QueueSpec, make_scheduler
from shoal.serve.scheduling.headroom import Headroom, ProtectedService, patience_s
from shoal.serve.scheduling.simulate import Stream

BEST_EFFORT = PriorityClass.BEST_EFFORT


@pytest.mark.parametrize(
    ("slots", "promises", "wants", "held", "used", "longest"),
    [
        (1, [], 1, [], 0.0, inf),
        (1, [(1, 0.01)], 1, [], 0.0, 0.01),
        (2, [(1, 0.01)], 1, [], 0.0, inf),
        (2, [(1, 0.01)], 2, [], 0.0, 0.01),
        (2, [(1, 0.01)], 1, [(0.5, 1)], 0.0, 0.01),
        (2, [(1, 0.01)], 1, [(0.005, 1)], 0.0, inf),
        (2, [(1, 0.01)], 1, [(0.01, 1)], 0.0, inf),
        (2, [(1, 0.01)], 1, [], 0.6, inf),
        (2, [(1, 0.01)], 1, [], 0.8, 0.01),
        (4, [(1, 0.01), (4, 0.2)], 1, [], 0.0, 0.2),
        (4, [(1, 0.01), (4, 0.2)], 1, [(0.1, 1)] * 3, 0.0, 0.01),
        (4, [(2, 0.2), (1, 0.5)], 2, [], 0.0, inf),
        (4, [(2, 0.2), (1, 0.5)], 3, [], 0.0, 0.2),
    ],
    ids=[
        "nothing is promised",
        "one slot: no longer than the patience",
        "of two slots one is kept",
        "both would be taken",
        "a long one runs already",
        "the other one ends soon enough",
        "the other one ends just when it must",
        "the kept slot suffices for what the guaranteed class uses",
        "it would be too full",
        "a patient but wide service",
        "three are lent to long ones",
        "two of four are kept",
        "three wide leaves too few",
    ],
)
def test_longest(slots, promises, wants, held, used, longest) -> None:  # type: ignore[no-untyped-def]
    headroom = Headroom(slots, [ProtectedService(f"s{at}", *each) for at, each in enumerate(promises)])
    assert headroom.longest_s(wants, held, used) == longest


def test_patience_is_half_of_what_the_objective_leaves() -> None:
    assert patience_s(0.03, 0.01) == pytest.approx(0.01)
    assert patience_s(0.01, 0.03) == 0.0


@pytest.mark.few(count=3)
@pytest.mark.parametrize("name", ["deadline", "fair"])
@pytest.mark.parametrize("slots", [1, 2, 3])
@pytest.mark.parametrize("best_effort_s", [0.002, 0.006, 0.05])
def test_promises_hold_beside_best_effort_work_that_never_ends(name: str, slots: int, best_effort_s: float) -> None:
    """Executions take exactly as long as always, so that every broken promise is the scheduler's doing."""
    scheduler = make_scheduler(name, slots=slots)
    service = Stream(
        QueueSpec("g/m", "g", slo_s=0.02, executors=slots), poisson(40 * slots, 6, seed=1), affine(0, 0.003)
    )
    filler = QueueSpec("b/m", "b", priority_class=BEST_EFFORT, executors=slots)
    arrivals = [at * best_effort_s / slots for at in range(int(6 * slots / best_effort_s))]
    for queue, seconds in (("g/m", 0.003), ("b/m", best_effort_s)):
        scheduler.profiles.prime(queue, [(1, seconds)] * 30)  # type: ignore[attr-defined]
    result = simulate(scheduler, [service, Stream(filler, arrivals, affine(0, best_effort_s), timeout_s=1.0)])
    assert result.queues["g/m"].in_time == len(service.arrivals)
    lent = result.queues["b/m"].device_s / (6 * slots)
    if slots == 1:
        assert (lent > 0.7) == (best_effort_s < 0.0085)
    else:
        assert lent > 0.3


def test_a_gap_is_filled_at_once_and_given_up_when_guaranteed_work_comes() -> None:
    profiles = Profiles()
    profiles.prime("g/m", [(1, 0.003)] * 20)
    profiles.prime("b/m", [(1, 0.005)] * 20)
    scheduler = make_scheduler("fair", slots=1, profiles=profiles)
    scheduler.add_queue(QueueSpec("g/m", "g", slo_s=0.03))
    scheduler.add_queue(QueueSpec("b/m", "b", priority_class=BEST_EFFORT))
    for number in (1, 2, 3):
        scheduler.offer(Item(number, "b/m", 0.0, inf), 0.0)
    (gap,) = scheduler.decide(0.0).batches
    assert gap.reason is not None
    assert gap.reason.code == "gap"
    scheduler.offer(Item(4, "g/m", 0.001, 0.031), 0.001)
    assert not scheduler.decide(0.001).batches
    scheduler.finished(gap, 0.005, 0.005)
    assert [batch.queue for batch in scheduler.decide(0.005).batches] == ["g/m"]


def test_work_that_could_never_get_a_gap_is_told_so() -> None:
    profiles = Profiles()
    profiles.prime("g/m", [(1, 0.004)] * 20)
    profiles.prime("b/m", [(1, 0.5)] * 20)
    for name in ("deadline", "fair"):
        scheduler = make_scheduler(name, slots=1, profiles=profiles)
        scheduler.add_queue(QueueSpec("g/m", "g", slo_s=0.02))
        scheduler.add_queue(QueueSpec("b/m", "b", priority_class=BEST_EFFORT))
        refused = scheduler.offer(Item(1, "b/m", 0.0, inf), 0.0)
        assert refused is not None
        assert refused.reason.code == "no-gap"
        assert refused.reason.text == (
            "one execution takes 0.5 s, and best-effort work may keep guaranteed services waiting for 0.008 s at most "
            "here"
        )
        facts = refused.reason.facts
        assert (facts["execution_s"], facts["promised_to"]) == (pytest.approx(0.5), "g/m")
        assert facts["patience_s"] == pytest.approx(0.008)
        scheduler.resize("g/m", 0)
        assert scheduler.offer(Item(2, "b/m", 0.0, inf), 0.0) is None


def test_a_bad_moment_does_not_keep_best_effort_work_out_for_ever() -> None:
    profiles = Profiles()
    profiles.prime("g/m", [(1, 0.004)] * 20)
    profiles.prime("b/m", [(1, 0.005)] * 20 + [(1, 0.05)] * 2)
    assert profiles.of("b/m").cautious_s(1) > 0.008 > profiles.of("b/m").expected_s(1)
    scheduler = make_scheduler(slots=1, profiles=profiles)
    scheduler.add_queue(QueueSpec("g/m", "g", slo_s=0.02))
    scheduler.add_queue(QueueSpec("b/m", "b", priority_class=BEST_EFFORT))
    scheduler.offer(Item(1, "b/m", 10.0, inf), 10.0)
    (probe,) = scheduler.decide(10.0).batches
    scheduler.finished(probe, 10.005, 0.005)
    scheduler.offer(Item(2, "b/m", 10.01, inf), 10.01)
    held_back = scheduler.decide(10.01)
    assert not held_back.batches
    assert held_back.wake_at is not None
    assert scheduler.decide(11.1).batches
