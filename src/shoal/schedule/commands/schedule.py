"""`shoal schedule`: simulate policies on traces, decide on a snapshot, compare and explain."""

from __future__ import annotations

from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.base.console.command import CommandContext, command, guarded
from shoal.base.console.panels import TOOLS
from shoal.base.console.quick import QuickCommand
from shoal.base.console.quiet import hushed
from shoal.core import Invalid
from shoal.schedule.choices import Durations, Mechanism
from shoal.schedule.commands import live
from shoal.schedule.commands.options import (
    CheckpointOption,
    CsvOption,
    Forms,
    MechanismOption,
    MtbfOption,
    OutOption,
    Play,
    PlotOption,
    PoliciesOption,
    PolicyOption,
    PricesOption,
    ScaleFlag,
    SeedOption,
    SnapshotOption,
    SpreadFlag,
    ThroughputsOption,
    TraceOption,
    in_tails,
)

if TYPE_CHECKING:
    from shoal.schedule.types import Allocation

schedule_app = typer.Typer(
    help="Decide which job runs on which kind of accelerator: simulate policies, solve and explain snapshots.",
    no_args_is_help=True,
)


class Kind(StrEnum):
    GAVEL = "gavel"
    PHILLY = "philly"
    HEAVY_TAILED = "heavy-tailed"


def register(app: typer.Typer) -> None:
    live.register(schedule_app)
    app.add_typer(
        schedule_app,
        name="schedule",
        rich_help_panel=TOOLS,
        short_help="Simulate, compare and explain scheduling policies",
    )


class _BareJson(QuickCommand):
    """Lets `--json` stand without a file, for stdout, as it does in other commands."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = []
        for word, following in zip(args, [*args, "--"][1:], strict=True):
            words.append(word)
            if word == "--json" and following.startswith("-") and following != "-":
                words.append("-")
        return super().parse_args(ctx, words)


@command(schedule_app, "simulate", (), cls=_BareJson)
def simulate(
    context: CommandContext,
    trace: TraceOption,
    play: Play,
    forms: Forms,
    policy: PoliciesOption = "max-min",
    unconsolidated: SpreadFlag = False,
    scale_gangs: ScaleFlag = False,
    json: OutOption = None,
    mechanism: MechanismOption = Mechanism.SHOAL,
    checkpoint: CheckpointOption = None,
    mtbf: MtbfOption = None,
    prices: PricesOption = None,
    csv: CsvOption = None,
    plot: PlotOption = None,
) -> None:
    """Play a trace under one or more policies. Nothing runs: all numbers are simulated.

    shoal schedule simulate --trace jobs.trace --throughputs speeds.json --cluster v100=8,p100=16,k80=24
    --policy max-min,blend
    """

    def act() -> None:
        from shoal.base.console.files import OutFile
        from shoal.schedule.commands import view
        from shoal.schedule.commands.inputs import Inputs, played

        asked = {"--json": None if to_stdout or json is None else Path(json), "--csv": csv, "--plot": plot}
        files = {option: OutFile(path, option) for option, path in asked.items() if path is not None}
        for file in files.values():
            file.check()
        inputs = Inputs.read(trace, play, unconsolidated=unconsolidated, prices=prices, scaled=scale_gangs)
        found = played(inputs, _names(policy), play, forms, mechanism=mechanism, checkpoint=checkpoint, mtbf_h=mtbf)
        view.outcome(found, inputs, play, as_json=to_stdout, files=files)

    to_stdout = json == "-"
    guarded(replace(context, json=to_stdout), act)


@command(schedule_app, "compare", ("json",))
def compare(
    context: CommandContext,
    trace: TraceOption,
    play: Play,
    policy: PoliciesOption = "fifo,max-min,finish-time,makespan,blend",
) -> None:
    """Play a trace under several policies, and show each as a multiple of the first one's result. Simulated."""
    from shoal.schedule.commands import view
    from shoal.schedule.commands.inputs import Inputs, played
    from shoal.schedule.metrics import relative

    names = _names(policy)
    if len(names) < 2:
        raise Invalid("a comparison needs at least two policies", where="--policy", hint="max-min,blend, say")
    inputs = Inputs.read(trace, play)
    found = played(inputs, names, play)
    view.remark(inputs)
    base = found[0].metrics
    body = {
        "simulated": True,
        "base": base.policy,
        "policies": [{**view.as_data(each), "relative": relative(each.metrics, base)} for each in found],
    }
    context.show(body, lambda: view.compared(found))


