"""Tables and files of `shoal schedule`."""

from __future__ import annotations

import csv as csv_module
import io
import json as json_module
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shoal.base.console import output
from shoal.base.console.files import OutFile
from shoal.base.report import Report, Section, Table, distribution, html
from shoal.schedule.commands.inputs import SIZES, Inputs, Played
from shoal.schedule.commands.options import Play
from shoal.schedule.metrics import COMPARED, HOUR, JOB_COLUMNS, Metrics, job_rows, relative
from shoal.schedule.types import Allocation, Array
from shoal.schedule.workloads import EXAMPLE

LITTLE = 1e-6
_NAMES = [name for _, name in COMPARED]

SHOWN = 40
"""Jobs that a person is shown of an allocation."""


def outcome(
    found: Sequence[Played],
    inputs: Inputs,
    play: Play,
    *,
    as_json: bool,
    files: Mapping[str, OutFile],
) -> None:
    """A table for people unless JSON goes to stdout; the files that were asked for."""
    restart = f"{play.restart_cost:g} s"
    facts = {
        "trace": inputs.workload.source,
        "cluster": ", ".join(f"{pool.type}={pool.count}" for pool in inputs.pools),
        "lengths": play.lengths,
        "restart cost": restart,
    }
    remark(inputs)
    every = [each.metrics for each in found]
    body = {"simulated": True, **facts, "policies": {each.metrics.policy: as_data(each) for each in found}}
    if as_json:
        print(json_module.dumps(body, indent=2))
    else:
        print(f"simulated: {facts['trace']} on {facts['cluster']}, lengths {play.lengths}, {restart} a migration")
        output.put(
            output.table(["policy", "jobs", *_NAMES], [[each.policy, each.jobs, *cells(each)] for each in every])
        )
        sizes(found)
    if "--json" in files:
        files["--json"].write(json_module.dumps(body, indent=2) + "\n")
    if "--csv" in files:
        files["--csv"].write(_job_table(found))
    if "--plot" in files:
        times = {each.metrics.policy: each.simulated.jct_s for each in found}
        files["--plot"].write(page("Simulated scheduling policies", every, times, facts=facts))
    if files:
        print(f"written: {', '.join(str(file.path) for file in files.values())}", file=sys.stderr)


def remark(inputs: Inputs) -> None:
    """Who gave no throughputs is told whose these are."""
    if inputs.throughputs.source == EXAMPLE:
        print(f"with the made-up speeds of {EXAMPLE}: give measured ones with --throughputs", file=sys.stderr)


def _job_table(found: Sequence[Played]) -> str:
    text = io.StringIO()
    writer = csv_module.writer(text)
    writer.writerow(JOB_COLUMNS)
    for each in found:
        writer.writerows(job_rows(each.simulated))
    return text.getvalue()


def as_data(played: Played) -> dict[str, Any]:
    """A policy's metrics, and how many jobs it might give another size."""
    return {**played.metrics.as_json(), "resizable_jobs": played.resizable}


def sizes(found: Sequence[Played]) -> None:
    """Which policies chose the sizes of which jobs: their rows are of other jobs than the rest."""
    for each in found:
        if each.metrics.policy in SIZES:
            text = "resized no job (--elastic lets it): all policies ran the sizes of the trace"
            if each.resizable:
                text = f"chose the sizes of {each.resizable} of {each.simulated.workload.jobs} jobs, among those that "
                text += "their kinds were measured with; other policies ran the sizes of the trace"
            print(f"{each.metrics.policy} {text}")


def compared(found: Sequence[Played]) -> None:
    """Each policy as a multiple of the first."""
    every = [each.metrics for each in found]
    print(f"simulated; other policies as multiples of {every[0].policy}")
    output.put(output.table(["policy", *_NAMES], [[every[0].policy, *cells(every[0])]]))
    rows = []
    for each in every[1:]:
        ratios = relative(each, every[0])
        rows.append([each.policy, *(f"{ratios[field]:.3g}x" if field in ratios else "-" for field, _ in COMPARED)])
    output.put(output.table(["policy", *_NAMES], rows))
    sizes(found)


def page(title: str, found: Sequence[Metrics], times_s: Mapping[str, Array], *, facts: Mapping[str, str]) -> str:
    """Simulated policies as an HTML page: a table, and the distributions of completion times. `times_s` are these by
    policy, `facts` are shown under the title."""
    rows = [[each.policy, *cells(each)] for each in found]
    table = Table("Policies compared", ["policy", *_NAMES], rows)
    figure = distribution(
        "Completion times", {name: times / HOUR for name, times in times_s.items()}, table,
        axis="time from arrival to end (logarithmic)", unit=" h", tail=False,
    )  # fmt: skip
    text = ["No job ran, and no accelerator was used."]
    return html(Report.of(title, [Section("Policies", text, [figure], simulated=True)], facts=facts))


def cells(found: Metrics) -> list[str]:
    """A row of a table: the numbers of `COMPARED`, with their units."""
    texts = []
    for field, _ in COMPARED:
        value = getattr(found, field)
        if field.endswith("_h"):
            texts.append(f"{value:.2f} h")
        elif field == "utilisation":
            texts.append(f"{value:.0%}")
        elif field == "cost_usd":
            texts.append(f"${value:,.2f}" if value else "-")
        elif field.endswith("_s"):
            texts.append(f"{value:.2f} s")
        else:
            texts.append(f"{value:,}" if isinstance(value, int) else f"{value:.2f}")
    return texts


def allocation_json(found: Allocation) -> dict[str, Any]:
    problem = found.problem
    names = [column.name for column in problem.columns]
    certificate = found.certificate
    return {
        "simulated": True,
        "policy": found.policy,
        "jobs": {
            str(problem.ids[row]): {
                "time": float(found.time[row]),
                "throughput": float(found.throughput[row]),
                "columns": {names[at]: float(found.share[row, at]) for at in np.flatnonzero(found.share[row] > LITTLE)},
            }
            for row in range(problem.jobs)
        },
        "pairs": [
            {"jobs": [str(problem.ids[first]), str(problem.ids[second])], "column": names[at], "time": float(part)}
            for first, second, at, part in zip(*found.pairs, strict=True)
        ],
        "prices": {name: float(found.prices[column.pool]) for name, column in zip(names, problem.columns, strict=True)},
        "limits": dict(found.limits),
        "certificate": certificate
        and {
            "objective": certificate.objective, "value": certificate.value, "bound": certificate.bound,
            "gap": certificate.gap, "sense": certificate.sense,
        },
    }  # fmt: skip


def allocation(found: Allocation) -> None:
    """Shares, prices and the certificate."""
    problem = found.problem
    names = [column.name for column in problem.columns]
    print(f"simulated: what {found.policy} would decide")
    rows = [
        [problem.ids[row], problem.gang[row], f"{found.throughput[row]:.4g}/s",
         *(f"{share:.1%}" if share > LITTLE else "-" for share in found.share[row])]
        for row in range(min(problem.jobs, SHOWN))
    ]  # fmt: skip
    output.put(output.table(["job", "gang", "rate", *names], rows, last_gives_way=False))
    if problem.jobs > SHOWN:
        print(f"and {problem.jobs - SHOWN} more: --json has them all")
    print()
    facts = {f"price of {name}": f"{found.prices[column.pool]:.4g}" for name, column in zip(names, problem.columns)}  # noqa: B905
    if found.certificate is not None:
        facts["objective"] = found.certificate.objective
        facts["value"] = f"{found.certificate.value:.6g} (at best {found.certificate.bound:.6g})"
    output.facts(facts)
