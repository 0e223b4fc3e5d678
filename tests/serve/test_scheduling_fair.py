"""Shares of device time between tenants, against the fluid ideal."""

from __future__ import annotations

from itertools import pairwise
from math import inf
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated import Simulation, affine, simulate

from shoal.base.arrivals import poisson
from shoal.core import PriorityClass
from shoal.serve.scheduling import FairScheduler, Item, Profiles, QueueSpec, Scheduler, make_scheduler
from shoal.serve.scheduling.simulate import Stream

from .oracle_gps import served_s
from .oracle_referee import Referee


def used_until(result: Simulation, queue: str, until_s: float) -> float:
    spans = (span for span in result.timeline if span.queue == queue)
    return sum((min(until_s, span.end_s) - span.start_s) * span.slots for span in spans if span.start_s < until_s)


def backlogged(weights: list[float], costs_s: list[float], slots: int, until_s: float) -> list[Stream]:
    """Tenants that have something to start all the time, each with executions of its own length."""
    streams = []
    for at, (weight, cost_s) in enumerate(zip(weights, costs_s, strict=True)):
        many = int(until_s * slots / cost_s) + slots + 1
        spec = QueueSpec(f"t{at}", f"t{at}", weight, executors=slots)
        streams.append(Stream(spec, [0.0] * many, affine(0.0, cost_s)))
    return streams


def primed(name: str, streams: list[Stream], slots: int) -> Scheduler:
    profiles = Profiles()
    for stream in streams:
        profiles.prime(stream.spec.key, [(1, stream.service(1, Random(0)))] * 20)
    return make_scheduler(name, slots=slots, profiles=profiles)


@settings(max_examples=25, deadline=None)
@given(
    tenants=st.lists(
        st.tuples(st.sampled_from([0.5, 1.0, 2.0, 5.0]), st.sampled_from([0.001, 0.004, 0.02, 0.05])),
        min_size=2,
        max_size=5,
    ),
    at_s=st.floats(0.1, 1.0),
)
def test_backlogged_tenants_stay_within_one_execution_each_of_their_shares(
    tenants: list[tuple[float, float]], at_s: float
) -> None:
    weights, costs = [weight for weight, _ in tenants], [cost for _, cost in tenants]
    streams = backlogged(weights, costs, 1, 1.0)
    result = simulate(primed("fair", streams, 1), streams)
    used = [used_until(result, stream.spec.key, at_s) / stream.spec.weight for stream in streams]
    steps = [cost / weight for weight, cost in tenants]
    ideal = at_s / sum(weights)  # each one's fluid share, per weight
    for one in range(len(tenants)):
        assert abs(used[one] - ideal) <= steps[one] + max(steps) + 1e-9
        for other in range(one):
            assert abs(used[one] - used[other]) <= steps[one] + steps[other] + 1e-9


@pytest.mark.few(count=2)
@pytest.mark.parametrize("name", ["fair", "deadline"])
@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("spread", [0.0, 0.5])
def test_weights_are_kept_whatever_the_lengths_of_executions(name: str, slots: int, spread: float) -> None:
    weights, costs = [1.0, 1.0, 2.0, 4.0], [0.002, 0.03, 0.01, 0.004]
    streams = [
        Stream(stream.spec, stream.arrivals, affine(0.0, cost, spread))
        for stream, cost in zip(backlogged(weights, costs, slots, 3.0), costs, strict=True)
    ]
    result = simulate(make_scheduler(name, slots=slots), streams)
    used = [used_until(result, stream.spec.key, 3.0) for stream in streams]
    for weight, device_s in zip(weights, used, strict=True):
        assert device_s == pytest.approx(3.0 * slots * weight / 8.0, abs=0.2 * slots)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), rates=st.lists(st.sampled_from([5, 20, 80]), min_size=2, max_size=5))
def test_nobody_falls_far_behind_the_fluid_ideal(seed: int, rates: list[int]) -> None:
    random = Random(seed)
    weights = {f"t{at}": random.choice([1.0, 3.0]) for at in range(len(rates))}
    cost_s = 0.01
    streams = [
        Stream(QueueSpec(name, name, weight), poisson(rate, 2.0, seed=[seed, at]), affine(0.0, cost_s))
        for at, ((name, weight), rate) in enumerate(zip(weights.items(), rates, strict=True))
    ]
    result = simulate(primed("fair", streams, 1), streams)
    work = {stream.spec.key: [(at, cost_s) for at in stream.arrivals] for stream in streams}
    for until_s in (0.5, 1.0, 1.5, 2.0):
        ideal = served_s(work, weights, 1, until_s)
        for key in work:
            # what is running, one execution of each other tenant, and what those may catch up (BURST_S)
            behind = (len(rates) + 1) * cost_s + 0.05 * (len(rates) - 1)
            assert used_until(result, key, until_s) >= ideal[key] - behind - 1e-9


