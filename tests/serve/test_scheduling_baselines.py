"""The schedulers that are there to compare with: one queue for all tenants, and Clipper's batches."""

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


class Clipper:
    """One queue whose executions take what the test says."""

    def __init__(self, slo_s: float | None, max_batch: int = 8) -> None:
        self.scheduler = make_scheduler("aimd", slots=1)
        self.scheduler.add_queue(QueueSpec("a/m", "a", slo_s=slo_s, max_batch=max_batch))
        offered(self.scheduler, "a/m", range(1000))
        self.now = 0.0

    def batch(self, took_s: float, *, ok: bool = True) -> int:
        batch = started(self.scheduler, self.now)
        self.now += took_s
        self.scheduler.finished(batch, self.now, took_s, ok)
        return batch.samples


def test_clippers_batches_grow_by_one_while_they_keep_the_objective_up_to_the_largest() -> None:
    clipper = Clipper(1.0, max_batch=4)
    assert [clipper.batch(1.0) for _ in range(6)] == [1, 2, 3, 4, 4, 4]


def test_clippers_batches_shrink_by_a_tenth_but_never_to_nothing() -> None:
    clipper = Clipper(1.0, max_batch=20)
    assert [clipper.batch(1.0) for _ in range(10)] == [*range(1, 11)]
    assert [clipper.batch(2.0) for _ in range(3)] == [11, 9, 8]  # 11, 9.9 and 8.91
    for _ in range(40):
        clipper.batch(2.0)
    assert [clipper.batch(1.0) for _ in range(3)] == [1, 2, 3]


def test_what_failed_says_nothing_about_clippers_batches() -> None:
    clipper = Clipper(1.0)
    assert [clipper.batch(0.1, ok=False) for _ in range(3)] == [1, 1, 1]


def test_a_batch_that_is_not_full_does_not_make_clippers_larger() -> None:
    scheduler = make_scheduler("aimd", slots=1)
    scheduler.add_queue(QueueSpec("a/m", "a", slo_s=1.0, max_batch=8))
    sizes = []
    for number, waiting in enumerate([1, 1, 1, 3, 3, 3]):
        offered(scheduler, "a/m", range(10 * number, 10 * number + waiting), float(number))
        batch = started(scheduler, float(number))
        for left in range(10 * number, 10 * number + waiting):
            scheduler.withdraw(Item(left, "a/m", float(number), 200.0))
        scheduler.finished(batch, float(number) + 0.5, 0.5)
        sizes.append(batch.samples)
    assert sizes == [1, 1, 1, 2, 3, 3]


def test_without_an_objective_clippers_batches_are_full() -> None:
    clipper = Clipper(None)
    assert [clipper.batch(1.0) for _ in range(2)] == [8, 8]


def test_each_queue_has_a_batch_size_of_its_own() -> None:
    clipper = Clipper(1.0)
    assert [clipper.batch(0.1) for _ in range(3)] == [1, 2, 3]
    clipper.scheduler.add_queue(QueueSpec("b/m", "b", slo_s=1.0, max_batch=8))
    clipper.scheduler.remove_queue("a/m")
    offered(clipper.scheduler, "b/m", range(2000, 2010), clipper.now)
    assert clipper.batch(0.1) == 1


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
