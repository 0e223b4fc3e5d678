"""Requests that are made up, through policies and through caches that follow requests."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from shoal.cache import Mode, Outlook, problem_of
from shoal.cache.baselines import FairRide, LeastRecentlyUsed
from shoal.cache.policy.demand import capped
from shoal.cache.simulate import WORKLOADS, Job, Run, Workload, policy_names, robus, run, train
from shoal.cache.simulate.workloads import RANKS, recorded
from shoal.cli.app import app
from shoal.core import Invalid

FOUR = [RANKS[one] for one in (1, 2, 3, 4)]


def call(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["cache", *map(str, words)])
    assert result.exit_code == code, result.output
    return result.output


def test_robus_reads_what_its_ranks_say() -> None:
    workload = robus(FOUR, 2000, 1)
    mean = np.mean(workload.reads, axis=0)
    assert mean.sum(1) == pytest.approx([5, 5, 5, 5], rel=0.05)
    for tenant, ranks in enumerate(FOUR):
        assert mean[tenant, ranks.index(1)] == mean[tenant].max()
        assert mean[tenant, ranks.index(1)] / mean[tenant, ranks.index(2)] == pytest.approx(2, rel=0.15)
    with pytest.raises(Invalid, match="once"):
        robus([[1] * 20], 1, 0)


def test_every_policy_runs_on_every_workload() -> None:
    for workload in (made(3, 12, 1) for made in WORKLOADS.values()):
        assert workload.asked.min() > 0
        for name in policy_names():
            found = run(workload, name, Run(0.3 * float(workload.size.sum()))).as_json()
            assert 0 <= found["saved_fraction"] <= 1 + 1e-9
            assert all(0 <= part <= 1 + 1e-9 for part in found["by_tenant"])
    with pytest.raises(Invalid, match="no policy"):
        run(workload, "best", Run(1.0))


def test_fair_policies_break_no_incentive_and_the_others_do() -> None:
    found = {name: run(robus(FOUR, 40, 2), name, Run(2000.0)).as_json() for name in ("pf", "mmf", "rsd", "optp", "lru")}
    broken = {name: one["sharing_incentive_violations"] for name, one in found.items()}
    assert broken["pf"] == broken["mmf"] == broken["rsd"] == 0
    assert broken["lru"] > 0.5
    assert broken["optp"] > 0
    assert found["pf"]["max_gap"] <= 1e-3
    assert found["mmf"]["min_v"] >= found["pf"]["min_v"] - 1e-6
    assert found["optp"]["saved_fraction"] >= found["pf"]["saved_fraction"] - 0.02


def test_a_policy_that_knows_the_cost_of_loading_loads_less_and_saves_more_than_lru() -> None:
    workload = robus(FOUR, 150, 3)
    charged = run(workload, "pf", Run(1000.0, charge_loading=True, outlook=Outlook())).as_json()
    blind = run(workload, "pf", Run(1000.0)).as_json()
    lru = run(workload, "lru", Run(1000.0, charge_loading=True)).as_json()
    assert charged["loaded_fraction"] < 0.6 * blind["loaded_fraction"]
    assert charged["saved_fraction"] > 1.2 * lru["saved_fraction"]
    assert charged["sharing_incentive_violations"] == 0


def test_what_is_saved_is_what_was_not_read_from_the_source() -> None:
    """One tenant, one set that fits: its first read is a load, all the others are saved."""
    workload = Workload(np.array([10.0]), tuple(np.array([[count]]) for count in (2.0, 0.0, 3.0)))
    settings = Run(10.0, charge_loading=True, outlook=Outlook())
    for name in ("pf", "lru"):
        found = run(workload, name, settings)
        assert found.saved.tolist() == [40.0]
        assert found.loaded == 10.0
    assert run(workload, "pf", Run(10.0)).saved.tolist() == [50.0]


def test_a_load_that_serves_many_is_shared() -> None:
    reads, average = np.array([[3.0, 0.0], [1.0, 0.0]]), np.array([[0.0, 1.0], [0.0, 3.0]])
    problem = problem_of(Mode.LOTTERY, 10, np.array([8.0, 8.0]), reads, average, np.zeros(2), Outlook(0.0, 0.1))
    assert problem.fresh[:, 0] == pytest.approx([3 * 8 - 6, 8 - 2])
    assert problem.fresh[:, 1] == pytest.approx([0, 0])
    known = problem_of(Mode.LOTTERY, 10, np.array([8.0, 8.0]), reads, average, np.zeros(2), Outlook(5.0, 0.1))
    assert known.fresh[:, 1] == pytest.approx([5 * 8 - 2, 15 * 8 - 6])


def test_the_average_forgets() -> None:
    outlook = Outlook(1.0, 0.25)
    assert outlook.remember(np.array([8.0]), np.array([0.0])) == pytest.approx([6.0])
    assert outlook.remember(np.array([0.0]), np.array([8.0])) == pytest.approx([2.0])


def test_demand_is_bounded_by_what_was_measured_and_by_the_devices() -> None:
    declared, measured = np.array([[100.0, 1.0, 7.0]]), np.array([[10.0, 10.0, 0.0]])
    assert capped(declared, measured, np.array([1000.0])).tolist() == [[20.0, 5.0, 7.0]]
    assert capped(declared, measured, np.array([16.0])).sum() == pytest.approx(16)


def test_lru_lets_go_of_what_was_read_longest_ago() -> None:
    cache = LeastRecentlyUsed(np.array([2.0, 2.0, 2.0, 9.0]), 4.0)
    assert [cache.read(0, one) for one in (0, 1, 0, 2, 0, 1, 3, 0)] == [
        False,
        False,
        True,
        False,
        True,
        False,
        False,
        True,
    ]


def test_fairride_makes_those_wait_who_do_not_pay() -> None:
    cache = FairRide(np.array([4.0, 1.0]), 4.0, 2, np.random.default_rng(0))
    assert cache.read(0, 1) is False
    assert cache.read(0, 1) is True
    waits = 0
    for seed in range(200):
        fresh = FairRide(np.array([4.0, 1.0]), 4.0, 2, np.random.default_rng(seed))
        fresh.read(0, 1)
        waits += not fresh.read(1, 1)
        assert fresh.read(1, 1) is True
    assert waits == pytest.approx(100, abs=30)
    assert [cache.read(0, 0) for _ in range(3)] == [False, False, False]  # larger than half of the cache


# --- training ---


def test_a_kept_half_stalls_less_than_lru_where_the_link_is_the_limit() -> None:
    items = {"a": 400, "b": 400, "c": 400}
    jobs = [Job(name, 100.0) for name in items]

    def trained(policy: str) -> float:
        return float(train(items, jobs, policy=policy, capacity=600, link=180, horizon_s=60).stall.sum())

    assert trained("pf") < 0.4 * trained("lru")


def test_a_training_whose_data_is_cached_waits_only_for_its_first_epoch() -> None:
    found = train({"a": 100}, [Job("a", 100.0)], policy="pf", capacity=100, link=50, horizon_s=100)
    assert found.loaded == 100
    assert found.stall[0] * 100 == pytest.approx(1.0, abs=0.2)


# --- the commands ---


def test_simulate_names_its_policies() -> None:
    found = json.loads(call("simulate", "--batches", 10, "--policy", "pf,lru,static", "--json"))
    assert found["simulated"] is True
    assert list(found["policies"]) == ["pf", "lru", "static"]
    assert {"saved_fraction", "loaded_fraction", "by_tenant", "min_v", "sharing_incentive_violations", "max_gap",
            "ms_median", "ms_p99"} <= found["policies"]["pf"].keys()  # fmt: skip
    assert call("simulate", "--batches", 10, "--seed", 3, "--policy", "lru").startswith("simulated:")


def test_simulate_reads_ranks_and_traces(tmp_path: Path) -> None:
    ranks = tmp_path / "ranks"
    ranks.write_text("\n".join(" ".join(map(str, row)) for row in FOUR))
    one = json.loads(call("simulate", "--batches", 5, "--policy", "pf", "--rank-file", ranks, "--json"))
    other = json.loads(call("simulate", "--batches", 5, "--policy", "pf", "--json"))
    assert one["policies"]["pf"]["by_tenant"] == other["policies"]["pf"]["by_tenant"]
    ranks.write_text("1 2 3\n")
    assert "once" in call("simulate", "--rank-file", ranks, code=2)
    trace = tmp_path / "trace"
    trace.write_text("# a trace\n0.5,a,x,10\n11,b,y,20\n12,a,x,10\n")
    found = json.loads(call("simulate", "--workload", trace, "--policy", "pf,lru", "--capacity", 100, "--json"))
    assert found["policies"]["lru"]["saved_fraction"] == pytest.approx(10 / 40)
    for wrong in ("1,a,x", "nan,a,x,1", "1,a,x,-1", "1e30,a,x,1"):
        with pytest.raises(Invalid, match="meant"):
            recorded(wrong, "trace")


@pytest.mark.parametrize(
    ("words", "text"),
    [(["--workload", "none"], "no workload"), (["--ranks", "1,9"], "1 to 4"), (["--policy", "best"], "no policy")],
)
def test_simulate_refuses_what_it_does_not_know(words: list[str], text: str) -> None:
    assert text in call("simulate", *words, code=2)


SMALL = {
    "mode": "fraction", "capacity": 100, "tenants": {"a": 1, "b": 2}, "sets": {"x": {"size": 80}, "y": {"size": 90}},
    "benefit": {"a": {"x": 1}, "b": {"y": 1}},
}  # fmt: skip


def test_solve_gives_fractions_and_lotteries_with_their_gap(tmp_path: Path) -> None:
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(SMALL))
    found = json.loads(call("solve", path, "--json"))
    assert found["fractions"] == pytest.approx({"x": 100 / 3 / 80, "y": 200 / 3 / 90}, abs=0.02)
    assert found["gap"] <= 1e-3
    assert found["reasons"]["x"]["code"] == "partly"
    path.write_text(json.dumps({**SMALL, "mode": "lottery", "cached": ["x"]}))
    found = json.loads(call("solve", path, "--json"))
    chances = {tuple(one["sets"]): one["p"] for one in found["lottery"]}
    assert chances == pytest.approx({("x",): 1 / 3, ("y",): 2 / 3}, abs=0.01)
    assert "gap" in call("solve", path)


@pytest.mark.few(count=4)
@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"capacity": -1}, "at least 0"), ({"benefit": {"c": {"x": 1}}}, "'c' is not under"),
        ({"benefit": {"a": {"z": 1}}}, "'z' is not under"), ({"benefit": {"a": {"x": -1}}}, "benefit"),
        ({"cached": ["z"]}, "'z' is not under"), ({"mode": "magic"}, "fraction or lottery"),
        ({"tenants": {"a": float("nan")}}, "finite"), ({"more": 1}, "no such field"),
        ({"mode": "lottery", "cached": {"x": 0.5}}, "whole"),
    ],
)  # fmt: skip
def test_solve_refuses_what_means_nothing(tmp_path: Path, change: dict[str, object], text: str) -> None:
    path = tmp_path / "problem.json"
    path.write_text(json.dumps({**SMALL, **change}))
    assert text in call("solve", path, code=2)
    path.write_text("{")
    assert "not JSON" in call("solve", path, code=2)
