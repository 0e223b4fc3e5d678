"""A policy that another package declares: simulated, compared, and in the server; and one that is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from shoal.core import Invalid, Money, Throughput
from shoal.schedule import POLICIES, Allocation, JobView, Pool, Problem, decide, problem_of
from shoal.schedule.sound import check
from tests.packages import install

DECLARATION = """
from shoal.extension import Component
IT = Component(policies={name: "others:" + name.upper() for name in ("greedy", "wrong", "raising", "nothing", "fifo")})
"""

POLICY = """
import numpy as np
from dataclasses import replace
from shoal.schedule import Policy, Room, by_arrival, placed, subproblem_of

def greedy(problem):
    sub = subproblem_of(problem)
    room = Room(sub)
    for row in by_arrival(sub):
        fits = np.flatnonzero(room.fits(row))
        if len(fits):
            room.put(row, fits[0])
    return placed(sub, room.column, "greedy")

def wrong(problem):
    found = greedy(problem)
    return replace(found, share=np.ones_like(found.share))

def raising(problem):
    raise ZeroDivisionError("by itself")

GREEDY, WRONG, RAISING, FIFO = (Policy(one.__name__, one) for one in (greedy, wrong, raising, greedy))
NOTHING = greedy
"""


def shoal(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = install(folder, "others", {"others.py": POLICY, "declared.py": DECLARATION}, {"others": "declared:IT"})
    return subprocess.run(
        [sys.executable, "-m", "shoal.cli", "schedule", *words], env=environ, capture_output=True, text=True,
        check=False, timeout=100,
    )  # fmt: skip


def problem(jobs: int = 3, count: int = 1) -> Problem:
    pools = [Pool("v100", count), Pool("k80", 1)]
    views = [JobView(f"j-{at}", "default", {"v100": _speed(2.0), "k80": _speed(1.0)}) for at in range(jobs)]
    return problem_of(views, pools, now=0.0)


def _speed(rate: float) -> Throughput:
    return Throughput(rate)


def test_shoals_own_policies_are_declared() -> None:
    assert {"fifo", "max-min", "elastic", "blend"} <= set(POLICIES)
    assert len(POLICIES) == len(list(POLICIES))
    assert all(POLICIES[name].name == name and not POLICIES[name].checked for name in POLICIES)
    assert "no-such" not in POLICIES


@pytest.mark.few(count=2)
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("raising", "by itself"),
        ("wrong", "wrong uses 2 of 1 accelerators of v100"),
        ("nothing", "others:NOTHING of the package others is no policy of the name 'nothing'"),
        ("no-such", "there is no policy 'no-such'"),
    ],
)
def test_a_policy_that_cannot_be_used_is_an_error(name: str, why: str, tmp_path: Path) -> None:
    snapshot = tmp_path / "jobs.jsonl"
    shoal(tmp_path / "p", "generate", "--jobs", "3", "--out", str(snapshot))
    ran = shoal(tmp_path / "q", "simulate", "--trace", str(snapshot), "--cluster", "v100=1", "--policy", name)
    assert ran.returncode != 0
    assert why in ran.stderr, ran.stderr


@pytest.mark.slow
def test_a_policy_of_shoals_name_is_not_used(tmp_path: Path) -> None:
    trace = tmp_path / "jobs.trace"
    shoal(tmp_path / "p", "generate", "--jobs", "6", "--per-hour", "4", "--out", str(trace))
    words = ["simulate", "--trace", str(trace), "--cluster", "v100=2", "--policy", "fifo,greedy", "--json"]
    ran = shoal(tmp_path / "q", *words)
    assert ran.returncode == 0, ran.stderr
    assert list(json.loads(ran.stdout)["policies"]) == ["fifo", "greedy"]


@pytest.mark.parametrize(
    ("share", "why"),
    [
        ([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], None),
        ([[0.5, 0.0], [0.5, 0.5], [0.0, 0.5]], None),
        ([[1.0, 0.0], [0.5, 0.0], [0.0, 0.0]], "uses 1.5 of 1 accelerators of v100"),
        ([[0.6, 0.6], [0.0, 0.0], [0.0, 0.0]], "gives j-0 no part of time"),
        ([[0.0, 0.0], [-0.5, 0.0], [0.0, 0.0]], "gives j-1 no part of time"),
        ([[0.0, 0.0], [0.0, np.nan], [0.0, 0.0]], "gives j-1 no part of time"),
        ([[0.0, 0.0], [0.0, 0.0]], "share has the shape"),
    ],
)
def test_what_nothing_could_carry_out_is_refused(share: list[list[float]], why: str | None) -> None:
    asked = problem()
    found = Allocation(asked, "other", np.array(share), np.zeros(2))
    if why is None:
        check(found, asked, "other")
        return
    with pytest.raises(Invalid, match=why):
        check(found, asked, "other")


def test_time_where_a_job_cannot_run_and_other_problems_are_refused() -> None:
    asked = Problem.columnar([Pool("v100", 1), Pool("k80", 1)], [[1.0, 0.0]])
    with pytest.raises(Invalid, match="time where they cannot run"):
        check(Allocation(asked, "other", np.array([[0.0, 1.0]]), np.zeros(2)), asked, "other")
    for one in (None, decide("fifo", problem())):
        with pytest.raises(Invalid, match="no allocation of the problem"):
            check(one, asked, "other")


@pytest.mark.parametrize("name", POLICIES)
def test_shoals_own_keep_the_rules_that_others_are_held_to(name: str) -> None:
    pools = [Pool("v100", 2, Money.usd(2)), Pool("k80", 3, Money.usd(1))]
    asked = Problem.columnar(pools, np.ones((4, 2)), work_left=10.0)
    check(decide(name, asked), asked, name)
