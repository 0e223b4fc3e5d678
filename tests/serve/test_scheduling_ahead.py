"""Sending ahead: a replica at a short execution gets the next one, which costs no slot and overtakes for no longer."""

from __future__ import annotations

import pytest

from shoal.core import NotFound, PriorityClass
from shoal.serve.scheduling import Batch, Item, Profiles, QueueSpec, Scheduler, make_scheduler


def busy(seconds: float, *, slots: int = 2, **more: object) -> tuple[Scheduler, Profiles]:
    """A device with a queue whose executions are known to take so long."""
    profiles = Profiles()
    scheduler = make_scheduler(slots=slots, profiles=profiles, ahead_s=0.002)
    scheduler.add_queue(QueueSpec("q", "a", executors=1, **more))  # type: ignore[arg-type]
    now = 0.0
    for number in range(100):
        scheduler.offer(Item(-number - 1, "q", now, float("inf")), now)
        (batch,) = scheduler.decide(now).batches
        now += seconds
        scheduler.finished(batch, now, seconds)
    return scheduler, profiles


def test_a_short_execution_is_followed_by_one_that_is_there_already() -> None:
    scheduler, profiles = busy(0.0005)
    before = profiles.of("q").expected_s(1)
    for number in range(4):
        scheduler.offer(Item(number, "q", 1.0, float("inf")), 1.0)
    first, second = scheduler.decide(1.0).batches
    assert [batch.items[0].number for batch in (first, second)] == [0, 1]
    assert scheduler.waiting() == 2
    scheduler.finished(first, 1.0005, 0.0005)
    (third,) = scheduler.decide(1.0005).batches
    scheduler.finished(second, 1.001, 0.0005)
    (fourth,) = scheduler.decide(1.001).batches
    scheduler.finished(third, 1.0015, 0.0005)
    scheduler.finished(fourth, 1.002, 0.0005)
    assert profiles.of("q").expected_s(1) == pytest.approx(before, rel=0.05)  # waiting there is no execution
    with pytest.raises(NotFound):
        scheduler.finished(fourth, 1.003, 0.0)


def test_what_is_sent_ahead_takes_no_slot_from_others() -> None:
    scheduler, _ = busy(0.0005)
    scheduler.add_queue(QueueSpec("other", "b", executors=1))
    for number in range(3):
        scheduler.offer(Item(number, "q", 1.0, float("inf")), 1.0)
    assert len(scheduler.decide(1.0).batches) == 2
    scheduler.offer(Item(9, "other", 1.0, float("inf")), 1.0)
    assert [batch.queue for batch in scheduler.decide(1.0).batches] == ["other"]


def test_one_slot_is_enough_if_nobody_else_is_owed_it() -> None:
    scheduler, _ = busy(0.0005, slots=1)
    for number in range(4):
        scheduler.offer(Item(number, "q", 1.0, float("inf")), 1.0)
    first, second = scheduler.decide(1.0).batches
    assert [batch.items[0].number for batch in (first, second)] == [0, 1]
    scheduler.finished(first, 1.0005, 0.0005)
    (third,) = scheduler.decide(1.0005).batches
    assert third.items[0].number == 2
    scheduler.finished(second, 1.001, 0.0005)
    scheduler.add_queue(QueueSpec("other", "b", executors=1))
    scheduler.offer(Item(9, "other", 1.001, float("inf")), 1.001)
    assert not scheduler.decide(1.001).batches  # it has the next turn
    scheduler.finished(third, 1.0015, 0.0005)
    assert [batch.queue for batch in scheduler.decide(1.0015).batches] == ["other"]


def test_what_is_sent_ahead_counts_towards_a_share() -> None:
    scheduler = make_scheduler("fair", slots=1, ahead_s=0.002)
    for queue, weight in (("a", 3.0), ("b", 1.0)):
        scheduler.add_queue(QueueSpec(queue, queue, weight=weight, executors=1))
    now, number, ahead, done = 0.0, 0, 0, {"a": 0, "b": 0}
    running: list[Batch] = []
    for _ in range(1000):
        for queue in ("a", "a", "b"):
            number += 1
            scheduler.offer(Item(number, queue, now, float("inf")), now)
        running += scheduler.decide(now).batches
        ahead += len(running) > 1
        batch = running.pop(0)
        now += 0.0005
        scheduler.finished(batch, now, 0.0005)
        done[batch.queue] += 1
    assert abs(done["a"] - 3 * done["b"]) <= 4
    assert ahead > 200


@pytest.mark.parametrize(
    ("seconds", "more"),
    [(0.01, {}), (0.0005, {"priority_class": PriorityClass.BEST_EFFORT}), (0.0005, {"steady": False})],
    ids=["long", "best-effort", "unsteady"],
)
def test_nothing_else_is_sent_ahead(seconds: float, more: dict[str, object]) -> None:
    scheduler, _ = busy(seconds, **more)
    for number in range(3):
        scheduler.offer(Item(number, "q", 2.0, float("inf")), 2.0)
    assert len(scheduler.decide(2.0).batches) == 1


def test_nothing_is_sent_behind_one_that_takes_long_after_all() -> None:
    scheduler, _ = busy(0.0005)
    scheduler.offer(Item(1, "q", 1.0, float("inf")), 1.0)
    assert len(scheduler.decide(1.0).batches) == 1
    scheduler.offer(Item(2, "q", 1.003, float("inf")), 1.003)
    assert not scheduler.decide(1.003).batches


def test_one_that_fails_before_its_turn_leaves_no_trace() -> None:
    scheduler, _ = busy(0.0005)
    for number in range(3):
        scheduler.offer(Item(number, "q", 1.0, float("inf")), 1.0)
    first, second = scheduler.decide(1.0).batches
    scheduler.finished(second, 1.0001, 0.0, ok=False)
    scheduler.finished(first, 1.0002, 0.0002, ok=False)
    (third,) = scheduler.decide(1.0002).batches
    assert third.items[0].number == 2
