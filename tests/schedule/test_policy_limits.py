"""What cannot be had is refused by name, and every answer can be explained: deadlines, quotas, bad input, reasons."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from shoal.core import Invalid, Money, Quota, Tenant, Throughput
from shoal.schedule import (
    POLICIES,
    Configuration,
    Infeasible,
    JobView,
    Pool,
    Problem,
    decide,
    problem_of,
    reason_of,
)
from shoal.schedule.policy.hierarchical import Entity

POOLS = [Pool("k80", 4, Money.usd(0.5)), Pool("v100", 2, Money.usd(2.5))]


def job(name: str, **given: Any) -> JobView:
    rates = {"k80": Throughput(1.0), "v100": Throughput(4.0)}
    return JobView(name, **{"tenant": "t", "throughput": rates, "work_left": 3600.0, **given})


def with_deadlines(*seconds: float, **given: Any) -> Problem:
    jobs = [job(f"job-{at}", deadline=second, **given) for at, second in enumerate(seconds)]
    return problem_of(jobs, POOLS, tenants=[Tenant("t", quota=Quota(by_type=(("v100", 1),)))])


@pytest.mark.parametrize(("name", "asked"), [("min-cost", {}), ("max-throughput", {"deadlines": True})])
class TestInfeasible:
    def test_a_deadline_that_nobody_could_keep_names_its_job(self, name: str, asked: dict[str, Any]) -> None:
        with pytest.raises(Infeasible, match=r"job-1 needs 7\.2 steps/s and reaches 4") as refused:
            decide(name, with_deadlines(3600.0, 500.0), **asked)
        assert refused.value.constraints == ("deadline of job job-1",)
        assert refused.value.hint

    def test_together_the_used_up_limits_come_first_and_then_the_jobs(self, name: str, asked: dict[str, Any]) -> None:
        with pytest.raises(Infeasible, match=r"the deadlines need 1\.\d+ times what there is") as refused:
            decide(name, with_deadlines(*[1000.0] * 3, 1e6, np.inf), **asked)
        assert refused.value.constraints[0] == "quota of t: v100"
        assert set(refused.value.constraints[1:]) == {f"deadline of job job-{at}" for at in range(4)}

    def test_a_pool_that_is_too_small_is_named(self, name: str, asked: dict[str, Any]) -> None:
        problem = replace(with_deadlines(*[1000.0] * 3), tenants=(Tenant("t"),))
        with pytest.raises(Infeasible) as refused:
            decide(name, problem, **asked)
        assert refused.value.constraints[0] == "v100"

    def test_what_is_just_possible_is_done(self, name: str, asked: dict[str, Any]) -> None:
        problem = with_deadlines(900.0, *[3600.0] * 4)
        found = decide(name, problem, **asked)
        assert (found.throughput >= 3600.0 / problem.deadline * (1 - 1e-6)).all()

    def test_a_deadline_needs_a_length_and_a_future(self, name: str, asked: dict[str, Any]) -> None:
        with pytest.raises(Invalid, match="the work that is left is not known") as unknown:
            decide(name, with_deadlines(3600.0, work_left=None), **asked)
        assert unknown.value.where == "job job-0"
        with pytest.raises(Invalid, match="passed its deadline"):
            decide(name, replace(with_deadlines(3600.0), now=4000.0), **asked)


class TestBadInput:
    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"rate": [[1.0, np.nan]]}, "must be finite and not negative"),
            ({"rate": [[1.0, -2.0]]}, "must be finite and not negative"),
            ({"rate": [[1.0]]}, "the pools have 2 columns"),
            ({"gang": 0}, "at least one accelerator"),
            ({"gang": 1.5}, "whole numbers"),
            ({"weight": 0.0}, "must be positive and finite"),
            ({"work_left": -1.0}, "must be finite and not negative"),
            ({"deadline": np.nan}, "must be a time"),
            ({"placed": 2}, "is no column"),
            ({"held": True}, "placed nowhere"),
            ({"tenant": 1}, "is no tenant"),
            ({"entity": -1}, "is no entity"),
            ({"kind": 3, "pair_rate": np.ones((2, 2, 2))}, "kind is not in the table"),
            ({"pair_rate": np.full((1, 1, 2), np.nan)}, "must be finite and not negative"),
            ({"weight": [1.0, 2.0]}, "expected 1 values"),
            ({"ids": ["a", "b"]}, "2 ids for 1 jobs"),
        ],
    )
    def test_of_problems(self, given: dict[str, Any], said: str) -> None:
        with pytest.raises(Invalid, match=said):
            Problem.columnar(POOLS, given.pop("rate", [[1.0, 2.0]]), **given)

    def test_every_fault_is_listed_with_its_job(self) -> None:
        with pytest.raises(Invalid) as refused:
            problem_of([job("a", weight=-1.0, gang=0), job("b", work_left=-5.0), job("b")], POOLS)
        assert {fault.where for fault in refused.value.problems} == {"job a", "job b"}
        assert len(refused.value.problems) == 4

    def test_of_pools(self) -> None:
        with pytest.raises(Invalid, match="two pools offer this column"):
            problem_of([], [Pool("k80", 1), Pool("k80", 1)])
        with pytest.raises(Invalid, match="-1 accelerators"):
            problem_of([], [Pool("k80", -1)])
        with pytest.raises(Invalid, match="'a100', which no pool offers"):
            problem_of([job("a", placed="a100")], POOLS)

    @pytest.mark.parametrize(
        ("name", "settings", "said"),
        [
            ("fair", {}, "there is no policy 'fair'"),
            ("fifo", {"floor": 1.0}, "fifo has no setting floor"),
            ("blend", {"floor": 2.0}, "a floor of 2.0"),
            ("max-min", {"worth": {"a100": 1.0}}, "worth 1.0 of 'a100'"),
            ("max-min", {"worth": {"v100": -1.0}}, "worth -1.0"),
            ("max-min", {"space_sharing": True}, "needs the rates of co-located jobs"),
            ("makespan", {"agnostic": True, "space_sharing": True}, "does not look at"),
            ("hierarchical", {"entities": {"nobody": Entity()}}, "entity 'nobody'"),
            ("elastic", {"power": 0.0}, "power 0.0"),
            ("allox", {"considered": -1.0}, "a part of -1.0"),
        ],
    )
    def test_of_settings(self, name: str, settings: dict[str, Any], said: str) -> None:
        with pytest.raises(Invalid, match=said) as refused:
            decide(name, problem_of([job("a")], POOLS), **settings)
        assert refused.value.where in (None, "pair_rate", "policy", name, *settings)

    @pytest.mark.parametrize("name", [name for name, policy in POLICIES.items() if policy.needs_lengths])
    def test_unknown_lengths_are_refused_where_they_are_needed(self, name: str) -> None:
        with pytest.raises(Invalid, match="needs to know the work that is left, and 1 jobs do not say") as refused:
            decide(name, problem_of([job("a"), job("b", work_left=None)], POOLS))
        assert refused.value.where == "job b"

    def test_prices_are_asked_for_where_they_are_needed(self) -> None:
        problem = problem_of([job("a")], [Pool("k80", 1)])
        with pytest.raises(Invalid, match="needs a price"):
            decide("min-cost", problem)
        assert decide("min-cost", problem, aim="spend").certificate is not None


class TestWhoCannotRun:
    def test_a_gang_that_fits_nowhere_waits_and_is_named(self) -> None:
        problem = problem_of([job("big", gang=5), job("small")], POOLS)
        found = decide("max-min", problem)
        assert found.time.tolist() == pytest.approx([0.0, 1.0])
        assert reason_of(found, 0).code == "fits-nowhere"

    def test_an_elastic_job_fits_where_a_configuration_does(self) -> None:
        ways = (Configuration("v100", 2, Throughput(5.0)), Configuration("v100", 8, Throughput(9.0)))
        problem = problem_of([job("a", throughput={}, gang=8, elastic=ways)], POOLS)
        found = decide("elastic", problem)
        assert found.configuration is not None
        assert found.configuration.tolist() == [0]
        assert found.throughput.tolist() == [5.0]
        assert found.usage.tolist() == [0.0, 2.0]


class TestReasons:
    def test_codes(self) -> None:
        held = job("held", placed="v100", placed_s=10.0, min_run_s=60.0, gang=2)
        problem = problem_of([held, *(job(f"job-{at}") for at in range(8))], POOLS)
        found = decide("max-min", problem)
        assert [reason_of(found, at).code for at in (0, 1)] == ["held", "shared"]
        assert "minimum run time" in reason_of(found, 0).text
        assert reason_of(found, 1).text == "runs 50% of the time, on k80: k80, v100 are used up"
        assert reason_of(found, 1).facts["time"] == pytest.approx(0.5)

    def test_the_exchange_rate_of_two_types_is_said(self) -> None:
        jobs = [
            job(f"job-{at}", throughput={"k80": Throughput(1.0), "v100": Throughput(speed)})
            for at, speed in enumerate([1.5, 3.0, 3.0, 3.0, 3.0, 9.0] * 4)
        ]
        found = decide("makespan", problem_of(jobs, POOLS))
        said = "k80, v100 are used up; an hour on v100 is worth 3 on k80, and it is only 1.5 times as fast there"
        assert reason_of(found, 0).text.endswith(said)
        assert reason_of(found, 1).text.endswith("k80, v100 are used up")
        assert found.prices[1] > found.prices[0] > 0.0

    def test_a_used_up_quota_is_said(self) -> None:
        tenants = [Tenant("t", quota=Quota(accelerators=1)), Tenant("u")]
        problem = problem_of([job("a"), job("b"), job("c", tenant="u")], POOLS, tenants=tenants)
        found = decide("max-min", problem)
        assert reason_of(found, 0).text.endswith("quota of t: all types is used up")
        assert reason_of(found, 2).code == "whole"
        assert found.limits["quota of t: all types"] >= 0.0

    def test_spare_room_that_a_policy_does_not_want_is_said(self) -> None:
        found = decide("min-cost", problem_of([job("a")], POOLS), aim="spend")
        assert "min-cost gains nothing" in reason_of(found, 0).text
