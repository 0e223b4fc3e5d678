"""What holds for every scheduler, whatever is done to it."""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.core import Conflict, Invalid, NotFound, PriorityClass
from shoal.serve.scheduling import SCHEDULERS, Batch, Item, QueueSpec, make_scheduler

from .oracle_referee import Referee

SPECS = st.builds(
    lambda tenant, model, weight, best_effort, max_batch, slots, executors, slo: QueueSpec(
        f"{tenant}/{model}",
        tenant,
        weight,
        PriorityClass.BEST_EFFORT if best_effort else PriorityClass.GUARANTEED,
        max_batch,
        slots,
        executors,
        slo,
    ),
    st.sampled_from("abc"),
    st.sampled_from("mn"),
    st.sampled_from([0.5, 1.0, 3.0]),
    st.booleans(),
    st.sampled_from([1, 1, 4]),
    st.sampled_from([1, 1, 1, 2]),
    st.integers(0, 3),
    st.sampled_from([None, 0.05, 1.0]),
)

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("offer"), st.integers(0, 5), st.sampled_from([0.01, 0.1, inf]), st.sampled_from([1, 2, 6])),
        st.tuples(st.just("advance"), st.sampled_from([0.0005, 0.003, 0.02, 0.2])),
        st.tuples(st.just("withdraw"), st.integers(0, 60)),
        st.tuples(st.just("resize"), st.integers(0, 5), st.integers(0, 3)),
        st.tuples(st.just("remove"), st.integers(0, 5)),
        st.tuples(st.just("add"), SPECS),
    ),
    min_size=15,
    max_size=80,
)


class Walk:
    """Drives a scheduler through random steps; executions take a time of their own."""

    def __init__(self, name: str, slots: int, specs: list[QueueSpec]) -> None:
        self.referee = Referee(make_scheduler(name, slots=slots), slots)
        self.now = 0.0
        self.wake_at: float | None = None
        self.offered: list[Item] = []
        self.ends: list[tuple[float, int, Batch, float]] = []
        for spec in specs:
            self.referee.add_queue(spec)

    def queues(self) -> list[str]:
        return sorted(self.referee.queues)

    def decide(self) -> None:
        decision = self.referee.decide(self.now)
        self.wake_at = decision.wake_at
        for batch in decision.batches:
            took_s = 0.002 + 0.001 * batch.samples + 0.013 * (batch.number % 7 == 0)
            heappush(self.ends, (self.now + took_s, batch.number, batch, took_s))

    def advance(self, until: float) -> None:
        while True:
            due = min(self.ends[0][0] if self.ends else inf, inf if self.wake_at is None else self.wake_at)
            if due > until:
                self.now = max(self.now, min(until, 1e9))
                return
            self.now = max(self.now, due)
            if self.ends and self.ends[0][0] <= self.now:
                _, number, batch, took_s = heappop(self.ends)
                self.referee.finished(batch, self.now, took_s, ok=number % 5 != 0)
            self.decide()

    def step(self, step: tuple) -> None:  # type: ignore[type-arg]
        keys = self.queues()
        match step:
            case ("offer", at, wanted_s, samples) if keys:
                number = len(self.offered) + 1
                item = Item(number, keys[at % len(keys)], self.now, self.now + wanted_s, samples, number % 3 == 0)
                self.offered.append(item)
                self.referee.offer(item, self.now)
            case ("advance", seconds):
                self.advance(self.now + seconds)
            case ("withdraw", at) if self.offered:
                self.referee.withdraw(self.offered[at % len(self.offered)])
            case ("resize", at, executors) if keys:
                self.referee.resize(keys[at % len(keys)], executors)
            case ("remove", at) if len(keys) > 1:
                self.referee.remove_queue(keys[at % len(keys)])
            case ("add", spec) if spec.slots <= self.referee.slots:
                self.referee.add_queue(spec)
        self.decide()


@pytest.mark.few(count=2)
@pytest.mark.parametrize("name", SCHEDULERS)
@settings(max_examples=60, deadline=None)
@given(slots=st.integers(1, 3), specs=st.lists(SPECS, min_size=1, max_size=5), steps=STEPS)
def test_no_request_is_lost_or_doubled_and_no_limit_is_broken(name, slots, specs, steps) -> None:  # type: ignore[no-untyped-def]
    walk = Walk(name, slots, [spec for spec in specs if spec.slots <= slots])
    for step in steps:
        walk.step(step)
    drain(walk)


def drain(walk: Walk) -> None:
    """Everybody gets executors; then all that was offered has exactly one end."""
    for key in walk.queues():
        spec = walk.referee.queues[key].spec
        if spec.priority_class is PriorityClass.BEST_EFFORT:  # promises may keep it waiting for ever: see head-room
            walk.referee.remove_queue(key)
        else:
            walk.referee.resize(key, 2)
    walk.decide()
    walk.advance(walk.now + 1e6)
    assert walk.referee.waiting() == 0
    assert len(walk.referee.ended) == len(walk.offered)


