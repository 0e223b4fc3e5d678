"""The simulator: its accounting by hand, its conservation laws, and that a run is what its seed says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.core import Invalid, Money, Quota, Tenant, Throughput
from shoal.schedule import POLICIES, Configurations, JobView, Pool, Problem, problem_of
from shoal.schedule.live.plan import what_if
from shoal.schedule.loop import decide_round
from shoal.schedule.metrics import metrics_of
from shoal.schedule.presets import ScheduleSettings, ask, resize_s
from shoal.schedule.rounds import State
from shoal.schedule.simulate import Faults, Lengths, Run, Simulated, cluster_of, run_of, simulate
from shoal.schedule.simulate.lengths import LengthOracle
from shoal.schedule.workloads import PriceChange, Snapshot, gavel_jobs, philly_jobs
from tests.schedule.kit import cluster, gavel_table, overloaded, throughputs, workload

POOLS = tuple(Pool(name, 4, Money.usd(usd)) for name, usd in (("v100", 2.5), ("p100", 1.5), ("k80", 0.5)))


class TestGavelsAccounting:
    """Whole steps a round, ends inside of it, newcomers at its beginning."""

    def test_a_job_alone_takes_its_time(self) -> None:
        found = simulate(cluster([10_000.0]), gavel("max-min"))
        assert found.jct_s.tolist() == [1000.0]
        assert found.ran_s.tolist() == [1000.0]
        assert found.restarts.tolist() == [0]

    def test_who_arrives_in_a_round_waits_for_the_next(self) -> None:
        found = simulate(cluster([36_000.0, 1000.0], fast=2, arrived=[0.0, 400.0]), gavel("max-min"))
        assert found.started.tolist() == [0.0, 720.0]
        assert found.finished.tolist() == [3600.0, 820.0]

    def test_a_freed_accelerator_waits_for_the_next_round(self) -> None:
        found = simulate(cluster([1000.0, 3600.0]), gavel("fifo"))
        assert found.finished.tolist() == [100.0, 100.0 + 360.0]
        held = simulate(cluster([1000.0, 3600.0, 36_000.0], fast=2), gavel("fifo"))
        assert held.finished.tolist()[:2] == [100.0, 360.0], "the round ends with its last job"
        late = simulate(cluster([1000.0, 36_000.0, 3600.0], fast=2), gavel("fifo"))
        assert late.finished.tolist() == [100.0, 3600.0, 720.0]

    def test_a_step_that_a_round_cuts_is_done_again(self) -> None:
        slow = workload([30.0], kind=[2])
        table = throughputs()
        rate = table.rate.copy()
        rate[:] = 0.0305  # 10.98 steps a round
        found = simulate(
            cluster_of(slow, [Pool("fast", 1)], type(table)(table.source, table.types, table.keys, rate, table.pair)),
            gavel("max-min"),
        )
        assert found.jct_s[0] == pytest.approx(720.0 + 10 / 0.0305)

    def test_sharing_accelerators_gives_the_measured_speeds_of_pairs(self) -> None:
        pair = cluster([8000.0, 8000.0], space_sharing=True)
        found = simulate(pair, gavel("max-min", space_sharing=True))
        assert found.finished.tolist() == [1000.0, 1000.0]
        assert found.held_s.sum() == pytest.approx(1000.0), "one accelerator, held once"


def gavel(name: str, **options: Any) -> Run:
    return run_of(name, mechanism="gavel", **options)


class TestAccounting:
    """The control plane's: what becomes free is given out at once."""

    def test_a_job_alone_takes_its_time(self) -> None:
        found = simulate(cluster([10_000.0]), run_of("max-min"))
        assert found.jct_s.tolist() == [1000.0]
        assert found.ran_s.tolist() == [1000.0]
        assert found.restarts.tolist() == [0]

    def test_who_arrives_in_a_round_has_what_is_free_at_once(self) -> None:
        found = simulate(cluster([36_000.0, 1000.0], fast=2, arrived=[0.0, 400.0]), run_of("max-min"))
        assert found.started.tolist() == [0.0, 400.0]
        assert found.finished.tolist() == [3600.0, 500.0]

    def test_a_freed_accelerator_is_given_out_at_once(self) -> None:
        assert simulate(cluster([1000.0, 3600.0]), run_of("fifo")).finished.tolist() == [100.0, 460.0]

    def test_a_migration_costs_what_it_costs(self) -> None:
        """Two jobs on one accelerator, by turns: each turn but the first begins with a restart."""
        free = simulate(cluster([7200.0, 7200.0]), run_of("max-min", agnostic=True))
        dear = simulate(cluster([72_000.0, 72_000.0]), run_of("max-min", agnostic=True, restart_s=60.0))
        assert free.restarts.sum() > 0
        assert dear.restarts.sum() > 0
        assert dear.ended - dear.began == pytest.approx(14_400.0 + 60.0 * dear.restarts.sum(), abs=1.0)
        assert dear.lost_s.sum() == pytest.approx(60.0 * dear.restarts.sum())
        assert (free.ended - free.began) == pytest.approx(1440.0)

    def test_a_place_is_kept_for_ten_restarts(self) -> None:
        """As live: a tenth of the time at most goes into restarts."""
        found = simulate(cluster([72_000.0] * 3), run_of("max-min", restart_s=60.0))
        assert 0 < found.lost_s.sum() <= 0.1 * (found.ended - found.began)
        gavels = simulate(cluster([72_000.0] * 3), gavel("max-min", restart_s=60.0))
        assert found.restarts.sum() < gavels.restarts.sum()

    def test_elastic_jobs_take_what_is_free(self) -> None:
        found = simulate(cluster([40_000.0], fast=4, elastic=True), run_of("elastic"))
        assert found.jct_s[0] == pytest.approx(1000.0)
        assert found.held_s[0] == pytest.approx(4000.0)

    def test_prices_over_time_are_paid(self) -> None:
        prices = (PriceChange(0.0, "fast", 3.6), PriceChange(1080.0, "fast", 7.2))
        found = simulate(cluster([21_600.0], prices=prices), run_of("max-min"))
        assert found.cost_usd[0] == pytest.approx(1.08 + 2 * 1.08)

    def test_checkpoints_slow_a_job_down(self) -> None:
        found = simulate(cluster([10_000.0]), run_of("max-min", faults=Faults(every_s=90.0, cost_s=10.0)))
        assert found.jct_s[0] == pytest.approx(1000.0 / 0.9, rel=0.01)
        assert found.lost_s[0] == pytest.approx(1000.0 / 9.0)

    def test_failures_throw_back_to_the_last_checkpoint(self) -> None:
        run = run_of("max-min", faults=Faults(mtbf_h=1.0, every_s=600.0), restart_s=30.0, seed=3)
        found = simulate(cluster([200_000.0]), run)
        assert found.failures[0] > 0
        assert found.restarts[0] == found.failures[0]
        lost = found.jct_s[0] - 20_000.0
        assert 30.0 * found.failures[0] < lost < (600.0 + 30.0 + 360.0) * (found.failures[0] + 1)

    def test_a_window_is_simulated_until_its_jobs_are_done(self) -> None:
        found = simulate(cluster([3600.0] * 5), run_of("fifo", mechanism="shoal"), measured=range(1, 3))
        assert found.measured.tolist() == [1, 2]
        assert found.finished[:3].tolist() == [360.0, 720.0, 1080.0]
        assert np.isnan(found.finished[3:]).all()

    def test_a_quota_is_kept(self) -> None:
        work = workload([3600.0] * 3)
        tenants = (Tenant("default", quota=Quota(accelerators=1)),)
        work = type(work)(**{**{name: getattr(work, name) for name in work.__dataclass_fields__}, "tenants": tenants})
        found = simulate(cluster_of(work, [Pool("fast", 3)], throughputs()), run_of("max-min", mechanism="shoal"))
        assert found.ended == pytest.approx(1080.0)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.slow
