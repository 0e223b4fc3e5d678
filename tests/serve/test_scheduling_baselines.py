"""The scheduler that is there to compare with: one queue for all tenants; and what holds for every scheduler."""

from __future__ import annotations

import pytest

from shoal.core import PriorityClass
from shoal.serve.scheduling import SCHEDULERS, Batch, Item, Profiles, QueueSpec, Scheduler, make_scheduler


def offered(scheduler: Scheduler, queue: str, numbers: range, now: float = 0.0) -> None:
    for number in numbers:
        assert scheduler.offer(Item(number, queue, now, now + 100.0), now) is None


def started(scheduler: Scheduler, now: float = 0.0) -> Batch:
    (batch,) = scheduler.decide(now).batches
    return batch


@pytest.mark.parametrize("name", SCHEDULERS)
def test_every_scheduler_goes_by_the_times_that_it_was_given(name: str) -> None:
    profiles = Profiles()
    for _ in range(20):
        profiles.of("a/m").observe(1, 0.3)
    scheduler = make_scheduler(name, slots=1, profiles=profiles)
    scheduler.add_queue(QueueSpec("a/m", "a"))
    offered(scheduler, "a/m", range(1))
    assert started(scheduler).expected_s == pytest.approx(0.3)


def test_all_tenants_share_one_queue_whatever_their_weight_and_class() -> None:
    scheduler = make_scheduler("all-share", slots=1)
    scheduler.add_queue(QueueSpec("a/m", "a", weight=9.0))
    scheduler.add_queue(QueueSpec("b/m", "b", priority_class=PriorityClass.BEST_EFFORT))
    for number, queue in enumerate(["b/m", "a/m", "b/m", "a/m"]):
        offered(scheduler, queue, range(number, number + 1), now=float(number))
    for number in range(4):
        batch = started(scheduler, 4.0 + number)
        assert [item.number for item in batch.items] == [number]
        scheduler.finished(batch, 5.0 + number, 1.0)


def test_a_wide_execution_that_waits_for_slots_is_not_overtaken() -> None:
    scheduler = make_scheduler("all-share", slots=2)
    for tenant, slots in (("long", 1), ("wide", 2), ("short", 1)):
        scheduler.add_queue(QueueSpec(f"{tenant}/m", tenant, slots=slots))
    offered(scheduler, "long/m", range(1))
    first = started(scheduler)
    offered(scheduler, "wide/m", range(1, 2))
    offered(scheduler, "short/m", range(2, 3))
    assert scheduler.decide(0.0).batches == ()
    scheduler.finished(first, 0.5, 0.5)
    assert started(scheduler, 0.5).queue == "wide/m"


@pytest.mark.parametrize("name", SCHEDULERS)
def test_after_many_were_withdrawn_the_rest_is_started_in_order(name: str) -> None:
    scheduler = make_scheduler(name, slots=1)
    scheduler.add_queue(QueueSpec("a/m", "a", executors=1))
    items = [Item(number, "a/m", 200.0 - number / 10, 300.0 - number / 10) for number in range(100)]
    for item in items:
        assert scheduler.offer(item, 200.0) is None
    for item in items:
        if item.number % 10:
            assert scheduler.withdraw(item)
    left = []
    for at in range(10):
        batch = started(scheduler, 201.0 + at)
        left += [item.number for item in batch.items]
        scheduler.finished(batch, 201.5 + at, 0.5)
    assert left == [*range(90, -1, -10)]
