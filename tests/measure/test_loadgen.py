"""MLPerf LoadGen as referee: both judge the same server, and agree."""

from __future__ import annotations

import math
import sys
from importlib import util
from pathlib import Path
from typing import Any

import pytest

from shoal.core import Invalid
from shoal.measure.live import measure_capacity
from shoal.measure.load.generator import Settings
from shoal.measure.search.judge import Effort, Goal, Trial
from shoal.measure.types import Target
from tests.measure.servers import Fake, running_server

_spec = util.spec_from_file_location("loadgen", Path(__file__).parents[2] / "benchmarks" / "loadgen.py")
assert _spec is not None
assert _spec.loader is not None
loadgen: Any = util.module_from_spec(_spec)
sys.modules["loadgen"] = loadgen
_spec.loader.exec_module(loadgen)
oip_system, referee, run_loadgen = loadgen.oip_system, loadgen.referee, loadgen.run_loadgen


@pytest.mark.slow
def test_both_agree_on_what_is_clear() -> None:
    # A goal that one stall of the machine cannot miss, and a load that misses it by far.
    goal = Goal(0.5, 0.5)
    told: list[Trial] = []
    with running_server(Fake(models={"fake": 0.002})) as url:
        with oip_system(Target(url, "fake")) as issue:
            easy = run_loadgen(issue, goal, rate_per_s=100.0, queries=200)
            hard = run_loadgen(issue, goal, rate_per_s=5000.0, queries=1000)
        ours = measure_capacity(
            Target(url, "fake"), goal, effort=Effort(tolerance=0.5, most_requests=1000, most_trials=5),
            settings=Settings(warmup_s=0.05), trial_s=0.5, on_trial=told.append,
        )  # fmt: skip
    assert easy.valid
    assert easy.kept
    assert easy.queries >= 200
    assert not hard.kept
    assert hard.late > hard.queries / 2
    assert hard.latency_s > goal.slo_s
    assert easy.rate_per_s < ours.capacity.rate_per_s.value < hard.rate_per_s
    assert ours.saturated is not None
    assert 0 < ours.saturated.completed_per_s() <= 525
    assert tuple(told) == ours.capacity.trials
    assert len(ours.loads) == len(told)


def test_a_failed_request_is_held_against_the_server() -> None:
    with running_server(Fake(models={"fake": 0.0}, fail_every=50)) as url, oip_system(Target(url, "fake")) as issue:
        found = run_loadgen(issue, Goal(2.0, 0.9), rate_per_s=300.0, queries=100)
    assert found.valid
    assert found.failed > 0
    assert not found.kept


def test_a_callable_without_any_server() -> None:
    found = run_loadgen(lambda number, done: done(True), Goal(5.0, 0.9), rate_per_s=500.0, queries=100)
    assert found.kept
    assert found.late <= found.queries / 10


def test_an_interval_that_is_none_is_refused() -> None:
    with pytest.raises(Invalid, match="no interval"):
        referee(lambda number, done: done(True), Goal(1.0), low_per_s=5.0, high_per_s=5.0, tolerance=0.1, queries=10)


def test_the_referees_ends() -> None:
    def never(number: int, done: object) -> None:
        done(False)  # type: ignore[operator]

    low, high = referee(never, Goal(0.1, 0.9), low_per_s=200.0, high_per_s=400.0, tolerance=0.1, queries=50)
    assert (low, high) == (0.0, 200.0)
    low, high = referee(
        lambda number, done: done(True), Goal(5.0, 0.9), low_per_s=400.0, high_per_s=800.0, tolerance=0.1, queries=100
    )
    assert (low, high) == (800.0, math.inf)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_both_find_the_same_capacity() -> None:
    """Needs a machine with a core to spare: on a busy one both find the machine's jitter, each at another moment."""
    goal = Goal(0.03)
    with running_server(Fake(models={"fake": 0.002})) as url:
        ours = measure_capacity(Target(url, "fake"), goal, effort=Effort(most_requests=6000), trial_s=15.0)
        if ours.warnings:
            pytest.skip(f"the machine is too busy: {ours.warnings[0].text}")
        with oip_system(Target(url, "fake")) as issue:
            low, high = referee(issue, goal, low_per_s=200.0, high_per_s=550.0, tolerance=0.06, queries=4000)
    # LoadGen wants to be sure that no more are late than allowed: its edge is the lower one.
    assert ours.capacity.rate_per_s.value == pytest.approx(math.sqrt(low * high), rel=0.15)
