"""What models say of sets that share a server, against the simulator and against queueing theory."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.cli.serving import scheduled
from shoal.core import Invalid, Money
from shoal.measure.planning.feasibility import Feasibility, limited, simulate
from shoal.measure.planning.plan_check import Simulated
from shoal.measure.planning.profiles import Demand, ExecutionTime, ModelProfile, ServerType
from shoal.measure.planning.queueing import Queueing
from shoal.measure.planning.simulated import Serve, SimulatedServer
from shoal.measure.search.judge import Effort
from shoal.serve.scheduling import SCHEDULERS
from tests.measure.profiled import lognormal

GIB = 2**30
FIFO = scheduled("all-share")
"""One queue for everybody, in order of arrival, of which nothing is refused."""
SERVED = scheduled()


def profile(name: str, seconds: float, *, cv: float = 0.0, slots: int = 1, memory: int = 0) -> ModelProfile:
    return ModelProfile(name, (lognormal(seconds, cv),), memory, slots=slots)


def server(slots: int = 1, *, memory: int = 0, speed: float = 1.0, limit: int | None = None) -> ServerType:
    return ServerType(f"s{slots}", Money.usd(slots), slots, memory, speed, limit)


@st.composite
def sets(draw: st.DrawFn) -> tuple[list[Demand], ServerType]:
    """Up to four models that load a server of up to four slots between a little and too much."""
    slots = draw(st.sampled_from([1, 2, 4]))
    count = draw(st.integers(1, 4))
    demands = []
    for at in range(count):
        seconds = draw(st.sampled_from([0.002, 0.01, 0.03]))
        width = draw(st.sampled_from([1, 1, 2])) if slots > 1 else 1
        load = draw(st.floats(0.01, 0.9)) * slots / width / count
        demands.append(
            Demand(
                profile(f"m{at}", seconds, cv=draw(st.sampled_from([0.0, 0.5])), slots=width),
                load / seconds,
                seconds * draw(st.sampled_from([2.5, 6.0, 15.0])),
                burst=draw(st.sampled_from([1.0, 1.0, 2.0])),
            )
        )
    return demands, server(slots)


# --- execution times


@given(st.floats(1e-4, 1.0), st.floats(0.0, 1.5), st.integers(0, 2**16))
@settings(max_examples=30, deadline=None)
def test_samples_have_the_mean_and_the_tail_of_their_time(mean_s: float, cv: float, seed: int) -> None:
    time = lognormal(mean_s, cv)
    drawn = time.sample(np.random.default_rng(seed), 20_000)
    assert time.mean_s == pytest.approx(mean_s)
    assert drawn.mean() == pytest.approx(mean_s, rel=0.05)
    assert drawn.max() <= time.longest_s
    assert np.mean(drawn > mean_s) == pytest.approx(time.above(mean_s), abs=0.02)


def test_times_between_profiled_batches_are_interpolated() -> None:
    model = ModelProfile("m", (ExecutionTime.constant(0.01), ExecutionTime.constant(0.04, batch=7)))
    assert model.time(4).mean_s == pytest.approx(0.025)
    assert model.up_to(4).max_batch == 4
    assert model.up_to(9) is model
    assert model.best_item_s == pytest.approx(0.04 / 7)
    with pytest.raises(ValueError, match="1 to 7"):
        model.time(8)


@pytest.mark.parametrize(
    ("quantiles", "said"),
    [
        (((0.5, 0.1), (0.4, 0.2)), "shares must rise"),
        (((0.0, 0.2), (1.0, 0.1)), "not fall"),
        (((0.0, 0.0),), "positive"),
        ((), "quantiles"),
    ],
)
def test_times_that_cannot_be_are_refused(quantiles: tuple[tuple[float, float], ...], said: str) -> None:
    with pytest.raises(Invalid, match=said):
        ExecutionTime(1, quantiles)


# --- the simulator


def test_the_simulator_agrees_with_pollaczek_and_khinchine() -> None:
    for cv in (0.0, 1.0):
        time = lognormal(0.01, cv)
        second = float(np.mean(time.sample(np.random.default_rng(1), 200_000) ** 2))
        demand = Demand(ModelProfile("m", (time,)), 60.0, 1.0)
        found = SimulatedServer((demand,), server(), FIFO, seed=3).run(duration_s=300.0)["m"].latencies_s()
        expected = 0.01 + 60.0 * second / (2 * (1 - 0.6))
        assert found.mean() == pytest.approx(expected, rel=0.1)


def test_a_load_is_the_same_alone_and_beside_others() -> None:
    demands = (Demand(profile("a", 0.01), 20, 1.0, burst=3.0), Demand(profile("b", 0.01), 30, 1.0))
    both = SimulatedServer(demands, server(), SERVED).run(duration_s=50)
    alone = SimulatedServer(demands, server(), SERVED).run({"a": 20}, duration_s=50)
    assert np.array_equal(both["a"].scheduled_s, alone["a"].scheduled_s)
    again = SimulatedServer(demands, server(), SERVED).run(duration_s=50)
    assert np.array_equal(again["b"].done_s, both["b"].done_s)
    assert both["a"].tenant.startswith("simulated")


@given(sets(), st.sampled_from(SCHEDULERS))
@settings(max_examples=20, deadline=None)
def test_every_simulated_request_is_answered_once_and_never_too_fast(
    case: tuple[list[Demand], ServerType], scheduler: str
) -> None:
    demands, kind = case
    found = SimulatedServer(tuple(demands), kind, scheduled(scheduler)).run(duration_s=2.0)
    work = 0.0
    for demand in demands:
        result = found[demand.name]
        assert scheduler == "deadline" or (result.status == 200).all()
        answered = result.status == 200
        took = (result.done_s - result.scheduled_s)[answered]
        assert (took >= demand.profile.times[0].quantiles[0][1] - 1e-9).all()
        work += len(took) * demand.profile.times[0].quantiles[0][1] * demand.profile.slots
    last = max((result.done_s.max(initial=0.0) for result in found.values()), default=0.0)
    assert work <= last * kind.slots + 1e-6


def test_the_simulated_server_is_the_one_that_runs() -> None:
    """Tight deadlines go first, shares hold, and what cannot be in time is refused: no queue does that."""
    slow = Demand(profile("slow", 0.05), 15, 1.0)
    fast = Demand(profile("fast", 0.002), 60, 0.08)

    def late(scheduler: str, *demands: Demand) -> dict[str, float]:
        found = SimulatedServer(demands, server(), scheduled(scheduler)).run(duration_s=20)
        slo_s = {one.name: one.slo_s for one in demands}
        return {name: float(np.mean(one.latencies_or_inf_s() > slo_s[name])) for name, one in found.items()}

    assert late("deadline", slow, fast)["fast"] < 0.2 * late("all-share", slow, fast)["fast"]
    crowd = Demand(profile("m", 0.01), 150, 0.05)
    assert late("all-share", crowd)["m"] > 0.95
    assert late("deadline", crowd)["m"] < 0.4


def test_batches_carry_what_single_executions_cannot() -> None:
    model = ModelProfile("m", (ExecutionTime.constant(0.01), ExecutionTime.constant(0.02, batch=8)))
    demand = Demand(model, 200, 0.1)
    batched = SimulatedServer((demand,), server(), SERVED).run(duration_s=20)["m"].latencies_s()
    (single,) = limited([demand], [1])
    assert np.quantile(batched, 0.99) < 0.1
    assert np.median(SimulatedServer((single,), server(), FIFO).run(duration_s=20)["m"].latencies_s()) > 1.0


# --- models


@pytest.mark.parametrize("serve", [FIFO, SERVED], ids=["fifo", "served"])
@given(case=sets())
@settings(max_examples=20, deadline=None, derandomize=True)
def test_what_the_bound_lets_through_is_not_contradicted_by_simulation(
    serve: Serve, case: tuple[list[Demand], ServerType]
) -> None:
    demands, kind = case
    fit = Queueing().judge(demands, kind)
    if not fit.holds:
        return
    checks = simulate(demands, kind, serve=serve, effort=Effort(most_requests=1_000), most=5_000, seed=7)
    assert not any(check.broken for check in checks)
    # The promised latency is an upper bound as well.
    for demand, promised_s, check in zip(demands, fit.latency_s, checks, strict=True):
        assert promised_s <= demand.slo_s
        if check.requests >= 500:
            assert check.latency_s <= promised_s * 1.25


@given(sets(), st.data())
@settings(max_examples=40, deadline=None)
def test_the_bound_keeps_holding_when_a_model_goes(case: tuple[list[Demand], ServerType], data: st.DataObject) -> None:
    demands, kind = case
    model = Queueing()
    if len(demands) > 1 and model.judge(demands, kind).holds:
        gone = data.draw(st.integers(0, len(demands) - 1))
        assert model.judge(demands[:gone] + demands[gone + 1 :], kind).holds


@pytest.mark.slow
def test_the_bound_is_not_far_from_the_truth() -> None:
    """The largest load of one server, as a share of what simulation finds."""

    def most(model: Feasibility, slots: int) -> float:
        low, high = 0.0, 3.0 * slots
        for _ in range(7):
            middle = (low + high) / 2
            demands = [
                Demand(profile("a", 0.01), 50 * middle, 0.1),
                Demand(profile("b", 0.005, cv=0.5), 60 * middle, 0.05),
            ]
            low, high = (middle, high) if model.judge(demands, server(slots)).holds else (low, middle)
        return low

    class Looked(Simulated):
        def __init__(self) -> None:
            super().__init__(FIFO, effort=Effort(most_requests=1_000))

    for slots in (1, 4):
        assert most(Queueing(), slots) > 0.85 * most(Looked(), slots)


def test_a_rare_model_is_let_on_a_wide_server_though_its_objective_is_tight() -> None:
    """Waiting needs every slot taken, which hardly ever happens."""
    rare = Demand(profile("rare", 0.4), 0.1, 0.5)
    fit = Queueing().judge([rare], server(4))
    assert fit.holds
    assert fit.latency_s[0] <= 0.5


@pytest.mark.parametrize("model", [Queueing(), Simulated(SERVED)], ids=lambda one: one.name)
def test_every_model_names_the_constraint(model: Feasibility) -> None:
    fat = Demand(profile("fat", 0.01, memory=9 * GIB), 1, 0.1)
    assert model.judge([fat], server(1, memory=8 * GIB)).reason.code == "memory"
    wide = Demand(profile("wide", 0.01, slots=2), 1, 0.1)
    assert model.judge([wide], server(1)).reason.code == "slots"
    slow = Demand(profile("slow", 0.2), 1, 0.1)
    assert model.judge([slow], server(1)).reason.code == "execution"
    busy = Demand(profile("busy", 0.01), 500, 0.1)
    assert model.judge([busy], server(1)).reason.code in {"load", "objective"}
    easy = Demand(profile("easy", 0.01), 2, 0.1)
    fit = model.judge([easy], server(1))
    assert fit.holds
    assert len(fit.batches) == len(fit.latency_s) == 1
    idle = Demand(profile("idle", 0.01), 0, 0.1)
    assert model.judge([idle, easy], server(1)).holds


def test_a_simulation_ends_when_its_outcome_is_sure() -> None:
    def requests(load: float) -> int:
        checks = simulate([Demand(profile("m", 0.01), 100 * load, 0.05)], server(), serve=SERVED)
        return sum(check.requests for check in checks)

    assert requests(0.1) < 2_000
    assert requests(1.3) < 2_000
    assert requests(0.63) > 5_000  # near what is allowed


def test_a_rare_demand_beside_frequent_ones_has_an_end_too() -> None:
    often, rare = Demand(profile("often", 0.0001), 1_000, 0.1), Demand(profile("rare", 0.01), 0.01, 0.1)
    checks = simulate([often, rare], server(), serve=FIFO, most=4_000)
    assert [check.holds for check in checks] == [True, False]
    assert not checks[1].broken
    assert sum(check.requests for check in checks) < 10_000


def test_one_broken_objective_ends_a_simulation_whatever_is_known_of_the_others() -> None:
    crowd, rare = Demand(profile("crowd", 0.01), 150, 0.05), Demand(profile("rare", 0.0001), 1, 0.1)
    checks = simulate([crowd, rare], server(), serve=SERVED, most=5_000)
    assert [check.broken for check in checks] == [True, False]
    assert sum(check.requests for check in checks) < 3_000


def test_checks_say_what_they_could_not_tell() -> None:
    easy = Demand(profile("m", 0.01), 20, 0.1, quantile=0.9999)
    (check,) = simulate([easy], server(), serve=SERVED, effort=Effort(most_requests=100))
    assert not check.holds
    assert not check.broken
    assert check.as_json()["simulated"] is True
    assert math.isfinite(check.latency_s)
