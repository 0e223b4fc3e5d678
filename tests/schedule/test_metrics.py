"""What is said about a simulation, checked by hand."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from shoal.core import Tenant
from shoal.schedule import Pool
from shoal.schedule.commands.view import page
from shoal.schedule.metrics import JOB_COLUMNS, jain, job_rows, metrics_of, relative
from shoal.schedule.simulate import cluster_of, run_of, simulate
from tests.schedule.kit import cluster, throughputs, workload


def test_the_numbers_of_two_jobs() -> None:
    found = metrics_of(simulate(cluster([18_000.0, 36_000.0], fast=2), run_of("max-min")))
    assert (found.jobs, found.rounds) == (2, 10)
    assert found.avg_jct_h == pytest.approx(0.75)
    assert found.p50_jct_h == pytest.approx(0.75)
    assert found.p99_jct_h == pytest.approx(0.995)
    assert found.makespan_h == pytest.approx(1.0)
    assert found.utilisation == pytest.approx(0.75)
    assert (found.migrations, found.accelerator_hours_lost, found.lease_extended) == (0, 0.0, 1.0)
    assert found.fairness_mean == pytest.approx(1.0)
    assert found.policy_cpu_s > 0


def test_fairness_is_against_an_even_share_of_everything() -> None:
    """First come, first served: the first has twice its share; the second, alone later, waits as long as it runs."""
    found = metrics_of(simulate(cluster([36_000.0, 36_000.0]), run_of("fifo", mechanism="shoal")))
    assert found.fairness_worst == pytest.approx(2.0)
    assert found.fairness_above == 0.5


def test_deadlines_that_are_missed_are_counted() -> None:
    made = cluster([36_000.0] * 3, deadline=[4000.0, 5000.0, np.inf])
    found = metrics_of(simulate(made, run_of("fifo", mechanism="shoal")))
    assert (found.slo_misses, found.slo_jobs) == (1, 2)


def test_jain_is_one_when_all_are_alike() -> None:
    assert jain(np.array([3.0, 3.0, 3.0])) == 1.0
    assert jain(np.array([1.0, 0.0, 0.0, 0.0])) == 0.25
    assert jain(np.zeros(3)) == 1.0


def test_tenants_are_compared_by_what_their_jobs_got() -> None:
    work = workload([36_000.0] * 4, tenant=[0, 0, 1, 1])
    fields = {name: getattr(work, name) for name in work.__dataclass_fields__}
    work = type(work)(**{**fields, "tenants": (Tenant("a"), Tenant("b"))})
    made = cluster_of(work, [Pool("fast", 2)], throughputs())
    even = metrics_of(simulate(made, run_of("max-min")))
    first = metrics_of(simulate(made, run_of("fifo", mechanism="shoal")))
    assert first.jain < even.jain <= 1.0


def test_one_row_for_each_job() -> None:
    found = simulate(cluster([3600.0, 7200.0], fast=2), run_of("max-min"))
    rows = job_rows(found)
    assert [len(row) for row in rows] == [len(JOB_COLUMNS)] * 2
    first = dict(zip(JOB_COLUMNS, rows[0], strict=True))
    assert (first["policy"], first["job"], first["kind"], first["jct_s"]) == ("max-min", "0", "alpha", 360.0)


def test_policies_are_compared_in_parts_of_one() -> None:
    one = metrics_of(simulate(cluster([3600.0] * 2, fast=2), run_of("max-min")))
    two = metrics_of(simulate(cluster([3600.0] * 2, fast=1), run_of("fifo", mechanism="shoal")))
    assert relative(two, one)["makespan_h"] == pytest.approx(2.0)


def test_the_page_says_that_it_is_simulated_and_escapes_names() -> None:
    found = simulate(cluster([3600.0, 7200.0, 99.0], fast=2), run_of("max-min"))
    every = [replace(metrics_of(found), policy="<b>x</b>"), metrics_of(found)]
    text = page("Compared", every, {"<b>x</b>": found.jct_s, "max-min": found.jct_s}, facts={"trace": "a&b"})
    assert "<strong>Simulated:</strong>" in text
    assert "<b>" not in text
    assert "&lt;b&gt;x" in text
    assert len(set(re.findall(r"stroke: (var\(--series-\d\))", text))) == 2
    assert set(re.findall(r"https?://[^\"]*", text)) == {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
