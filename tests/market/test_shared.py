"""Several jobs with one budget."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from market.budget import Task, simulate_shared

from shoal.core import Invalid
from shoal.market.policy.names import policy_named
from shoal.market.policy.view import Policy
from shoal.market.simulate import simulate
from shoal.market.ticks import Ticks
from tests.market.made import CHOICES, Anything, market_of, refusing


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(refusing(), CHOICES), min_size=1, max_size=4), st.floats(0, 150))
def test_the_budget_is_never_passed_and_no_job_that_began_misses_its_deadline(
    jobs: list[tuple[Ticks, list[int | None]]], budget: float
) -> None:
    tasks = [Task(str(n), market, Anything(choices)) for n, (market, choices) in enumerate(jobs)]
    shared = simulate_shared(tasks, budget)
    assert shared.usd <= budget + 1e-6
    assert set(shared.states.values()) <= {"done", "dropped"}
    for name, state in shared.states.items():
        assert shared.outcomes[name].met == (state == "done")
        if state == "dropped":
            assert shared.outcomes[name].usd == 0


@settings(max_examples=40, deadline=None)
@given(refusing(), st.sampled_from(["greedy", "uniform-progress", "markov"]))
def test_with_much_money_a_job_runs_as_if_alone(market: Ticks, name: str) -> None:
    if market.needed(market.work, None, 0) <= market.deadline:
        shared = simulate_shared([Task("a", market, policy_named(name))], 1e6)
        assert shared.outcomes["a"].steps == simulate(market, policy_named(name)).steps


def test_money_that_spot_saved_pays_for_the_next_job() -> None:
    market = market_of([[True]] * 60, work=10)
    greedy: Policy = policy_named("greedy")
    tasks = [Task("first", market, greedy), Task("second", market, greedy)]
    shared = simulate_shared(tasks, 45.0)  # one job on demand is 33 dollars, one on spot 11
    assert shared.states == {"first": "done", "second": "done"}
    assert shared.usd == pytest.approx(22.0)
    held = [step.offer for step in shared.outcomes["second"].steps]
    assert held[0] is None
    assert "no money is free" in shared.outcomes["second"].steps[0].reason
    assert 0 in held


def test_without_money_for_the_worst_a_job_does_not_begin() -> None:
    market = market_of([[True]] * 60, work=10)
    assert simulate_shared([Task("a", market, policy_named("greedy"))], 32.9).states == {"a": "dropped"}
    # With its reserve and no more it stays on demand: a tick of spot could be lost.
    exact = simulate_shared([Task("a", market, policy_named("greedy"))], 33.0)
    assert {step.offer for step in exact.outcomes["a"].steps} == {market.fallback}
    assert exact.usd == pytest.approx(33.0)


def test_what_a_budget_cannot_be_kept_with_is_said() -> None:
    market = market_of([[True]] * 20, work=3)
    task = Task("a", market, policy_named("greedy"))
    with pytest.raises(Invalid, match="different names"):
        simulate_shared([task, task], 10)
    usd = market.usd.copy()
    usd[5, market.fallback] = 4.0
    with pytest.raises(Invalid, match="changes"):
        simulate_shared([replace(task, market=replace(market, usd=np.asarray(usd)))], 10)
