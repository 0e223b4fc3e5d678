"""Fronts: knowledge that never contradicts itself, analytic fronts found with few requests, honest ends."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.cli.serving import scheduled
from shoal.core import Invalid, Money
from shoal.measure.planning.profiles import Demand, ExecutionTime, ModelProfile, ServerType
from shoal.measure.planning.simulated import SimulatedServer
from shoal.measure.search.frontier import NoCapacity, find_frontier
from shoal.measure.search.judge import Effort, Goal, Judge, Verdict
from shoal.measure.search.monotone import Region
from shoal.measure.search.pareto import Frontier, VectorTrial
from shoal.measure.statistics import Estimate
from shoal.measure.types import Floats

# --- what trials imply


@given(
    st.integers(2, 4), st.floats(1.0, 3.0), st.lists(st.lists(st.floats(0, 1.5), min_size=4, max_size=4), max_size=25)
)
@settings(max_examples=60, deadline=None)
def test_implied_verdicts_are_those_of_any_monotone_truth(tenants: int, norm: float, asked: list[list[float]]) -> None:
    def kept(vector: Floats) -> bool:
        return float((vector**norm).sum()) <= 1.0

    region = Region(tenants)
    for numbers in asked:
        vector = np.array(numbers[:tenants])
        known = region.verdict(vector)
        assert known is None or known == kept(vector)
        (region.add_kept if kept(vector) else region.add_broken)(vector)
        assert region.verdict(vector) == kept(vector)
    mixes = np.random.default_rng(0).dirichlet(np.ones(tenants), size=50)
    inner, outer = region.inner(mixes), region.outer(mixes)
    truth = 1 / (mixes**norm).sum(axis=1) ** (1 / norm)
    assert (inner <= truth * (1 + 1e-9)).all()
    assert (outer >= truth * (1 - 1e-9)).all()
    for mix, low, high in zip(mixes, inner, outer, strict=True):
        assert region.verdict(mix * low * 0.999) is True or low == 0
        assert math.isinf(high) or region.verdict(mix * high * 1.001) is False


def test_a_contradiction_is_refused() -> None:
    region = Region(2)
    region.add_kept([0.5, 0.5])
    with pytest.raises(ValueError, match="below a vector that was kept"):
        region.add_broken([0.4, 0.5])
    region.add_broken([0.9, 0.1])
    with pytest.raises(ValueError, match="above a vector that was broken"):
        region.add_kept([0.9, 0.2])
    with pytest.raises(ValueError, match="not a vector of 2 rates"):
        region.add_kept([0.1, 0.2, 0.3])
    # A vector without a tenant is above only what lacks it too.
    assert region.verdict([1.0, 0.0]) is None


# --- the search


@dataclass
class Analytic:
    """Requests are late independently, with a share that is what is allowed just where |rates / capacities| = 1 in the
    given norm: a norm above 1 bulges the front outwards, so that sharing pays (2^(1 - 1/norm) at an even mix)."""

    capacities: Mapping[str, float]
    norm: float = 1.25
    steep: float = 14.0
    seed: int = 0
    requests: int = 0
    asked: list[dict[str, float]] = field(default_factory=list)

    def size(self, rates: Mapping[str, float]) -> float:
        return float(
            sum((rate / self.capacities[name]) ** self.norm for name, rate in rates.items()) ** (1 / self.norm)
        )

    def __call__(self, rates: Mapping[str, float], enough: Callable[[Mapping[str, Floats]], bool]) -> None:
        self.asked.append(dict(rates))
        rng = np.random.default_rng([self.seed, len(self.asked)])
        late = min(1.0, 0.01 * self.size(rates) ** self.steep)
        total = sum(rates.values())
        while True:
            counts = {name: rng.poisson(200 * rate / total) for name, rate in rates.items()}
            self.requests += sum(counts.values())
            if enough({name: np.where(rng.random(count) < late, 2.0, 0.5) for name, count in counts.items()}):
                return


def searched(tenants: int, **more: object) -> tuple[Frontier, Analytic]:
    capacities = {f"t{at}": 100.0 * (at + 1) for at in range(tenants)}
    probe = Analytic(capacities)
    goals = {name: Goal(1.0) for name in capacities}
    start = {name: 0.6 * rate for name, rate in capacities.items()}
    return find_frontier(probe, goals, start_per_s=start, **more), probe  # type: ignore[arg-type]


@pytest.mark.parametrize("tenants", [2, 3])
def test_an_analytic_front_is_found(tenants: int) -> None:
    found, probe = searched(tenants, rays=5)
    for name, rate in probe.capacities.items():
        assert found.dedicated[name].value == pytest.approx(rate, rel=0.06)
    for point in found.points:
        assert probe.size(point.rates_per_s) == pytest.approx(1.0, abs=0.06)
        assert point.total.low <= point.total.value <= point.total.high
    even = {name: rate / tenants for name, rate in probe.capacities.items()}
    assert found.total(even).value == pytest.approx(tenants ** (1 - 1 / probe.norm), rel=0.06)
    assert found.saving(even).value == pytest.approx(1 - 1 / found.total(even).value)
    # What is said to be proven is true, for vectors that nobody tried as well.
    for shares in product(np.linspace(0, 1.2, 7), repeat=tenants):
        rates = {name: share * rate for share, (name, rate) in zip(shares, probe.capacities.items(), strict=True)}
        verdict = found.verdict(rates)
        assert verdict is Verdict.UNDECIDED or (verdict is Verdict.KEPT) == (probe.size(rates) <= 1)
    json.dumps(found.as_json(), allow_nan=False)


def test_a_front_takes_far_fewer_requests_than_a_grid() -> None:
    found, probe = searched(2)
    effort = Effort(tolerance=0.1, most_requests=10_000)
    grid = Analytic(probe.capacities)
    trials = 0
    for shares in product(np.linspace(0.1, 1.1, 11), repeat=2):
        rates = {
            name: float(share) * rate for share, (name, rate) in zip(shares, probe.capacities.items(), strict=True)
        }
        judges = {name: Judge(Goal(1.0), effort) for name in rates}
        trials += 1

        def enough(samples: Mapping[str, Floats], judges: Mapping[str, Judge] = judges) -> bool:
            # Stops at the first broken objective as well, to be fair.
            done = [judge(samples[name]) for name, judge in judges.items() if judge.verdict is Verdict.UNDECIDED]
            return all(done) or any(judge.verdict is Verdict.BROKEN for judge in judges.values())

        grid(rates, enough)
    assert len(found.trials) + sum(len(one.trials) for one in found.capacities.values()) < trials / 3
    assert found.requests < grid.requests / 2


def test_no_trial_asks_what_is_known_already() -> None:
    found, _ = searched(3, rays=6)
    region = Region(3)
    for at, name in enumerate(found.tenants):
        alone, axis = found.dedicated[name], np.eye(3)[at]
        region.add_kept(axis * alone.low / alone.value)
        region.add_broken(axis * alone.high / alone.value)
    for trial in found.trials:
        vector = found.normalised(trial.rates_per_s)
        assert region.verdict(vector) is None
        if trial.verdict is not Verdict.UNDECIDED:
            (region.add_kept if trial.verdict is Verdict.KEPT else region.add_broken)(vector)


def test_wanted_mixes_come_first_and_known_capacities_are_not_searched() -> None:
    dedicated = {"t0": Estimate(100.0, 97.0, 103.0), "t1": Estimate(200.0, 194.0, 206.0)}
    found, probe = searched(2, rays=1, dedicated=dedicated, mixes=[{"t0": 80.0, "t1": 40.0}])
    assert len(probe.asked) == len(found.trials)
    first = probe.asked[0]
    assert first["t0"] / first["t1"] == pytest.approx(2.0)
    assert found.points[2].mix == pytest.approx({"t0": 0.8, "t1": 0.2})
    assert found.reason.code == "rays"


def test_the_search_says_why_it_ended() -> None:
    found, _ = searched(2)
    assert found.reason.code in {"expected", "exact"}
    assert found.surprise <= 0.05 or found.gap.worst <= 0.05


def test_a_search_whose_time_is_up_begins_no_trial_and_keeps_what_it_measured() -> None:
    whole, _ = searched(3)
    alone = sum(len(one.trials) for one in whole.capacities.values())
    for most in (alone, alone + 1, alone + len(whole.trials) // 2):
        begun: list[VectorTrial] = []

        def time_is_up(begun: list[VectorTrial] = begun, most: int = most) -> bool:
            return len(begun) >= most

        found, _ = searched(3, time_is_up=time_is_up, on_trial=begun.append)
        assert len(begun) == most
        assert found.trials == whole.trials[: most - alone]
        assert found.reason.code == "time"
        assert len(found.points) == 3 + found.reason.facts["rays"]  # each tenant alone, and the mixes that were begun
        assert all(point.total.low <= point.total.value <= point.total.high for point in found.points)
        assert "the front is known to" in found.reason.text
    with pytest.raises(NoCapacity, match="the time was up before its capacity alone was known") as caught:
        searched(3, time_is_up=lambda: True)
    assert caught.value.where == "t0"


def test_searches_come_out_the_same_again() -> None:
    first, _ = searched(2, rays=2)
    again, _ = searched(2, rays=2)
    assert first.as_json() == again.as_json()


@pytest.mark.slow
def test_a_simulated_server_has_the_front_of_its_queue() -> None:
    """Two like models on one slot: only the sum of their rates counts, so the Pareto front is the straight line."""
    same = ExecutionTime.constant(0.01)
    demands = tuple(Demand(ModelProfile(name, (same,)), 0.0, 0.05) for name in ("a", "b"))
    server = SimulatedServer(demands, ServerType("one", Money.usd(1)), scheduled("all-share"), seed=5)
    found = find_frontier(
        server.probe(), {"a": Goal(0.05), "b": Goal(0.05)}, start_per_s={"a": 50.0, "b": 50.0}, rays=2,
        effort=Effort(tolerance=0.1, most_requests=4_000),
    )  # fmt: skip
    for point in found.points:
        assert point.total.value == pytest.approx(1.0, abs=0.12)
    assert found.dedicated["a"].value == pytest.approx(found.dedicated["b"].value, rel=0.15)


@pytest.mark.slow
def test_eight_tenants_have_a_front_too() -> None:
    found, probe = searched(8)
    sizes = [probe.size(point.rates_per_s) for point in found.points]
    assert np.abs(np.log(sizes)).mean() < 0.05


# --- what cannot be


def test_a_tenant_without_a_capacity_is_named() -> None:
    def hopeless(rates: Mapping[str, float], enough: Callable[[Mapping[str, Floats]], bool]) -> None:
        while not enough({name: np.full(50, 2.0) for name in rates}):
            pass

    with pytest.raises(NoCapacity, match="at no rate that was tried, even alone") as caught:
        find_frontier(hopeless, {"a": Goal(1.0), "b": Goal(1.0)}, start_per_s={"a": 1.0, "b": 1.0})
    assert caught.value.where == "a"


@pytest.mark.parametrize("tenants", [1, 9])
def test_too_few_and_too_many_tenants_are_refused(tenants: int) -> None:
    with pytest.raises(Invalid, match=f"a Pareto front of {tenants} tenants"):
        searched(tenants)


def test_a_front_is_asked_about_its_own_tenants() -> None:
    found, _ = searched(2, rays=1)
    with pytest.raises(Invalid, match=r"not about \['zz'\]"):
        found.verdict({"zz": 1.0})
    with pytest.raises(Invalid, match="at least one rate above 0"):
        found.total({"t0": 0.0})
    with pytest.raises(Invalid, match="first guess for"):
        find_frontier(Analytic({}), {"a": Goal(1.0), "b": Goal(1.0)}, start_per_s={"a": 1.0})