def test_idling_saves_up_a_moment_at_most() -> None:
    streams = backlogged([1.0, 1.0], [0.01, 0.01], 1, 10.0)
    late = Stream(streams[1].spec, [5.0] * 500, streams[1].service)
    result = simulate(primed("fair", streams, 1), [streams[0], late])
    used = [used_until(result, key, 6.0) - used_until(result, key, 5.0) for key in ("t0", "t1")]
    assert used[1] - used[0] == pytest.approx(0.05, abs=0.021)


def test_what_was_expected_wrongly_is_settled() -> None:
    """Both are guessed to take 10 ms at first; one takes 100 ms, and its tenant pays for it."""
    streams = backlogged([1.0, 1.0], [0.1, 0.01], 1, 5.0)
    result = simulate(make_scheduler("fair", slots=1), streams)
    assert used_until(result, "t0", 5.0) == pytest.approx(used_until(result, "t1", 5.0), abs=0.2)


def test_a_failed_execution_is_charged_but_teaches_nothing() -> None:
    profiles = Profiles()
    profiles.prime("a/m", [(1, 0.01)] * 20)
    scheduler = FairScheduler(1, profiles)
    for tenant in "ab":
        scheduler.add_queue(QueueSpec(f"{tenant}/m", tenant))
        for number in range(3):
            scheduler.offer(Item(number, f"{tenant}/m", 0.0, inf), 0.0)
    (first,) = scheduler.decide(0.0).batches
    assert first.queue == "a/m"
    scheduler.finished(first, 0.05, 0.05, ok=False)
    assert profiles.of("a/m").expected_s(1) == pytest.approx(0.01)
    now, order = 0.05, []
    for _ in range(3):
        (batch,) = scheduler.decide(now).batches
        order.append(batch.queue)
        now += 0.01
        scheduler.finished(batch, now, 0.01)
    assert order == ["b/m", "b/m", "b/m"]


@pytest.mark.parametrize("name", ["fair", "deadline"])
def test_guaranteed_work_goes_first_whatever_the_weights(name: str) -> None:
    scheduler = make_scheduler(name, slots=1)
    scheduler.add_queue(QueueSpec("b/m", "b", 1000.0, PriorityClass.BEST_EFFORT))
    scheduler.add_queue(QueueSpec("g/m", "g", 0.001))
    for number in range(5):
        scheduler.offer(Item(number, "b/m", 0.0, inf), 0.0)
        scheduler.offer(Item(10 + number, "g/m", 0.0, inf), 0.0)
    order, now = [], 0.0
    for _ in range(10):
        (batch,) = scheduler.decide(now).batches
        order.append(batch.queue)
        now += 0.01
        scheduler.finished(batch, now, 0.01)
    assert order == ["g/m"] * 5 + ["b/m"] * 5


def test_a_tenant_with_many_models_has_one_share() -> None:
    many = [Stream(QueueSpec(f"a/{at}", "a"), [0.0] * 200, affine(0.0, 0.005)) for at in range(5)]
    one = Stream(QueueSpec("b/m", "b"), [0.0] * 1000, affine(0.0, 0.005))
    result = simulate(primed("fair", [*many, one], 1), [*many, one])
    assert used_until(result, "b/m", 2.0) == pytest.approx(1.0, abs=0.02)


@pytest.mark.few
@pytest.mark.parametrize("name", ["fair", "deadline"])
def test_nobody_starves_beside_tighter_deadlines(name: str) -> None:
    tight = [
        Stream(QueueSpec(f"n{at}", f"n{at}", slo_s=0.02), poisson(400, 5.0, seed=at), affine(0.0, 0.002, 0.1))
        for at in range(3)
    ]
    loose = Stream(QueueSpec("loose", "loose"), [0.0] * 2000, affine(0.0, 0.002, 0.1))
    result = simulate(make_scheduler(name, slots=1), [*tight, loose])
    assert used_until(result, "loose", 5.0) > 0.9 * 5.0 / 4
    starts = sorted(span.start_s for span in result.timeline if span.queue == "loose" and span.start_s < 5.0)
    assert max(after - before for before, after in pairwise(starts)) < 0.5


def test_every_rule_is_kept_under_load() -> None:
    streams = [
        Stream(
            QueueSpec(f"q{at}", f"t{at % 4}", 1.0 + at % 3, max_batch=1 + 3 * (at % 2), executors=1 + at % 2),
            poisson(60, 3.0, seed=at),
            affine(0.002, 0.001, 0.3),
        )
        for at in range(12)
    ]
    referee = Referee(make_scheduler("fair", slots=3), 3)
    result = simulate(referee, streams)
    assert sum(len(outcome.latencies_s) for outcome in result.queues.values()) == len(referee.ended)