def test_every_policy_finishes_every_job(name: str) -> None:
    table = gavel_table()
    work = gavel_jobs(table, count=25, per_hour=6.0, seed=1, gangs=name not in ("allox",))
    work = work if (work.gang <= 4).all() else _without_large(work)
    sharing = name == "gandiva"
    made = cluster_of(work, POOLS, table, elastic=name == "elastic", space_sharing=sharing)
    mechanism = "gavel" if sharing else "shoal"
    found = simulate(made, run_of(name, restart_s=20.0, round_s=3600.0, mechanism=mechanism))
    assert_sound(found)


def _without_large(work):  # type: ignore[no-untyped-def]
    work.gang[work.gang > 4] = 4
    return work


def assert_sound(found: Simulated) -> None:
    """Conservation: all done, nothing before its time, no more held than there is."""
    work = found.workload
    assert np.isfinite(found.finished[found.measured]).all()
    assert (found.started >= work.arrived).all()
    assert (found.jct_s > 0).all()
    assert (found.ran_s <= found.finished - work.arrived + 1e-6).all()
    assert found.held_s.sum() <= found.capacity_s * (1 + 1e-9)
    assert (found.lost_s >= 0).all()


@settings(max_examples=8, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    name=st.sampled_from(["fifo", "max-min", "makespan", "blend"]),
    mechanism=st.sampled_from(["gavel", "shoal"]),
    restart_s=st.sampled_from([0.0, 45.0]),
    mtbf_h=st.sampled_from([float("inf"), 20.0]),
)
def test_nothing_is_lost_whatever_happens(
    seed: int, name: str, mechanism: str, restart_s: float, mtbf_h: float
) -> None:
    table = gavel_table(seed % 5)
    work = _without_large(gavel_jobs(table, count=10, per_hour=4.0, seed=seed, gangs=True))
    faults = Faults(mtbf_h=mtbf_h) if mechanism == "shoal" else None
    run = run_of(name, mechanism=mechanism, restart_s=restart_s, round_s=1800.0, faults=faults, seed=seed)
    assert_sound(simulate(cluster_of(work, POOLS, table), run))