@command(schedule_app, "generate", ("json",))
def generate(
    context: CommandContext,
    out: Annotated[Path, typer.Option("--out", "-o", help="The trace to write, in Gavel's ten fields.")],
    throughputs: ThroughputsOption = None,
    kind: Annotated[Kind, typer.Option("--kind", help="Whose distributions.")] = Kind.GAVEL,
    jobs: Annotated[int, typer.Option("--jobs", "-n", min=1)] = 1000,
    per_hour: Annotated[float, typer.Option("--per-hour", min=0, help="Arrivals; 0: all at once (gavel).")] = 4.4,
    gangs: Annotated[bool, typer.Option("--gangs", help="Jobs of several accelerators as well (gavel).")] = False,
    accelerators: Annotated[
        int, typer.Option("--accelerators", min=1, help="That --load is of (philly, heavy-tailed).")
    ] = 2500,
    load: Annotated[
        float,
        typer.Option(
            "--load", help="Work that arrives, over what could be done (philly, heavy-tailed; there 0: all at once)."
        ),
    ] = 0.8,
    seed: SeedOption = 0,
    durations: Annotated[Durations, in_tails("--durations", help="Distribution of durations.")] = Durations.LOGNORMAL,
    tail: Annotated[
        float,
        in_tails(
            "--tail",
            min=0,
            help="How heavy it is: the standard deviation of the logarithm of a duration. Of a "
            "Pareto distribution that is one over the exponent.",
        ),
    ] = 2.0,
    median: Annotated[float, in_tails("--median", min=0, help="Minutes that half of the jobs take at most.")] = 30.0,
    burst: Annotated[
        float,
        in_tails("--burst", min=1, help="Jobs that come at a time, on average: equal ones, as in a sweep."),
    ] = 1.0,
    gang_mix: Annotated[
        str, in_tails("--gang-mix", help="The part of jobs with each number of accelerators.")
    ] = "1=0.7,2=0.1,4=0.15,8=0.05",
) -> None:
    """Draw jobs from the papers' distributions, or from ones with a heavy tail, and write them as a trace."""
    from shoal.base.console.files import OutFile
    from shoal.schedule import workloads
    from shoal.schedule.commands.inputs import mix_of, table_of

    written = OutFile(out, "--out")
    written.check()
    table = table_of(throughputs)
    if kind is Kind.GAVEL:
        work = workloads.gavel_jobs(table, count=jobs, per_hour=per_hour, seed=seed, gangs=gangs)
    elif kind is Kind.PHILLY:
        work = workloads.philly_jobs(table, count=jobs, accelerators=accelerators, load=load, seed=seed)
    else:
        work = workloads.heavy_tailed_jobs(
            table, count=jobs, accelerators=accelerators, load=load, seed=seed,
            durations=durations, tail=tail, median_s=60.0 * median, burst=burst,
            gangs=mix_of(gang_mix),
        )  # fmt: skip
    written.write("".join(f"{line}\n" for line in workloads.gavel_lines(work, table)))
    speeds = f", with the made-up speeds of {table.source}" if throughputs is None else ""
    hours = float(work.arrived[-1]) / 3600
    context.show(
        {"trace": str(out), "jobs": int(work.jobs), "hours": hours},
        lambda: print(f"{work.jobs} jobs over {hours:.1f} hours written to {out}{speeds}"),
    )


@command(schedule_app, "solve", ("json",))
def solve(
    context: CommandContext,
    snapshot: SnapshotOption,
    forms: Forms,
    policy: PolicyOption = "max-min",
) -> None:
    """What a policy decides on a snapshot: shares of time, prices, and how good it is."""
    from shoal.schedule.commands import view

    found = _solved(snapshot, policy, forms)
    context.show(view.allocation_json(found), lambda: view.allocation(found))


@command(schedule_app, "explain", ("json",))
def explain(
    context: CommandContext,
    snapshot: SnapshotOption,
    forms: Forms,
    job: Annotated[list[str] | None, typer.Argument(metavar="JOB", help="Their ids; else all.")] = None,
    policy: PolicyOption = "max-min",
) -> None:
    """Why each job of a snapshot would get what it would get: the prices that keep it waiting."""
    from shoal.core import NotFound
    from shoal.schedule import reason_of

    found = _solved(snapshot, policy, forms)
    ids = [str(name) for name in found.problem.ids]
    if unknown := [name for name in job or () if name not in ids]:
        raise NotFound(f"the snapshot has no job {', '.join(unknown)}", where=str(snapshot))
    reasons = {name: reason_of(found, ids.index(name)) for name in job or ids}
    body = {"simulated": True, "jobs": {name: reason.as_json() for name, reason in reasons.items()}}

    def human() -> None:
        print(f"simulated: what {policy} would decide")
        width = max(map(len, reasons), default=0)
        for name, reason in reasons.items():
            print(f"{name:<{width}}  {reason.text}")

    context.show(body, human)


def _solved(snapshot: Path, policy: str, forms: Forms) -> Allocation:
    from shoal.schedule import POLICIES, decide
    from shoal.schedule.workloads import read_snapshot

    known = POLICIES.get(policy)
    settings = {name: True for name, asked in asdict(forms).items() if asked}
    for name in settings:
        if known is not None and name not in known.settings:
            raise Invalid(f"{policy} has no such form", where=f"--{name.replace('_', '-')}")
    problem = read_snapshot(snapshot).problem()
    with hushed():
        return decide(policy, problem, **settings)


def _names(text: str) -> list[str]:
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise Invalid("no policy is named", where="--policy")
    return names
