"""Models whose time depends on what they are asked (simulated): what could be in time is hardly ever refused."""

from __future__ import annotations

import sys
from importlib import util
from math import nan
from pathlib import Path
from random import Random
from typing import Any

import pytest
from simulated import Simulation, affine, simulate

from shoal.base.arrivals import poisson
from shoal.serve.scheduling import make_scheduler
from shoal.serve.scheduling.interface import Item, QueueSpec
from shoal.serve.scheduling.simulate import Span, Stream

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def _benchmark() -> Any:
    spec = util.spec_from_file_location("serving_variable", BENCHMARKS / "serving_variable.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    sys.path.insert(0, str(BENCHMARKS))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(BENCHMARKS))
    return module


benchmark = _benchmark()


def stream(arrivals: list[float], works: list[tuple[float, float]], slo_s: float) -> Stream:
    return Stream(QueueSpec("a/m", "a", slo_s=slo_s, steady=False), arrivals, affine(0.0, 0.0), works=works)


def ended_s(name: str, one: Stream) -> list[float | None]:
    ends = simulate(make_scheduler(name, slots=1), [one]).ended_s["a/m"]
    return [end if end == end else None for end in ends]


@pytest.mark.parametrize("seed", range(3))
def test_two_slow_answers_do_not_lock_a_quick_model_out(seed: int) -> None:
    random = Random(seed)
    arrivals = [at / 100 for at in range(300)] + [3.5, 4.0] + [4.5 + at / 20 for at in range(600)]
    works = [(100.0, 0.0003 * random.lognormvariate(0.0, 0.2)) for _ in arrivals]
    works[300] = works[301] = (100.0, 0.28)
    assert None not in ended_s("deadline", stream(arrivals, works, 0.3))


@pytest.mark.few(count=2)
@pytest.mark.parametrize("kind", ["text", "attention", "bimodal", "heavy tail"])
@pytest.mark.parametrize("load", [0.3, 0.7, 1.3])
def test_of_what_could_be_in_time_one_in_a_hundred_is_refused_at_most(kind: str, load: float) -> None:
    found = benchmark.compare(kind, load, 1, 40.0)
    assert found.idle <= 0.01 * (found.kept + found.idle)
    assert load > 0.7 or found.no_refusals <= 0.01 * found.without
    assert found.kept >= found.without  # and refusing pays


def test_what_was_refused_wrongly_is_counted_by_the_idle_moments() -> None:
    # Busy from 0 to 1 and from 2 to 3: of the three that were refused, one fits in between and one at the end.
    works = [(1.0, 1.0), (1.0, 0.8), (1.0, 0.8), (1.0, 1.0), (1.0, 0.8)]
    one = stream([0.0, 0.5, 0.6, 2.0, 2.1], works, slo_s=1.8)
    spans = (Span(0.0, 1.0, "a/m", 1, 1), Span(2.0, 3.0, "a/m", 1, 1))
    done = Simulation({}, {}, spans, 3.0, {"a/m": [1.0, nan, nan, 3.0, nan]})
    assert benchmark.fit_idle(done, one) == 2
    none = Simulation({}, {}, (Span(0.0, 3.0, "a/m", 1, 1),), 3.0, {"a/m": [1.0, nan, nan, 3.0, 3.0]})
    assert benchmark.fit_idle(none, one) == 0


def test_what_fits_behind_what_was_accepted_before_is_counted_by_itself() -> None:
    # At 0.5 the slot is free from 1 on, and one of 1 s waits: 0.8 s more end at 2.8, which is 2.3 s after the arrival.
    works = [(1.0, 1.0), (1.0, 1.0), (1.0, 0.8), (1.0, 1.0)]
    spans = (Span(0.0, 1.0, "a/m", 1, 1), Span(1.0, 2.0, "a/m", 1, 1), Span(2.0, 3.0, "a/m", 1, 1))
    done = Simulation({}, {}, spans, 3.0, {"a/m": [1.0, 2.0, nan, 3.0]})
    assert (
        benchmark.fit_queue(done, stream([0.0, 0.4, 0.5, 0.6], works, slo_s=2.3)) == 1
    )  # what comes later does not count
    assert benchmark.fit_queue(done, stream([0.0, 0.4, 0.5, 0.6], works, slo_s=2.2)) == 0
    first = Simulation({}, {}, (Span(1.0, 2.0, "a/m", 1, 1),), 2.0, {"a/m": [nan, 2.0]})
    assert benchmark.fit_queue(first, stream([0.0, 1.0], works[:2], slo_s=1.0)) == 1  # an empty server


def test_what_waits_and_cannot_be_in_time_any_more_holds_no_newcomer_up() -> None:
    scheduler = make_scheduler(slots=1)
    scheduler.add_queue(QueueSpec("a/m", "a", slo_s=0.1, executors=1))
    now = 0.0
    for number in range(1, 31):
        assert scheduler.offer(Item(number, "a/m", now, now + 0.1), now) is None
        (batch,) = scheduler.decide(now).batches
        now += 0.01
        scheduler.finished(batch, now, 0.01)
    number = 100
    assert scheduler.offer(Item(number, "a/m", now, now + 0.1), now) is None
    (running,) = scheduler.decide(now).batches  # it will take 0.12 s
    taken = []
    while scheduler.offer(Item(number := number + 1, "a/m", now, now + 0.1), now) is None:
        taken.append(number)
        assert scheduler.decide(now).batches == ()
    later = now + 0.095
    new = Item(number + 1, "a/m", later, later + 0.1)
    assert scheduler.offer(new, later) is None
    assert scheduler.waiting() == len(taken) + 1  # those are told first that they were given up
    gone = Item(taken[0], "a/m", now, now + 0.1)
    assert scheduler.withdraw(gone)
    assert not scheduler.withdraw(gone)
    assert {one.item.number for one in scheduler.decide(later).rejected} == {*taken[1:]}
    scheduler.finished(running, later + 0.025, 0.12)
    (batch,) = scheduler.decide(later + 0.025).batches
    assert [item.number for item in batch.items] == [number + 1]


def test_of_texts_the_long_ones_are_refused_before_they_cost_anything() -> None:
    """The longest would be late even alone: they are known by their size, and harm nobody while the device is busy."""
    random = Random(2)
    arrivals = poisson(100, 60.0, seed=2).tolist()
    works = [(4000.0, 0.2) if random.random() < 0.1 else (200.0, 0.004) for _ in arrivals]
    ends = ended_s("deadline", stream(arrivals, works, 0.1))
    late = [end for end, (size, _) in zip(ends[500:], works[500:], strict=True) if size == 4000 and end is not None]
    short = [end for end, (size, _) in zip(ends[500:], works[500:], strict=True) if size == 200]
    assert len(late) < 0.75 * sum(size == 4000 for size, _ in works[500:])
    assert sum(end is not None for end in short) > 0.8 * len(short)