@pytest.mark.slow
def test_a_seed_gives_one_result_and_wall_time_has_no_say() -> None:
    table = gavel_table()
    made = cluster_of(_without_large(gavel_jobs(table, count=10, per_hour=5.0, gangs=True)), POOLS, table)
    run = run_of("blend", restart_s=30.0, faults=Faults(mtbf_h=50.0), lengths=Lengths.parse("predicted:2"), seed=5)
    ticks = iter(range(10**9))
    first = simulate(made, run)
    second = simulate(made, run, cpu_s=lambda: float(next(ticks)) ** 2)
    other = simulate(made, run_of("blend", restart_s=30.0, faults=Faults(mtbf_h=50.0), seed=6))
    assert first.finished.tolist() == second.finished.tolist()
    assert first.finished.tolist() != other.finished.tolist()


def limited(steps: list[float], tenant: list[int], quota: Quota, *, fast: int, slow: int) -> Simulated:
    """First in, first out, where the first of two tenants has a quota."""
    work = replace(workload(steps, tenant=tenant), tenants=(Tenant("a", quota=quota), Tenant("b")))
    pools = [Pool(name, count) for name, count in (("fast", fast), ("slow", slow)) if count]
    return simulate(cluster_of(work, pools, throughputs()), run_of("fifo"))


def test_a_quota_holds_between_rounds_too() -> None:
    found = limited([100_000.0, 1000.0, 1000.0], [0, 0, 1], Quota(accelerators=1), fast=2, slow=0)
    assert found.finished[[0, 2]].tolist() == [10_000.0, 100.0]
    assert found.started[1] == 10_000.0


def test_a_quota_of_a_type_counts_what_its_tenant_holds_of_that_type() -> None:
    quota = Quota(by_type=(("slow", 1),))
    found = limited([100_000.0, 1000.0, 100_000.0, 1000.0], [0, 1, 1, 0], quota, fast=1, slow=2)
    assert found.started.tolist() == [0.0, 0.0, 0.0, 200.0], "the place that is free in the middle of a round"


class TestJobsThatSaveNothing:
    """The minimum run time of the control plane (`minimum_run`) is in force in the simulator."""

    def test_they_end_with_little_waste_and_need_turns_for_it(self) -> None:
        """Four that need 25 times the usual time slice on two accelerators: by equal slices none would ever end."""
        steps = [10.0 * 25 * 600.0] * 4
        found = simulate(cluster(steps, fast=2), run_of("max-min", restart_s=60.0, unsaved=1.0))
        assert np.isfinite(found.finished).all()
        assert found.lost_s.sum() > 0.0
        assert (found.ran_s < 2.5 * 25 * 600.0 + 60.0 * (1 + found.restarts)).all()
        assert (found.restarts <= 6).all()

    def test_a_short_one_is_not_turned_out(self) -> None:
        found = simulate(cluster([10.0 * 5000.0] * 4, fast=2), run_of("max-min", restart_s=60.0, unsaved=1.0))
        assert found.restarts.sum() == 0
        saving = simulate(cluster([10.0 * 5000.0] * 4, fast=2), run_of("max-min", restart_s=60.0))
        assert saving.restarts.sum() > 0

    def test_a_stop_costs_all_work(self) -> None:
        """One that never ends shares an accelerator with one that saves."""
        found = simulate(
            cluster([1e9, 10.0 * 20_000.0], fast=1), run_of("max-min", restart_s=60.0, unsaved=1.0),
            measured=range(1, 2),
        )  # fmt: skip
        assert found.restarts[0] >= 1
        assert found.alone_s[0] < found.ran_s[0]


