"""Inputs of `shoal schedule` from its options: jobs, a cluster, and runs."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from shoal.base.console.quiet import hushed
from shoal.core import Invalid, Money
from shoal.schedule.choices import Mechanism
from shoal.schedule.commands.options import Forms, Play
from shoal.schedule.metrics import Metrics, metrics_of
from shoal.schedule.policies import POLICIES
from shoal.schedule.simulate import Faults, Lengths, Simulated, cluster_of, run_of, simulate
from shoal.schedule.simulate.result import OnProgress
from shoal.schedule.types import Pool
from shoal.schedule.workloads import (
    EXAMPLE,
    PriceChange,
    Throughputs,
    Workload,
    example_throughputs,
    is_snapshot,
    read_gavel,
    read_philly,
    read_prices,
    read_snapshot,
    read_throughputs,
)

GAVEL_PRICES = {"v100": Money.usd("0.74"), "p100": Money.usd("0.43"), "k80": Money.usd("0.135")}
"""Dollars an hour, as Gavel has them (Google's preemptible prices of its time)."""

SIZES = ("elastic",)
"""Policies that choose the number of accelerators of jobs that leave it open."""

_SHARES = ("gandiva",)
"""Policies in which jobs share accelerators without being asked to."""

_POOL = re.compile(r"(?P<type>[^=]+)=\s*(?P<count>\d+)(@(?P<usd>\d+(\.\d+)?))?")


@dataclass(frozen=True)
class Inputs:
    workload: Workload
    throughputs: Throughputs
    pools: tuple[Pool, ...]
    prices: tuple[PriceChange, ...]
    measured: range

    @classmethod
    def read(
        cls,
        trace: Path,
        play: Play,
        *,
        unconsolidated: bool = False,
        prices: Path | None = None,
        scaled: bool = False,
    ) -> Self:
        """Everything is read and checked before anything is simulated."""
        cluster, measure, per_node = play.cluster, play.measure_jobs, play.gpus_per_node
        changes = read_prices(prices) if prices else ()
        if is_snapshot(trace):
            snapshot = read_snapshot(trace)
            work, table = snapshot.workload()
            pools = snapshot.pools if cluster is None else pools_of(cluster, per_node, table, unconsolidated)
            if not pools:
                raise Invalid("the snapshot has no pools", where=str(trace), hint="give --cluster")
            return cls(work, table, pools, changes, _window(measure, work.jobs))
        if cluster is None:
            raise Invalid("a trace needs a cluster", where="--cluster", hint="v100=8,p100=16,k80=24, say")
        philly = trace.suffix.lower() == ".csv"
        table = table_of(play.throughputs, scaled=scaled or philly)
        pools = pools_of(cluster, per_node, table, unconsolidated)
        reference = "v100" if "v100" in table.types else pools[0].type
        work = (
            read_philly(trace, table, reference=reference, seed=play.seed)
            if philly
            else read_gavel(trace, table, reference=reference)
        )
        if play.throughputs is None:
            _known_by_example(work, table)
        return cls(work, table, pools, changes, _window(measure, work.jobs))


def table_of(path: Path | None, *, scaled: bool = False) -> Throughputs:
    """The table in this file; the example without one."""
    if path is None:
        return replace(example_throughputs(), scaled=scaled)
    return read_throughputs(path, scaled=scaled)


def _known_by_example(work: Workload, table: Throughputs) -> None:
    for at in np.unique(work.kind):
        if work.kinds[at] not in table.gangs:
            job = int(np.flatnonzero(work.kind == at)[0])
            raise Invalid(
                f"{EXAMPLE} of throughputs has no {work.kinds[at]!r}", where=work.where(job),
                hint="give the measured speeds of these jobs: --throughputs FILE",
            )  # fmt: skip


def pools_of(text: str, per_node: int | None, table: Throughputs, unconsolidated: bool) -> tuple[Pool, ...]:
    """`v100=8,p100=16@1.46`: pools, with the dollars an hour of each accelerator; those of Gavel's types have the
    prices that Gavel uses for them unless told. With `unconsolidated`, gangs may run at the speeds that the table has
    for TYPE_unconsolidated."""
    pools: list[Pool] = []
    for part in text.split(","):
        match = _POOL.fullmatch(part.strip())
        if match is None:
            hint = "TYPE=COUNT or TYPE=COUNT@DOLLARS, as in v100=8,p100=16@1.46"
            raise Invalid(f"{part.strip()!r} is no pool", where="--cluster", hint=hint)
        name, count = match["type"].strip(), match["count"]
        if any(pool.type == name for pool in pools):
            raise Invalid(f"{name} is named twice", where="--cluster")
        far = f"{name}_unconsolidated" if unconsolidated else None
        price = Money.usd(match["usd"]) if match["usd"] else GAVEL_PRICES.get(name, Money())
        pools.append(Pool(name, int(count), price, per_node=per_node, unconsolidated=far))
    table.at([pool.type for pool in pools])
    if unconsolidated and per_node is None:
        raise Invalid("gangs can only be spread over machines of a known size", where="--unconsolidated",
                      hint="add --gpus-per-node")  # fmt: skip
    return tuple(pools)


def mix_of(text: str) -> dict[int, float]:
    """`1=0.7,8=0.3`: the part of jobs with each number of accelerators."""
    mix: dict[int, float] = {}
    for part in text.split(","):
        size, _, share = part.partition("=")
        try:
            gang, weight = int(size), float(share)
        except ValueError:
            raise Invalid(
                f"{part.strip()!r} is no part of jobs", where="--gang-mix", hint="as in 1=0.7,8=0.3"
            ) from None
        if gang in mix:
            raise Invalid(f"{gang} is named twice", where="--gang-mix")
        mix[gang] = weight
    return mix


def _window(text: str | None, jobs: int) -> range:
    if text is None:
        return range(jobs)
    first, colon, last = text.partition(":")
    if not colon or not first.strip().isdigit() or not last.strip().isdigit():
        raise Invalid(f"{text!r} is no range of jobs", where="--measure-jobs", hint="A:B, as in 4000:5000")
    window = range(int(first), int(last))
    if not 0 <= window.start < window.stop <= jobs:
        raise Invalid(f"jobs {text}, but the trace has {jobs}", where="--measure-jobs", hint=f"within 0:{jobs}")
    return window


@dataclass(frozen=True)
class Played:
    """`resizable` is how many jobs the policy could give another size."""

    simulated: Simulated
    metrics: Metrics
    resizable: int


def played(
    inputs: Inputs,
    names: Sequence[str],
    play: Play,
    forms: Forms = Forms(),  # noqa: B008
    *,
    mechanism: Mechanism = Mechanism.SHOAL,
    checkpoint: str | None = None,
    mtbf_h: float | None = None,
) -> list[Played]:
    """Each policy in turn; all options are checked before the first one is simulated."""
    knows = Lengths.parse(play.lengths)
    for name in names:
        if name in POLICIES and POLICIES[name].needs_lengths and str(knows) == "unknown":
            raise Invalid(
                f"{name} needs to know how long jobs are", where="--lengths",
                hint="known, predicted:FACTOR, or a policy that needs no lengths, such as max-min",
            )  # fmt: skip
    faults = _faults(checkpoint, mtbf_h)
    for name in names:
        _say_what_it_lacks(name, forms)
    runs = [
        run_of(
            name, mechanism=mechanism, **asdict(forms), round_s=play.round, restart_s=play.restart_cost,
            seed=play.seed, faults=faults, lengths=knows, unsaved=play.unsaved,
        )
        for name in names
    ]  # fmt: skip
    clusters = [
        cluster_of(
            inputs.workload, inputs.pools, inputs.throughputs, prices=inputs.prices,
            elastic=play.elastic and run.policy in SIZES,
            space_sharing=run.baseline is not None and (forms.space_sharing or run.policy in _SHARES),
        )
        for run in runs
    ]  # fmt: skip
    found = []
    for run, cluster in zip(runs, clusters, strict=True):
        with _bar(f"simulating {run.policy}") as on_progress, hushed():
            simulated = simulate(cluster, run, measured=inputs.measured, on_progress=on_progress)
        found.append(Played(simulated, metrics_of(simulated), cluster.resizable))
    return found


@contextmanager
def _bar(title: str) -> Iterator[OnProgress]:
    """How far a simulation has come, on stderr: a line that is drawn over and over; nothing where that is no
    terminal."""
    console = Console(stderr=True)
    hours = TextColumn("jobs, {task.fields[hours]:,.0f} simulated hours")
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), hours
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as drawn:
        task = drawn.add_task(title, total=None, hours=0.0)
        yield lambda done, of, now_s: drawn.update(task, completed=done, total=of, hours=now_s / 3600)


def _say_what_it_lacks(name: str, forms: Forms) -> None:
    """Of several policies some may lack a form that was asked for: they are simulated without it."""
    known = POLICIES.get(name)
    for option, asked in (("agnostic", forms.agnostic), ("space_sharing", forms.space_sharing and name not in _SHARES)):
        if asked and known is not None and option not in known.settings:
            print(f"note: {name} knows no --{option.replace('_', '-')}: it is simulated without", file=sys.stderr)


def _faults(checkpoint: str | None, mtbf_h: float | None) -> Faults:
    every, cost = 1800.0, 0.0
    if checkpoint is not None:
        try:
            every, cost = (float(part) for part in checkpoint.split(":"))
        except ValueError:
            raise Invalid(f"{checkpoint!r}", where="--checkpoint", hint="EVERY:COST, as in 1800:10") from None
    return Faults(float("inf") if mtbf_h is None else mtbf_h, every, cost)
