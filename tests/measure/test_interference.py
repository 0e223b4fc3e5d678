"""Interference: definitions on made-up latencies, then tenants on a simulated server."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.cli.serving import scheduled
from shoal.core import Invalid, Money
from shoal.measure.interference import Interference, measure_interference
from shoal.measure.planning.profiles import Demand, ExecutionTime, ModelProfile, ServerType
from shoal.measure.planning.simulated import SimulatedServer
from shoal.measure.statistics import geometric_mean
from shoal.measure.types import LoadResult


def constant(tenant: str, latency_s: float, *, failed: bool = False, count: int = 2_000) -> LoadResult:
    times = np.arange(count) / count
    return LoadResult(tenant, "", times, times, times + latency_s, np.full(count, 503 if failed else 200), 1.0)


def test_slowdowns_and_isolation_are_what_they_are_defined_to_be() -> None:
    """Beside others, a takes twice as long and b four times; alone both change from round to round."""
    seen: list[tuple[str, ...]] = []

    def run(rates: Mapping[str, float], number: int) -> Mapping[str, LoadResult]:
        seen.append(tuple(rates))
        factors = {"a": 2.0, "b": 4.0, "c": 1.0} if len(rates) > 1 else dict.fromkeys("abc", 1.0)
        return {name: constant(name, 0.01 * (number + 1) * factors[name]) for name in rates}

    told: list[tuple[int, int]] = []
    found = measure_interference(
        run, {"a": 1.0, "b": 1.0, "c": 1.0}, rounds=3, on_run=lambda done, total: told.append((done, total))
    )
    assert found.slowdown["a"]["b"][0.99].value == pytest.approx(2.0)
    assert found.slowdown["b"]["a"][0.5].value == pytest.approx(4.0)
    assert found.slowdown["c"]["a"][0.5].value == pytest.approx(1.0)
    assert found.beside_all["b"][0.99].value == pytest.approx(4.0)
    assert found.isolation.value == pytest.approx((1 / 2 * 1 / 4) ** (1 / 3))
    assert found.isolation_of["a"].value == pytest.approx(0.5)
    assert found.worst()[0] == "b"
    assert found.alone_s["a"][0.5].value == pytest.approx((0.01 * 0.02 * 0.03) ** (1 / 3))
    # Ratios within a round do not change, so their interval is narrow though latencies do change.
    assert found.isolation.high / found.isolation.low < 1.001
    assert found.alone_s["a"][0.5].high / found.alone_s["a"][0.5].low > 2
    # Seven loads a round, each once, in an order that changes.
    assert told[-1] == (21, 21)
    rounds = [seen[at : at + 7] for at in range(0, 21, 7)]
    assert all(Counter(one) == Counter(rounds[0]) and len(set(one)) == 7 for one in rounds)
    assert len({tuple(one) for one in rounds}) > 1
    json.dumps(found.as_json())


def test_a_tenant_whose_requests_fail_beside_others_has_no_isolation() -> None:
    def run(rates: Mapping[str, float], number: int) -> Mapping[str, LoadResult]:
        return {name: constant(name, 0.01, failed=name == "a" and len(rates) > 1) for name in rates}

    found = measure_interference(run, {"a": 1.0, "b": 1.0}, rounds=2)
    assert found.isolation_of["a"].value == 0.0
    assert found.isolation.value == 0.0
    assert found.slowdown["a"]["b"][0.99].value == math.inf


def simulated(scheduler: str, slots: int) -> Interference:
    small = Demand(ModelProfile("small", (ExecutionTime.constant(0.002),)), 80, 0.1)
    large = Demand(ModelProfile("large", (ExecutionTime.constant(0.05),)), 8, 1.0)
    server = SimulatedServer((small, large), ServerType("s", Money.usd(1), slots), scheduled(scheduler))
    return measure_interference(
        lambda rates, number: server.run(rates, duration_s=30.0, warmup_s=1.0, seed=[number]),
        {"small": 80.0, "large": 8.0},
        rounds=4,
    )


def test_a_simulated_server_disturbs_less_with_deadlines_and_hardly_with_many_slots() -> None:
    fifo, deadline, wide = simulated("all-share", 1), simulated("deadline", 1), simulated("all-share", 16)
    assert fifo.slowdown["small"]["large"][0.99].low > 2
    assert fifo.isolation_of["small"].high < deadline.isolation_of["small"].low * 1.5
    assert fifo.isolation.value < deadline.isolation.value
    assert wide.isolation.value == pytest.approx(1.0, abs=0.02)
    assert fifo.isolation.low <= fifo.isolation.value <= fifo.isolation.high


def test_few_requests_are_doubted() -> None:
    found = measure_interference(
        lambda rates, number: {name: constant(name, 0.01, count=50) for name in rates}, {"a": 1.0, "b": 1.0}, rounds=2
    )
    assert {warning.code for warning in found.warnings} == {"few-requests"}
    assert "want 1000" in found.warnings[0].text


@pytest.mark.parametrize(("tenants", "rounds"), [(1, 5), (2, 1)])
def test_one_of_anything_is_too_few(tenants: int, rounds: int) -> None:
    rates = {f"t{at}": 1.0 for at in range(tenants)}
    with pytest.raises(Invalid, match="at least 2"):
        measure_interference(lambda rates, number: {}, rates, rounds=rounds)


# --- ratios


@given(st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=20), st.floats(0.1, 10.0))
def test_the_mean_ratio_scales_and_lies_in_its_interval(ratios: list[float], factor: float) -> None:
    one, scaled = geometric_mean(ratios), geometric_mean([ratio * factor for ratio in ratios])
    assert scaled.value == pytest.approx(one.value * factor)
    assert one.low <= one.value * (1 + 1e-9)
    assert one.value <= one.high * (1 + 1e-9)
    assert geometric_mean([1 / ratio for ratio in ratios]).value == pytest.approx(1 / one.value)


def test_the_interval_covers_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(400):
        found = geometric_mean(rng.lognormal(math.log(2.0), 0.2, 5))
        hits += found.low <= 2.0 <= found.high
    assert 0.92 <= hits / 400 <= 0.98


def test_ratios_without_a_spread_are_open() -> None:
    assert geometric_mean([2.0]).high == math.inf
    assert math.isnan(geometric_mean([]).value)
    assert geometric_mean([math.nan, 2.0, 2.0]).value == pytest.approx(2.0)
    assert geometric_mean([0.0, 1.0]).value == 0.0
    assert math.isnan(geometric_mean([0.0, math.inf]).value)