@pytest.mark.few(count=8)
@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize("seed", range(8))
def test_nor_in_long_random_walks(name: str, seed: int) -> None:
    random = Random(seed)
    slots = random.randint(1, 4)

    def spec() -> QueueSpec:
        tenant, model = random.choice("abcd"), random.choice("mn")
        return QueueSpec(
            f"{tenant}/{model}",
            tenant,
            random.choice([0.5, 1.0, 3.0]),
            random.choice(list(PriorityClass)),
            random.choice([1, 1, 4, 16]),
            random.randint(1, slots),
            random.randint(0, 3),
            random.choice([None, 0.05, 1.0]),
        )

    walk = Walk(name, slots, [spec() for _ in range(6)])
    for _ in range(800):
        kind = random.choices(["offer", "advance", "withdraw", "resize", "remove", "add"], [60, 30, 8, 4, 1, 2])[0]
        at = random.randrange(1000)
        wanted_s = random.choice([0.01, 0.1, inf])
        walk.step(
            {
                "offer": ("offer", at, wanted_s, random.choice([1, 1, 2, 6])),
                "advance": ("advance", random.choice([0.0005, 0.003, 0.02])),
                "withdraw": ("withdraw", at),
                "resize": ("resize", at, random.randint(0, 3)),
                "remove": ("remove", at),
                "add": ("add", spec()),
            }[kind]
        )
    drain(walk)


@pytest.mark.parametrize("name", SCHEDULERS)
@settings(max_examples=30, deadline=None)
@given(
    gaps=st.lists(st.sampled_from([0.0, 0.0005, 0.004]), min_size=1, max_size=60),
    withdrawn=st.sets(st.integers(0, 59)),
)
def test_equal_requests_of_a_queue_are_served_in_order(name, gaps, withdrawn) -> None:  # type: ignore[no-untyped-def]
    walk = Walk(name, 1, [QueueSpec("a/m", "a", max_batch=4)])
    for at, gap in enumerate(gaps):
        walk.advance(walk.now + gap)
        item = Item(at, "a/m", walk.now, walk.now + 10.0)
        walk.offered.append(item)
        walk.referee.offer(item, walk.now)
        if at in withdrawn:
            walk.referee.withdraw(item)
        walk.decide()
    walk.advance(walk.now + 100.0)
    served = [item.number for item in walk.referee.order]
    assert served == sorted(served)
    assert len(served) + len(withdrawn & set(range(len(gaps)))) >= len(gaps)


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_wide_execution_is_not_starved_by_narrow_ones(name: str) -> None:
    walk = Walk(name, 4, [QueueSpec("wide", "a", slots=4), QueueSpec("narrow", "b", executors=4)])
    number = 0
    for step in range(400):
        number += 1
        key = "wide" if step % 20 == 19 else "narrow"
        walk.step(("advance", 0.0015))
        walk.referee.offer(Item(number, key, walk.now, walk.now + 50.0), walk.now)
        walk.decide()
    started = {item.number for item in walk.referee.order}
    assert not [each for each in range(20, number - 100, 20) if each not in started]


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_queue_without_executors_starts_nothing_until_it_has_one(name: str) -> None:
    walk = Walk(name, 1, [QueueSpec("a/m", "a", executors=0)])
    walk.referee.offer(Item(1, "a/m", 0.0, 5.0), 0.0)
    walk.decide()
    assert not walk.ends
    walk.referee.resize("a/m", 1)
    walk.decide()
    assert len(walk.ends) == 1


@pytest.mark.parametrize("name", SCHEDULERS)
def test_new_settings_of_a_queue_leave_what_waits(name: str) -> None:
    walk = Walk(name, 1, [QueueSpec("a/m", "a", executors=0)])
    for number in range(3):
        walk.referee.offer(Item(number, "a/m", 0.0, 5.0), 0.0)
    walk.referee.add_queue(QueueSpec("a/m", "b", weight=2.0, max_batch=8, executors=1))
    walk.decide()
    walk.advance(1.0)
    assert sorted(item.number for item in walk.referee.order) == [0, 1, 2]


def test_refuses_what_it_does_not_know_and_says_what_to_do() -> None:
    with pytest.raises(Invalid, match=r"there is no scheduler called 'lottery'.*one of deadline, fair"):
        make_scheduler("lottery", slots=1)
    with pytest.raises(Invalid, match="at least one compute slot"):
        make_scheduler(slots=0)
    scheduler = make_scheduler(slots=2)
    with pytest.raises(Invalid, match="a/m: an execution needs 3 compute slots, the device has 2"):
        scheduler.add_queue(QueueSpec("a/m", "a", slots=3))
    with pytest.raises(Invalid, match="a weight must be positive"):
        scheduler.add_queue(QueueSpec("a/m", "a", weight=0.0))
    for call in (
        lambda: scheduler.offer(Item(1, "x", 0.0, 1.0), 0.0),
        lambda: scheduler.resize("x", 1),
        lambda: scheduler.remove_queue("x"),
        lambda: scheduler.finished(Batch(1, "x", (), 0.1), 0.0, 0.1),
    ):
        with pytest.raises(NotFound):
            call()
    assert scheduler.withdraw(Item(1, "x", 0.0, 1.0)) is False


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_doubled_offer_or_end_is_an_error(name: str) -> None:
    scheduler = make_scheduler(name, slots=1)
    scheduler.add_queue(QueueSpec("a/m", "a"))
    scheduler.offer(Item(1, "a/m", 0.0, 1.0), 0.0)
    with pytest.raises(Conflict, match="request 1 waits already"):
        scheduler.offer(Item(1, "a/m", 0.0, 1.0), 0.0)
    (batch,) = scheduler.decide(0.0).batches
    scheduler.finished(batch, 0.1, 0.1)
    with pytest.raises(NotFound, match=f"batch {batch.number} does not run"):
        scheduler.finished(batch, 0.1, 0.1)


def test_the_package_is_light() -> None:
    import subprocess
    import sys

    code = "import sys, shoal.serve.scheduling; print(sorted({'numpy', 'onnxruntime', 'grpc'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