@pytest.mark.parametrize("name", ["max-min", "finish-time", "blend", "elastic"])
def test_a_simulated_round_is_the_live_round(name: str) -> None:
    """The first round of a simulation is what the control plane's `what-if` says of the same jobs."""
    settings = ScheduleSettings(name, round_s=60.0, restart_cost_s=30.0)
    rates = {"fast": (4.0, 1.0, 3.0, 2.0), "slow": (1.0, 0.9, 2.5, 0.1)}
    views = tuple(
        JobView(str(at), "default", {kind: Throughput(rates[kind][at]) for kind in rates}, work_left=1000.0 * (at + 1),
                arrived=0.0)
        for at in range(4)
    )  # fmt: skip
    pools = (Pool("fast", 1), Pool("slow", 1))
    plan = what_if(Snapshot("given", 0.0, pools, views), settings)
    found = decide_round(settings, problem_of(views, pools), State(), 0.0)
    columns = found.round.problem.columns
    assert plan.target == {str(row): columns[found.round.column[row]].key for row in found.round}
    work, table = Snapshot("given", 0.0, pools, views).workload()
    simulated = simulate(cluster_of(work, pools, table), Run(settings))
    assert {str(row) for row in np.flatnonzero(simulated.started == 0.0)} == set(plan.target)


class TestLengths:
    def test_predictions_are_within_their_factor_and_never_below_what_is_done(self) -> None:
        steps = np.full(500, 1000.0)
        jobs = np.arange(500)
        oracle = LengthOracle(Lengths.parse("predicted:2"), steps, seed=1)
        left = oracle.work_left(jobs, steps, np.zeros(500))
        assert 0.3 * 1000 < left.min() < 800 < 1300 < left.max() < 2.2 * 1000
        later = oracle.work_left(jobs, steps * 0.01, np.full(500, 990.0))
        assert (later > 0).all()
        assert (later < left + 1e-9).all()
        assert LengthOracle(Lengths.parse("predicted:1"), steps, 1).work_left(jobs, steps, steps * 0) == pytest.approx(
            steps
        )

    def test_unknown_lengths_are_not_told(self) -> None:
        steps = np.full(3, 1000.0)
        assert np.isnan(
            LengthOracle(Lengths.parse("unknown"), steps, 0).work_left(np.arange(3), steps, steps * 0)
        ).all()
        found = simulate(cluster([3600.0] * 3), run_of("max-min", mechanism="shoal", lengths=Lengths.parse("unknown")))
        assert_sound(found)
        with pytest.raises(Invalid, match="needs to know the work that is left"):
            simulate(cluster([3600.0]), run_of("makespan", lengths=Lengths.parse("unknown")))

    @pytest.mark.parametrize("text", ["", "some", "predicted", "predicted:0.5", "predicted:x", "known:2"])
    def test_others_are_refused(self, text: str) -> None:
        with pytest.raises(Invalid, match="lengths"):
            Lengths.parse(text)


class TestFaultsOfInput:
    def test_a_gang_that_fits_nowhere(self) -> None:
        with pytest.raises(Invalid, match=r"test:2: .* a gang of 4 fits in no pool \(2 fast, 1 slow\)"):
            cluster([1.0, 1.0], fast=2, slow=1, gang=[1, 4])

    def test_a_job_that_a_policy_never_lets_run(self) -> None:
        work = workload([100.0], gang=[2])
        tenants = (Tenant("default", quota=Quota(accelerators=1)),)
        work = type(work)(**{**{name: getattr(work, name) for name in work.__dataclass_fields__}, "tenants": tenants})
        with pytest.raises(Invalid, match="never lets 1 jobs run"):
            simulate(cluster_of(work, [Pool("fast", 2)], throughputs()), run_of("max-min"))

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"policy": "best"}, "no policy 'best'"),
            ({"policy": "fifo", "mechanism": "magic"}, "no mechanism"),
            ({"policy": "fifo", "restart_s": -1.0}, "restart_s"),
            ({"policy": "fifo", "round_s": 0.0}, "round_s"),
        ],
    )
    def test_options(self, options: dict[str, object], message: str) -> None:
        with pytest.raises(Invalid, match=message):
            run_of(**options)  # type: ignore[arg-type]

    def test_faults(self) -> None:
        with pytest.raises(Invalid, match="between failures"):
            Faults(mtbf_h=0.0)
        with pytest.raises(Invalid, match="checkpoint"):
            Faults(every_s=0.0)
        with pytest.raises(Invalid, match="measured jobs"):
            simulate(cluster([1.0]), run_of("fifo"), measured=range(2))


