"""Costs: Perseus' own figures, bills that add up to the last millionth, savings that broken objectives eat."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core import Invalid, Money
from shoal.measure.cost import consolidation, mix_cost, split, trace_cost
from shoal.measure.judge import Goal
from shoal.measure.statistics import Estimate
from shoal.measure.types import LoadResult, ServerTimes

# Perseus' figure for two P4: requests per second of ResNet50 and Inception-V3, alone and together.
DEDICATED = {"resnet50": [398.0], "inception": [305.0]}


@pytest.mark.parametrize(
    ("together", "total"),
    [((98, 233), 1.01), ((194, 194), 1.12), ((252, 172), 1.20), ((368, 25), 1.01)],
)
def test_perseus_sums_are_reproduced(together: tuple[float, float], total: float) -> None:
    found = consolidation(DEDICATED, {"resnet50": [together[0]], "inception": [together[1]]})
    assert found.total.value == pytest.approx(total, abs=0.006)
    assert found.saving.value == pytest.approx(1 - 1 / found.total.value)
    # Measured once, nobody knows how sure that is.
    assert found.saving.as_json()["low"] is None
    assert found.saving.as_json()["high"] is None


def test_repeats_give_an_interval_that_covers() -> None:
    rng = np.random.default_rng(1)
    hits = 0
    for seed in range(60):
        alone = {"a": rng.normal(100, 5, 8), "b": rng.normal(50, 2, 8)}
        shared = {"a": rng.normal(60, 3, 8), "b": rng.normal(25, 2, 8)}
        found = consolidation(alone, shared, seed=seed)
        assert found.total.low <= found.total.value <= found.total.high
        hits += found.total.low <= 1.1 <= found.total.high
    assert hits >= 50


@pytest.mark.parametrize(
    ("dedicated", "shared", "said"),
    [
        ({"a": [1.0]}, {"a": [1.0], "b": [1.0]}, "dedicated capacity"),
        ({"a": []}, {"a": [1.0]}, "must be given"),
        ({"a": [0.0]}, {"a": [1.0]}, "positive alone"),
        ({"a": [1.0]}, {"a": [0.0]}, "nobody's throughput"),
    ],
)
def test_rates_that_mean_nothing_are_refused(
    dedicated: dict[str, list[float]], shared: dict[str, list[float]], said: str
) -> None:
    with pytest.raises(Invalid, match=said):
        consolidation(dedicated, shared)


# --- a wanted mix


def test_a_mix_costs_what_its_servers_cost() -> None:
    found = mix_cost({"a": 150.0, "b": 60.0}, {"a": 100.0, "b": 100.0}, Estimate(1.2, 1.1, 1.3), Money.usd("0.75"))
    assert found.dedicated.value == pytest.approx(2.1)
    assert (found.whole_dedicated, found.whole_shared) == (3, 2)
    assert found.dedicated_per_hour == Money.usd("2.25")
    assert found.shared_per_hour == Money.usd("1.50")
    assert found.saving.value == pytest.approx(1 - 1 / 1.2)
    assert found.saving.low == pytest.approx(1 - 1 / 1.1)
    assert found.saving.high == pytest.approx(1 - 1 / 1.3)
    with pytest.raises(Invalid, match="at least one rate"):
        mix_cost({"a": 0.0}, {"a": 1.0}, Estimate(1.0, 1.0, 1.0), Money())


# --- traces


def load(tenant: str, latencies_s: list[float], *, duration_s: float = 36.0, used_s: float | None = None) -> LoadResult:
    count = len(latencies_s)
    scheduled = np.linspace(0, duration_s, count)
    server = None if used_s is None else ServerTimes(count, count, 0.0, used_s / count)
    return LoadResult(
        tenant, tenant, scheduled, scheduled, scheduled + np.array(latencies_s), np.full(count, 200), duration_s,
        server=server,
    )  # fmt: skip


GOALS = {"a": Goal(0.1), "b": Goal(0.1)}


def test_a_trace_on_one_server_costs_half_of_two_and_less_per_request() -> None:
    alone = {"a": load("a", [0.05] * 1000), "b": load("b", [0.05] * 500)}
    shared = {"a": load("a", [0.05] * 1000, used_s=3.0), "b": load("b", [0.05] * 500, used_s=9.0)}
    found = trace_cost(alone, shared, GOALS, Money.usd(1))
    assert found.dedicated_cost == Money.usd("0.02")
    assert found.shared_cost == Money.usd("0.01")
    assert found.saving.value == pytest.approx(0.5)
    assert [bill.cost for bill in found.shared] == [Money.usd("0.0025"), Money.usd("0.0075")]
    assert found.shared[0].per_thousand.value == pytest.approx(0.0025)
    assert found.dedicated[1].per_thousand.value == pytest.approx(0.02)
    json.dumps(found.as_json())


def test_broken_objectives_eat_the_saving() -> None:
    rng = np.random.default_rng(2)
    alone = {"a": load("a", [0.05] * 1000), "b": load("b", [0.05] * 1000)}
    late = {name: load(name, np.where(rng.random(1000) < 0.6, 0.5, 0.05).tolist()) for name in "ab"}
    found = trace_cost(alone, late, GOALS, Money.usd(1))
    assert found.saving.value < 0
    assert found.saving.low < found.saving.value < found.saving.high
    lost = {name: load(name, [0.5] * 100) for name in "ab"}
    assert trace_cost(alone, lost, GOALS, Money.usd(1)).saving.value == -math.inf


def test_late_clumps_are_not_taken_for_independent() -> None:
    alone = {"a": load("a", [0.05] * 4000), "b": load("b", [0.05] * 4000)}
    clumped = np.full(4000, 0.05)
    clumped[1000:2000] = 0.5
    scattered = np.random.default_rng(3).permutation(clumped)

    def width(latencies: np.ndarray) -> float:
        shared = {"a": load("a", latencies.tolist()), "b": load("b", [0.05] * 4000)}
        bill = trace_cost(alone, shared, GOALS, Money.usd(1)).shared[0].per_thousand
        return bill.high - bill.low

    assert width(clumped) > 2 * width(scattered)


@given(st.integers(0, 10**12), st.lists(st.floats(0, 1e9, allow_subnormal=False), min_size=1, max_size=9))
def test_parts_of_a_bill_add_up_exactly(micro_usd: int, use: list[float]) -> None:
    bill = Money(micro_usd)
    parts = split(bill, use)
    assert sum(parts, Money()) == bill
    assert all(part >= Money() for part in parts)
    if len(use) > 1 and use[0] >= use[1]:
        assert parts[0] >= parts[1] - Money(1)


@pytest.mark.parametrize("use", [[], [-1.0], [math.nan], [math.inf, 1.0]])
def test_a_use_that_is_none_is_refused(use: list[float]) -> None:
    with pytest.raises(Invalid, match="use must be finite"):
        split(Money(1), use)


def test_runs_of_other_tenants_are_refused() -> None:
    with pytest.raises(Invalid, match="the same tenants"):
        trace_cost({"a": load("a", [0.1])}, {"b": load("b", [0.1])}, GOALS, Money.usd(1))
