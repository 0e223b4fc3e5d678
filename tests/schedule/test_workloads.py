"""Readers and generators: others' formats as they are, and each fault with its file and line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.core import Invalid, Money, NotFound, Quota, Tenant, Throughput
from shoal.schedule import Configuration, JobView, Pool, decide
from shoal.schedule.simulate import cluster_of, run_of, simulate
from shoal.schedule.workloads import (
    Durations,
    example_throughputs,
    gavel_jobs,
    gavel_lines,
    heavy_tailed_jobs,
    is_snapshot,
    philly_jobs,
    read_gavel,
    read_philly,
    read_prices,
    read_snapshot,
    read_throughputs,
    snapshot_lines,
)
from tests.schedule.kit import gavel_table, line, table, throughputs, workload, write_table, write_trace


class TestThroughputs:
    def test_rates_alone_and_in_pairs(self, tmp_path: Path) -> None:
        found = read_throughputs(write_table(tmp_path))
        assert found.types == ("fast", "slow")
        assert found.rate[found.keys["beta", 2]].tolist() == [16.0, 4.0]
        assert found.pair[found.keys["alpha", 1], found.keys["gamma", 1]].tolist() == [8.0, 4.0]

    def test_only_types_that_were_measured(self) -> None:
        with pytest.raises(Invalid, match="no throughputs for tpu"):
            throughputs().at(["fast", "tpu"])

    @pytest.mark.parametrize(
        ("change", "message", "marker"),
        [
            (lambda t: t["fast"]["('beta', 1)"].update(null=-1.0), "-1.0 is not a finite number", '"null": -1.0'),
            (lambda t: t["slow"]["('gamma', 2)"].update(null=float("nan")), "nan is not a finite", '"null": NaN'),
            (lambda t: t["fast"]["('beta', 1)"].pop("null"), "no throughput alone", "\"('beta', 1)\": {"),
            (lambda t: t["fast"]["('beta', 1)"].update({"('x', 1)": [1, 1]}), "beside .* which has no", "\"('x', 1)\""),
            (lambda t: t["fast"]["('beta', 1)"].update({"('alpha', 1)": [1]}), "needs two", None),
            (lambda t: t["fast"].update(beta={"null": 1.0}), "names no job and gang", '"beta"'),
        ],
    )
    def test_faults_are_named_with_their_line(
        self, tmp_path: Path, change: Any, message: str, marker: str | None
    ) -> None:
        wrong = table()
        change(wrong)
        path = write_table(tmp_path, wrong)
        with pytest.raises(Invalid, match=message) as caught:
            read_throughputs(path)
        name, number = str(caught.value.where).rsplit(":", 1)
        assert name == str(path)
        if marker is not None:
            assert marker in path.read_text().splitlines()[int(number) - 1]

    def test_what_is_no_table(self, tmp_path: Path) -> None:
        path = tmp_path / "speeds.json"
        path.write_text('{\n"fast": {,\n')
        with pytest.raises(Invalid, match=r"speeds\.json:2: not JSON"):
            read_throughputs(path)
        path.write_text("[1]")
        with pytest.raises(Invalid, match="not a table"):
            read_throughputs(path)
        with pytest.raises(NotFound, match="no such file"):
            read_throughputs(tmp_path / "none.json")

    def test_jobs_of_unknown_speed_are_named_by_their_line(self, tmp_path: Path) -> None:
        speeds = read_throughputs(write_table(tmp_path))
        path = write_trace(tmp_path, line(), line("delta"), line("beta", gang=4))
        with pytest.raises(Invalid, match="2 kinds of job have no throughput") as caught:
            speeds.of(read_gavel(path), ["fast"])
        assert sorted(str(each.where) for each in caught.value.problems) == [f"{path}:2", f"{path}:3"]

    def test_a_pair_that_was_never_measured(self, tmp_path: Path) -> None:
        wrong = table()
        for name in wrong:
            del wrong[name]["('alpha', 1)"]["('beta', 1)"], wrong[name]["('beta', 1)"]["('alpha', 1)"]
        speeds = read_throughputs(write_table(tmp_path, wrong))
        work = workload([1.0, 1.0], kind=[0, 1])
        _, rows = speeds.of(work, ["fast"])
        with pytest.raises(Invalid, match="no throughput of 'alpha' beside 'beta'"):
            speeds.beside(work, rows, ["fast"])

    def test_large_gangs_may_be_scaled_from_measured_ones(self, tmp_path: Path) -> None:
        speeds = read_throughputs(write_table(tmp_path), scaled=True)
        rate, rows = speeds.of(workload([1.0], gang=[6]), ["fast"])
        assert rate.tolist() == [[60.0]]
        assert rows.tolist() == [-1]


class TestGavel:
    def test_ten_fields(self, tmp_path: Path) -> None:
        path = write_trace(tmp_path, line("beta", 70, 2, 5, -1, 30), "", line("alpha", 50, at=10))
        found = read_gavel(path)
        assert [found.kinds[at] for at in found.kind] == ["alpha", "beta"]
        assert found.steps.tolist() == [50.0, 70.0]
        assert found.gang.tolist() == [1, 2]
        assert found.weight.tolist() == [1.0, 5.0]
        assert found.arrived.tolist() == [10.0, 30.0]
        assert found.where(1) == f"{path}:1"

    def test_its_older_format_of_seven(self, tmp_path: Path) -> None:
        path = write_trace(tmp_path, "alpha\tcd %s && python3 x.py\t-step\t1\t15486530\t3.500000\t8")
        found = read_gavel(path)
        assert (found.steps[0], found.arrived[0], found.gang[0]) == (15486530.0, 3.5, 8)

    def test_an_slo_is_a_deadline(self, tmp_path: Path) -> None:
        path = write_trace(tmp_path, line(steps=1000, slo=1.5, at=100))
        assert read_gavel(path, throughputs(), reference="fast").deadline.tolist() == [100 + 150.0]
        with pytest.raises(Invalid, match=r"jobs\.trace:1: an SLO needs"):
            read_gavel(path)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("alpha\t5", "fields separated by tabs: 2"),
            (line(steps=0), "number of steps 0 must be finite and above 0"),
            (line().replace("\t1000\t", "\tmany\t"), "number of steps 'many' is no number"),
            (line().replace("\t1000\t", "\tnan\t"), "number of steps nan must be finite"),
            (line(gang=0), "gang 0 must be finite and at least 1"),
            (line().replace("\t1000\t1\t", "\t1000\t1.5\t"), "gang 1.5 must be a whole number"),
            (line(weight=-1), "priority -1"),
            (line(at=-5), "arrival -5"),
            (line(""), "the job type is empty"),
        ],
    )
    def test_faults_are_named_with_their_line(self, tmp_path: Path, text: str, message: str) -> None:
        path = write_trace(tmp_path, line(), text)
        with pytest.raises(Invalid) as caught:
            read_gavel(path)
        assert message in caught.value.what
        assert caught.value.where == f"{path}:2"

    def test_all_faults_at_once(self, tmp_path: Path) -> None:
        with pytest.raises(Invalid, match="3 faults") as caught:
            read_gavel(write_trace(tmp_path, line(steps=0), line(gang=-1), "x"))
        assert len(caught.value.problems) == 3

    def test_nothing_is_no_trace(self, tmp_path: Path) -> None:
        with pytest.raises(Invalid, match="no job in it"):
            read_gavel(write_trace(tmp_path))

    def test_what_is_written_is_read_again(self, tmp_path: Path) -> None:
        speeds = gavel_table()
        work = gavel_jobs(speeds, count=40, per_hour=3.0, seed=2, gangs=True)
        alone_s = work.steps / speeds.of(work, ["v100"])[0][:, 0]
        work = replace(work, weight=np.arange(1.0, 41.0), deadline=work.arrived + 1.2 * alone_s)
        found = read_gavel(write_trace(tmp_path, *gavel_lines(work, speeds)), speeds)
        for name in ("steps", "gang", "weight", "arrived"):
            assert getattr(found, name).tolist() == getattr(work, name).tolist()
        assert found.deadline == pytest.approx(work.deadline, rel=1e-5)


class TestGenerators:
    def test_gavel_draws_the_papers_distributions(self) -> None:
        speeds = gavel_table()
        work = gavel_jobs(speeds, count=6000, per_hour=4.0, gangs=True)
        rate, _ = speeds.of(work, ["v100"])
        minutes = work.steps / rate[:, 0] / 60
        assert (minutes >= 10**1.5 - 1e-6).all()
        assert (minutes <= 1e4 + 1e-6).all()
        assert (minutes > 1000).mean() == pytest.approx(0.2, abs=0.02)
        sizes = {size: (work.gang == size).mean() for size in (1, 2, 4, 8)}
        assert list(sizes.values()) == pytest.approx([0.7, 0.1, 0.15, 0.05], abs=0.02)
        assert work.arrived[-1] / 3600 * 4.0 == pytest.approx(6000, rel=0.05)

    def test_a_seed_is_a_workload(self) -> None:
        speeds = gavel_table()
        one, two, other = (gavel_jobs(speeds, count=50, per_hour=4.0, seed=seed) for seed in (0, 0, 1))
        assert one.steps.tolist() == two.steps.tolist() != other.steps.tolist()
        # The first draws of Gavel's own generator for seed 0.
        assert [one.kinds[at] for at in one.kind[:2]] == ["ResNet-18 (batch size 64)", "Transformer (batch size 16)"]
        faster = gavel_jobs(speeds, count=50, per_hour=4.4, seed=0)
        assert faster.arrived[1] == pytest.approx(222.35097537)

    def test_all_at_once(self) -> None:
        assert not gavel_jobs(gavel_table(), count=5, per_hour=0).arrived.any()

    def test_philly_has_the_load_that_was_asked_for(self) -> None:
        speeds = gavel_table()
        work = philly_jobs(speeds, count=5000, accelerators=100, load=0.5)
        rate, _ = speeds.of(work, ["v100"])
        busy = float((work.steps / rate[:, 0] * work.gang).sum()) / (100 * work.arrived[-1])
        assert busy == pytest.approx(0.5, rel=0.02)
        assert (np.diff(work.arrived) >= 0).all()
        assert len(np.unique(work.tenant)) > 5

    @pytest.mark.parametrize(("count", "rate"), [(0, 1.0), (5, -1.0), (5, float("nan"))])
    def test_nonsense_is_refused(self, count: int, rate: float) -> None:
        with pytest.raises(Invalid, match="at least one job"):
            gavel_jobs(gavel_table(), count=count, per_hour=rate)


class TestPhilly:
    def write(self, folder: Path, text: str) -> Path:
        path = folder / "philly.csv"
        path.write_text(text)
        return path

    def test_rows_become_jobs(self, tmp_path: Path) -> None:
        path = self.write(
            tmp_path,
            "timestamp,duration,num_gpus,gpu_time,vc,model\n"
            "500,100,2,200,a,beta\n2017-10-01 00:00:00,50,1,50,b,alpha\n400,60,1,60,b,gamma\n600,0,1,0,a,beta\n",
        )
        found = read_philly(path, throughputs(), reference="fast")
        assert found.arrived[:2].tolist() == [0.0, 100.0]
        assert [found.kinds[at] for at in found.kind[:2]] == ["gamma", "beta"]
        assert found.steps[:2].tolist() == [60 * 4.0, 100 * 16.0]
        assert [found.tenants[at].name for at in found.tenant] == ["b", "a", "b"]
        assert found.where(0) == f"{path}:4"

    def test_rows_that_cannot_be_are_named(self, tmp_path: Path) -> None:
        path = self.write(tmp_path, "submit_time,run_time,gpus\n-5,100,1\n0,100,0\n0,-1,1\nnan,100,1\n0,100,1\n")
        with pytest.raises(Invalid) as caught:
            read_philly(path, throughputs(), reference="fast")
        assert [problem.where for problem in caught.value.problems] == [f"{path}:{line}" for line in (2, 3, 4, 5)]

    def test_kinds_are_drawn_where_the_trace_tells_none(self, tmp_path: Path) -> None:
        rows = "".join(f"{at},100,1\n" for at in range(60))
        path = self.write(tmp_path, "submit_time,run_time,gpus\n" + rows)
        one, two, other = (read_philly(path, throughputs(), reference="fast", seed=seed) for seed in (0, 0, 1))
        assert one.kind.tolist() == two.kind.tolist() != other.kind.tolist()
        assert set(one.kind.tolist()) == {0, 1, 2}

    @pytest.mark.parametrize(
        ("text", "line_number", "message"),
        [
            ("time,gpus\n1,1\n", 1, "no column for the duration"),
            ("time,duration,gpus\n1,5,1\n1,x,1\n", 3, "duration 'x' is no number"),
            ("time,duration,gpus\n1,-5,1\n", 2, "duration -5"),
            ("time,duration,gpus\nsoon,5,1\n", 2, "neither seconds nor a date"),
            ("time,duration,gpus\n1,5\n", 2, "2 fields, but the header has 3"),
            ("time,duration,gpus\n1,5,64\n", 2, "no throughput for a gang of 64"),
            ("time,duration,gpus,kind\n1,5,1,delta\n", 2, "no throughput for the kind 'delta'"),
        ],
    )
    def test_faults_are_named_with_their_line(self, tmp_path: Path, text: str, line_number: int, message: str) -> None:
        path = self.write(tmp_path, text)
        with pytest.raises(Invalid) as caught:
            read_philly(path, throughputs(), reference="fast")
        assert message in caught.value.what
        assert caught.value.where == f"{path}:{line_number}"

    def test_a_file_without_jobs(self, tmp_path: Path) -> None:
        with pytest.raises(Invalid, match="no job in it"):
            read_philly(self.write(tmp_path, "time,duration,gpus\n1,0,1\n"), throughputs(), reference="fast")


HEAD = '{"shoal": "schedule", "version": 1, "now": 1000.0}'


class TestSnapshot:
    def write(self, folder: Path, *lines: str) -> Path:
        return write_trace(folder, *lines, name="live.jsonl")

    def test_what_is_written_is_read_again(self, tmp_path: Path) -> None:
        jobs = (
            JobView("a", "x", {"fast": Throughput(2.0, 0.1)}, gang=2, weight=3.0, work_left=50.0, deadline=2000.0,
                    arrived=500.0, ran_s=20.0, placed="fast", placed_s=20.0, min_run_s=60.0, restarts=1, kind="k"),
            JobView("b", "y", {"fast": Throughput(1.0)}, elastic=(Configuration("fast", 2, Throughput(1.8)),)),
        )  # fmt: skip
        pools = (Pool("fast", 4, Money.usd("2.5"), "z1", 2, "far"), Pool("slow", 2))
        tenants = (Tenant("x", 2.0, Quota(3, (("fast", 2),))), Tenant("y"))
        path = self.write(tmp_path, *snapshot_lines(jobs, pools, tenants, now=1000.0))
        found = read_snapshot(path)
        assert is_snapshot(path)
        assert (found.jobs, found.pools, found.tenants, found.now) == (jobs, pools, tenants, 1000.0)
        assert found.problem().held.tolist() == [True, False]

    def test_a_log_of_events_is_a_snapshot(self, tmp_path: Path) -> None:
        job = {"job": "a", "throughput": {"fast": 2.0}, "work_left": 5}
        path = self.write(
            tmp_path, HEAD, '{"pool": "fast", "count": 1}', json.dumps(job), json.dumps({**job, "job": "b"}),
            '{"pool": "fast", "count": 3}', json.dumps({**job, "work_left": 2}), '{"ended": "b"}',
            '{"beside": ["k", "k"], "type": "fast", "rates": [1.0, 0.5]}',
        )  # fmt: skip
        found = read_snapshot(path)
        assert [(each.id, each.work_left) for each in found.jobs] == [("a", 2.0)]
        assert [pool.count for pool in found.pools] == [3]
        assert found.colocated == {("k", "k"): {"fast": (1.0, 0.5)}}
        work, speeds = found.workload()
        assert work.steps.tolist() == [2.0]
        assert speeds.of(work, ["fast"])[0].tolist() == [[2.0]]
        assert work.where(0) == f"{path}:6"

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ('{"job": "a"', "not JSON"),
            ("[]", "must be a JSON object"),
            ('{"job": "a"}', "throughput: this field is missing"),
            ('{"job": "a", "throughput": {"fast": -1}}', "must be finite and not negative"),
            ('{"job": "a", "throughput": {"fast": NaN}}', "throughput.fast.per_s: must be a finite number"),
            ('{"job": "a", "throughput": {"fast": [1, 2, 3]}}', "steps per second, or that and its standard deviation"),
            ('{"job": "a", "throughput": {"fast": 1}, "gang": 1.5}', "gang: must be a whole number"),
            ('{"pool": "fast", "count": 4, "per_node": "two"}', "per_node: must be a whole number"),
            ('{"pool": "fast", "count": 4, "unconsolidated": 5}', "unconsolidated: must be text"),
            ('{"pool": "fast", "count": 4, "zome": "a"}', "zome: there is no such field"),
            ('{"tenant": "x", "accelerators": "many"}', "accelerators: must be a whole number"),
            ('{"tenant": "x", "by_type": {"fast": 1.5}}', "by_type.fast: must be a whole number"),
            ('{"job": "a", "throughput": {"fast": 1}, "size": 2}', "size: there is no such field"),
            (
                '{"job": "a", "throughput": {"fast": 1}, "work_left": Infinity}',
                "work_left: must be a finite number",
            ),
            ('{"thing": 1}', "a line about none of these"),
            ('{"tenant": "x", "weight": 0}', "weight must be positive"),
        ],
    )
    def test_faults_are_named_with_their_line(self, tmp_path: Path, text: str, message: str) -> None:
        path = self.write(tmp_path, HEAD, text)
        with pytest.raises(Invalid) as caught:
            read_snapshot(path)
        assert message in caught.value.what
        assert caught.value.where == f"{path}:2"

    def test_the_first_line_says_what_it_is(self, tmp_path: Path) -> None:
        with pytest.raises(Invalid, match="must say what this is"):
            read_snapshot(self.write(tmp_path, '{"pool": "fast", "count": 1}'))
        with pytest.raises(Invalid, match="version: must be 1"):
            read_snapshot(self.write(tmp_path, HEAD.replace("1,", "2,")))

    def test_only_jobs_of_known_length_can_be_simulated(self, tmp_path: Path) -> None:
        path = self.write(tmp_path, HEAD, '{"job": "a", "throughput": {"fast": 1}}')
        with pytest.raises(Invalid, match=r"live\.jsonl:2: 1 jobs do not say"):
            read_snapshot(path).workload()


class TestPrices:
    def test_they_are_sorted_by_time(self, tmp_path: Path) -> None:
        path = tmp_path / "prices.csv"
        path.write_text("seconds,type,usd_per_hour\n60,fast,2\n0,fast,1.5\n")
        assert [(each.at_s, each.usd_per_hour) for each in read_prices(path)] == [(0.0, 1.5), (60.0, 2.0)]
        path.write_text("seconds,type,usd_per_hour\n60,fast,-2\n0,fast\n")
        with pytest.raises(Invalid, match="2 faults"):
            read_prices(path)
        path.write_text("when,what\n")
        with pytest.raises(Invalid, match=r"prices\.csv:1: the header"):
            read_prices(path)


class TestHeavyTailed:
    COUNT = 20_000

    def drawn(self, seed: int = 1, **given: Any) -> tuple[Any, np.ndarray]:
        """A workload, and the seconds that each of its jobs takes on a v100."""
        table = example_throughputs()
        options = {"count": self.COUNT, "accelerators": 40.0, **given}
        work = heavy_tailed_jobs(table, seed=seed, **options)
        rate, _ = table.of(work, ["v100"])
        return work, work.steps / rate[:, 0]

    @pytest.mark.parametrize("durations", list(Durations))
    @pytest.mark.parametrize(("tail", "median_s"), [(0.5, 60.0), (1.0, 3600.0)])
    def test_durations_have_the_median_and_the_tail(self, durations: Durations, tail: float, median_s: float) -> None:
        _, took = self.drawn(durations=durations, tail=tail, median_s=median_s)
        assert np.median(took) == pytest.approx(median_s, rel=0.05)
        assert np.log(took).std() == pytest.approx(tail, rel=0.05)
        skew = float(((np.log(took) - np.log(took).mean()) ** 3).mean() / tail**3)
        # An exponential distribution has a skewness of 2: the logarithm of a Pareto distribution is one.
        assert skew == pytest.approx(2.0 if durations is Durations.PARETO else 0.0, abs=0.3)

    def test_no_job_is_all_of_the_work(self) -> None:
        _, took = self.drawn(tail=4.0)
        assert took.max() == pytest.approx(1000 * 1800.0)
        assert took.min() == pytest.approx(1.8)

    def test_the_work_that_arrives_is_the_load(self) -> None:
        work, took = self.drawn(load=1.5, tail=1.0)
        assert (took * work.gang).sum() / (40.0 * work.arrived[-1]) == pytest.approx(1.5, rel=0.02)
        assert (np.diff(work.arrived) >= 0).all()
        assert work.arrived[0] == 0.0
        assert not self.drawn(load=0.0)[0].arrived.any()

    def test_bursts_are_equal_jobs_that_come_at_once(self) -> None:
        work, _ = self.drawn(burst=4.0)
        _, first, size = np.unique(work.arrived, return_index=True, return_counts=True)
        assert size.mean() == pytest.approx(4.0, rel=0.05)
        assert (size == 1).mean() == pytest.approx(0.25, abs=0.02), "their number is geometric"
        of = np.repeat(first, size)
        np.testing.assert_array_equal(work.kind, work.kind[of])
        np.testing.assert_array_equal(work.gang, work.gang[of])
        alone, _ = self.drawn(burst=1.0)
        assert len(np.unique(alone.arrived)) == self.COUNT

    def test_gangs_are_as_mixed_as_told(self) -> None:
        work, _ = self.drawn(gangs={1: 3, 4: 1, 8: 0})
        sizes, count = np.unique(work.gang, return_counts=True)
        assert sizes.tolist() == [1, 4]
        assert count[0] / self.COUNT == pytest.approx(0.75, abs=0.02)
        default, _ = self.drawn()
        assert (default.gang == 8).mean() == pytest.approx(0.05, abs=0.01)

    def test_seeds_tell_workloads_apart_and_one_gives_the_same_again(self) -> None:
        one, again, other = (self.drawn(seed=seed, count=50, burst=2.0)[0] for seed in (1, 1, 2))
        for name in ("kind", "gang", "arrived", "steps"):
            np.testing.assert_array_equal(getattr(one, name), getattr(again, name))
        assert not np.array_equal(one.steps, other.steps)

    def test_it_can_be_written_and_read(self, tmp_path: Path) -> None:
        work, _ = self.drawn(count=30, burst=3.0)
        table = example_throughputs()
        again = read_gavel(write_trace(tmp_path, *gavel_lines(work, table)), table)
        np.testing.assert_array_equal(again.steps, work.steps)
        np.testing.assert_array_equal(again.gang, work.gang)
        np.testing.assert_array_equal(again.arrived, work.arrived)

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"count": 0}, "count 0"), ({"accelerators": 0.0}, "accelerators 0"), ({"load": -0.1}, "load -0.1"),
            ({"load": float("inf")}, "load inf"), ({"tail": -1.0}, "tail -1"), ({"median_s": 0.0}, "median 0"),
            ({"burst": 0.5}, "burst 0.5"), ({"tail": float("nan")}, "tail nan"), ({"gangs": {}}, "gangs of none"),
            ({"gangs": {0: 1.0}}, "gangs 0=1"), ({"gangs": {1: 0.0}}, "gangs 1=0"),
            ({"gangs": {1: -1.0, 2: 2.0}}, "gangs 1=-1"),
            ({"gangs": {3: 1.0}}, "no kind of job has a throughput with a gang of 3"),
        ],
    )  # fmt: skip
    def test_what_cannot_be_drawn_is_named(self, given: dict[str, Any], message: str) -> None:
        with pytest.raises(Invalid, match=message):
            self.drawn(**{"count": 10, **given})


def test_a_snapshot_keeps_the_rates_of_all_sizes(tmp_path: Path) -> None:
    """What the server writes is what `solve` and `simulate` read: each size with its rate and how sure that is."""
    ways = tuple(Configuration("v", size, Throughput(rate, 0.1)) for size, rate in ((1, 2.0), (2, 3.8), (4, 7.0)))
    job = JobView("j", "t", {"v": Throughput(2.0)}, work_left=7000.0, elastic=ways)
    path = tmp_path / "now.jsonl"
    path.write_text("".join(f"{line}\n" for line in snapshot_lines((job,), (Pool("v", 4),), now=0.0)))
    found = read_snapshot(path)
    assert found.jobs[0].elastic == ways
    assert decide("elastic", found.problem()).throughput.tolist() == [7.0]
    work, table = found.workload()
    made = cluster_of(work, found.pools, table, elastic=True)
    assert simulate(made, run_of("elastic")).jct_s[0] == pytest.approx(1000.0)
    assert simulate(cluster_of(work, found.pools, table), run_of("elastic")).jct_s[0] == pytest.approx(3500.0)
