"""The real control plane in virtual time: waiting jobs start within the intervals that they are told, and these are not
so wide that this says nothing. The replay is that of the benchmark, with few seeds."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib import util
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SEEDS, JOBS = (2002,), 40


@pytest.fixture(scope="module")
def benchmark() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        spec = util.spec_from_file_location("starts_when", BENCHMARKS / "starts_when.py")
        assert spec is not None
        assert spec.loader is not None
        made = util.module_from_spec(spec)
        patch.setitem(sys.modules, "starts_when", made)
        spec.loader.exec_module(made)
        yield made


def narrowed(one: Any) -> Any:
    """A tenth of the interval, about its middle."""
    low, high = one.between
    middle, half = (low + high) / 2, (high - low) / 20
    return replace(one, between=(middle - half, middle + half))


@pytest.fixture(scope="module")
def asked(benchmark: Any) -> list[Any]:
    return [one for seed in SEEDS for one in benchmark.replay("over", seed, JOBS)]


def test_starts_lie_within_intervals_that_say_something(benchmark: Any, asked: list[Any]) -> None:
    found = benchmark.tally(asked)
    assert found.told >= 10
    assert found.held / found.told >= 0.75
    assert found.width < 15
    assert found.open <= found.told / 4


def test_an_interval_that_is_much_narrower_would_be_noticed(benchmark: Any, asked: list[Any]) -> None:
    bounded = [one for one in asked if one.between is not None and one.between[1] is not None]
    found = benchmark.tally([narrowed(one) for one in bounded])
    assert found.held / found.told < 0.5


def test_behind_what_never_ends_no_start_is_invented(benchmark: Any) -> None:
    """All devices are held by services: nothing is told, of no job."""
    load = replace(benchmark.LOADS["services"], services=benchmark.DEVICES, offered=0.6)
    benchmark.LOADS["full"] = load
    benchmark.LONG_AFTER_S, benchmark.EVERY_S, benchmark.MOST_JOBS = 300.0, 300.0, 1
    asked = benchmark.replay("full", 2003, 6)
    assert asked
    assert all(one.estimate is None and one.between is None for one in asked)
    assert all(one.started is None for one in asked)