def test_a_workload_like_phillys_is_carried_through() -> None:
    table = gavel_table()
    work = philly_jobs(table, count=60, accelerators=12, load=0.7)
    found = simulate(cluster_of(work, [Pool("v100", 12), Pool("p100", 8)], table), run_of("blend"))
    assert_sound(found)
    assert len(found.workload.tenants) == 14


def test_a_policy_is_shown_the_jobs_that_are_there_as_a_problem_of_their_own() -> None:
    table = gavel_table()
    work = philly_jobs(table, count=20, accelerators=12, load=0.7)
    made = cluster_of(work, [Pool("v100", 12), Pool("p100", 8)], table)
    everybody, some = made.everybody(made.pools), np.array([3, 5, 17])
    shown = made.problem(everybody, some, now=60.0, work_left=work.steps[some])
    for name in ("rate", "gang", "weight", "arrived", "tenant", "placed", "possible"):
        np.testing.assert_array_equal(getattr(shown, name), getattr(everybody, name)[some], name)
    for name in ("counts", "pool_of"):
        np.testing.assert_array_equal(getattr(shown, name), getattr(everybody, name), name)
    assert (list(shown.ids), shown.columns, shown.now) == (["3", "5", "17"], everybody.columns, 60.0)
    assert shown.work_left.tolist() == work.steps[some].tolist()
    assert not shown.rate.flags.writeable
    assert not shown.work_left.flags.writeable


class TestElastic:
    def test_jobs_keep_their_size_unless_the_trace_lets_them_grow(self) -> None:
        """Policies in one table are compared on the same jobs."""
        rigid = simulate(cluster([40_000.0], fast=4), run_of("elastic"))
        assert rigid.jct_s[0] == pytest.approx(4000.0)

    @pytest.mark.few
    @pytest.mark.parametrize("elastic", [False, True])
    def test_under_overload_nobody_starves(self, elastic: bool) -> None:
        """Ten jobs of two sizes on two accelerators."""
        jobs: dict[str, Any] = {"gang": [1, 2] * 5, "fast": 2}
        options = {"restart_s": 30.0, "round_s": 600.0}
        found = metrics_of(simulate(cluster([2e5] * 10, elastic=elastic, **jobs), run_of("elastic", **options)))
        fair = metrics_of(simulate(cluster([2e5] * 10, **jobs), run_of("max-min", **options)))
        assert found.fairness_worst < 2.0 * max(fair.fairness_worst, 1.0)

    @pytest.mark.few
    @pytest.mark.parametrize("seed", [0, 5, 6, 15, 17])
    def test_on_an_overloaded_cluster_nobody_has_it_much_worse_than_by_max_min(self, seed: int) -> None:
        """Both policies in the same rounds."""
        made = overloaded(seed)
        found, fair = (
            metrics_of(simulate(made, run_of(name, round_s=600.0, restart_s=30.0))).fairness_worst
            for name in ("elastic", "max-min")
        )
        assert found <= 1.25 * fair

    def test_a_change_of_size_repays_its_restart(self) -> None:
        """Growing by a twentieth is not worth a tenth of the time until the next change."""
        ways = Configurations(np.array([0, 0]), np.array([0, 0]), np.array([1, 2]), np.array([1.0, 1.05]))
        problem = Problem.columnar(
            (Pool("a", 2),), [[1.0]], configurations=ways, placed=[0], arrived=[-1e6], now=0.0, work_left=1e9
        )
        settings = ScheduleSettings("elastic", restart_cost_s=30.0)
        kept = ask(settings, problem)
        assert kept.configuration is not None
        assert ways.accelerators[kept.configuration[0]] == 1
        larger = replace(problem, configurations=ways._replace(goodput=np.array([1.0, 1.5])))
        grown = ask(settings, larger)
        assert grown.configuration is not None
        assert ways.accelerators[grown.configuration[0]] == 2

    def test_a_size_is_not_changed_back_in_the_next_rounds(self) -> None:
        settings = ScheduleSettings("elastic", round_s=3.0, restart_cost_s=0.5)
        assert resize_s(settings) == 15.0
        assert resize_s(ScheduleSettings("elastic")) == 300.0
