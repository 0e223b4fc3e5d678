"""Models whose time depends on what they are asked (simulated): what could be in time is hardly ever refused."""

from __future__ import annotations

from random import Random

import pytest

from shoal.base.arrivals import poisson
from shoal.serve.scheduling import make_scheduler
from shoal.serve.scheduling.interface import QueueSpec
from shoal.serve.scheduling.simulate import Stream, affine, simulate


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


def text(random: Random) -> tuple[float, float]:
    length = min(4000.0, random.lognormvariate(5.0, 0.8))
    return length, (0.001 + 0.00005 * length) * random.lognormvariate(0.0, 0.1)


def attention(random: Random) -> tuple[float, float]:
    length = min(2000.0, random.lognormvariate(5.0, 0.8))
    return length, 0.001 + 2e-7 * length * length


def bimodal(random: Random) -> tuple[float, float]:
    return 100.0, 0.1 if random.random() < 0.05 else 0.002


def heavy_tail(random: Random) -> tuple[float, float]:
    return 100.0, min(1.0, 0.002 * random.paretovariate(1.5))


@pytest.mark.parametrize(
    ("draw", "slo_s"),
    [(text, 0.1), (attention, 0.2), (bimodal, 0.15), (heavy_tail, 0.1)],
    ids=["text", "attention", "bimodal", "heavy-tail"],
)
@pytest.mark.parametrize("load", [0.3, 0.7])
def test_of_what_would_be_in_time_one_in_a_hundred_is_refused_at_most(draw, slo_s: float, load: float) -> None:  # type: ignore[no-untyped-def]
    random = Random(1)
    mean_s = sum(draw(random)[1] for _ in range(10_000)) / 10_000
    arrivals = poisson(load / mean_s, 40.0, seed=1).tolist()
    one = stream(arrivals, [draw(random) for _ in arrivals], slo_s)
    fine = [end - at <= slo_s for end, at in zip(ended_s("fair", one), arrivals, strict=True) if end is not None]
    assert len(fine) == len(arrivals)
    ends = ended_s("deadline", one)
    wrong = sum(each and end is None for each, end in zip(fine, ends, strict=True))
    assert wrong <= 0.01 * sum(fine)
    kept = sum(end is not None and end - at <= slo_s for end, at in zip(ends, arrivals, strict=True))
    assert kept >= sum(fine)  # and refusing pays


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
