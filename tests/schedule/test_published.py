"""Gavel's published rounds: its habits one by one, and that it is a baseline like any other mechanism."""

from __future__ import annotations

import random
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from shoal.core import Invalid
from shoal.schedule import Allocation, Pool, Problem
from shoal.schedule.baselines.gavel import GavelRounds, GavelSettings
from shoal.schedule.simulate import Faults, cluster_of, run_of, simulate
from shoal.schedule.workloads import PriceChange, gavel_jobs
from tests.schedule.kit import cluster, gavel_table, throughputs, workload

LIVE = """
import sys
import shoal.schedule.live.extension, shoal.schedule.live.plan
from shoal.schedule import Pool, Problem, decide
decide("max-min", Problem.columnar((Pool("a", 2),), [[1.0], [1.0]], ids=["x", "y"]))
print([name for name in sys.modules if name.startswith("shoal.schedule.baselines")])
"""


def test_what_runs_in_a_server_loads_no_baseline() -> None:
    done = subprocess.run([sys.executable, "-c", LIVE], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


POOLS = (Pool("a", 2), Pool("b", 2))
GAVEL, PUBLISHED = GavelSettings(), GavelSettings(published=True)


def jobs(names: str, *, gang: int = 1) -> Problem:
    return Problem.columnar(POOLS, np.ones((len(names), 2)), ids=list(names), gang=gang)


def allotted(problem: Problem, share: list[list[float]]) -> Allocation:
    return Allocation(problem, "given", np.array(share), np.zeros(2))


def test_the_smallest_share_decides_who_has_what_is_left() -> None:
    problem = jobs("abcd")
    share = [[1.0, 0.0], [1.0, 0.0], [0.0, 1e-9], [0.0, 1e-8]]
    for settings in (PUBLISHED, GAVEL):
        rounds = GavelRounds(settings)
        rounds.enter(problem, allotted(problem, share), now=0.0)
        assert rounds.next(0.0).column.tolist() == [0, 0, 1, 1]
    one = Problem.columnar((Pool("a", 1),), np.ones((3, 1)), ids=list("abc"))
    for settings, runs in ((PUBLISHED, 2), (GAVEL, 0)):
        rounds = GavelRounds(settings)
        rounds.enter(one, Allocation(one, "given", np.array([[1e-9], [1e-8], [1e-7]]), np.zeros(1)), now=0.0)
        assert int(np.flatnonzero(rounds.next(0.0).column == 0)[0]) == runs


def test_a_newcomer_keeps_a_place_empty_until_the_next_allocation() -> None:
    def jobs_on_two(names: str) -> Problem:
        return Problem.columnar((Pool("a", 2),), np.ones((len(names), 1)), ids=list(names))

    rounds = GavelRounds(PUBLISHED)
    first, more = jobs_on_two("a"), jobs_on_two("ab")
    rounds.enter(first, Allocation(first, "given", np.ones((1, 1)), np.zeros(1)), now=0.0)
    assert rounds.next(0.0).column.tolist() == [0]
    rounds.enter(more, now=360.0)
    assert rounds.next(360.0).column.tolist() == [0, -1]
    rounds.enter(more, Allocation(more, "given", np.ones((2, 1)), np.zeros(1)), now=720.0)
    assert rounds.next(720.0).column.tolist() == [0, 0]


def test_columns_are_shuffled_as_pythons_generator_says() -> None:
    """One job that may run anywhere goes to the column that is visited first."""
    pools = tuple(Pool(name, 1) for name in "xyz")
    problem = Problem.columnar(pools, np.ones((1, 3)))
    rounds = GavelRounds(GavelSettings(shuffle=7, published=True))
    rounds.enter(problem, Allocation(problem, "given", np.full((1, 3), 1 / 3), np.zeros(3)), now=0.0)
    expected, chance = [], random.Random(7 + 5)
    for _ in range(12):
        order = [0, 1, 2]
        chance.shuffle(order)
        expected.append(order[0])
    found = [int(rounds.next(0.0).column[0]) for _ in range(12)]
    assert found == expected


@pytest.mark.few(count=2)
@pytest.mark.parametrize("policy", ["max-min", "makespan", "finish-time"])
@pytest.mark.parametrize("agnostic", [False, True])
def test_everything_is_done_and_the_same_seed_gives_the_same(policy: str, agnostic: bool) -> None:
    table = gavel_table()
    work = gavel_jobs(table, count=25, per_hour=6.0, seed=1, gangs=True)
    work.gang[work.gang > 4] = 4
    made = cluster_of(work, [Pool(name, 4) for name in ("v100", "p100", "k80")], table)
    run = run_of(policy, mechanism="published", agnostic=agnostic, seed=3)
    first, second = simulate(made, run), simulate(made, run)
    assert np.isfinite(first.finished).all()
    assert first.finished.tolist() == second.finished.tolist()


def test_objectives_that_leave_much_open_are_not_filled_in() -> None:
    """Of a batch all end together by Gavel's makespan, and short jobs first by ours, no later."""
    made = cluster([3600.0] * 6 + [36_000.0] * 6, fast=2, slow=2)
    theirs = simulate(made, run_of("makespan", mechanism="published"))
    ours = simulate(made, run_of("blend"))
    assert ours.jct_s.mean() < 0.8 * theirs.jct_s.mean()
    assert ours.ended <= theirs.ended * 1.05


@pytest.mark.parametrize("options", [{"unsaved": 0.5}, {"faults": Faults(mtbf_h=20.0)}])
def test_what_gavels_jobs_never_do_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match="Gavel's jobs all save their work, and none fails"):
        run_of("max-min", mechanism="published", **options)


@pytest.mark.parametrize(
    "options", [{"pools": [Pool("fast", 4, per_node=2)]}, {"prices": [PriceChange(0.0, "fast", 1.0)]}]
)
def test_what_gavels_clusters_do_not_have_is_refused(options: dict[str, Any]) -> None:
    made = cluster_of(workload([3600.0]), options.pop("pools", [Pool("fast", 4)]), throughputs(), **options)
    with pytest.raises(Invalid, match="no machines, and no prices that change"):
        simulate(made, run_of("max-min", mechanism="gavel"))
