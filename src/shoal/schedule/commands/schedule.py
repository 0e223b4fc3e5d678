"""`shoal schedule`: simulate policies on traces, decide on a snapshot, compare and explain."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from shoal.base.console.command import CommandContext, JsonFlag, guarded
from shoal.base.console.quiet import hushed
from shoal.core import Invalid
from shoal.schedule.choices import Durations, Mechanism

if TYPE_CHECKING:
    from shoal.schedule.types import Allocation

schedule_app = typer.Typer(
    help="Decide which job runs on which kind of accelerator: simulate policies, solve and explain snapshots.",
    no_args_is_help=True,
)

_jobs, _cluster, _policy, _costs, _output, _tails = (
    partial(typer.Option, rich_help_panel=panel)
    for panel in ("Jobs", "Cluster", "Policy", "Costs and failures", "Output", "Heavy-tailed")
)


class Kind(StrEnum):
    GAVEL = "gavel"
    PHILLY = "philly"
    HEAVY_TAILED = "heavy-tailed"


TraceOption = Annotated[
    Path, _jobs("--trace", help="Gavel's trace (both formats), Philly-style .csv, or a snapshot (JSON lines).")
]
ThroughputsOption = Annotated[
    Path | None, _jobs("--throughputs", help="Measured speeds: Gavel's JSON; else a made-up example.")
]
MeasureOption = Annotated[str | None, _jobs("--measure-jobs", help="Count only jobs A:B, by arrival.")]
ScaleFlag = Annotated[
    bool, _jobs("--scale-gangs", help="Gangs that were not measured are as fast, by accelerator, as smaller ones.")
]
ElasticFlag = Annotated[
    bool,
    _jobs("--elastic", help="Jobs may have every size that their kind was measured with; policies that cannot resize "
          "run them as they are given."),
]  # fmt: skip
UnsavedOption = Annotated[
    float, _jobs("--unsaved", min=0, max=1, help="The part of the jobs that do not save their work.")
]
ClusterOption = Annotated[
    str | None,
    _cluster("--cluster", "-c", help="As in v100=8,p100=16@1.46 (dollars an hour); else the snapshot's."),
]
RoundOption = Annotated[float, _cluster("--round", help="Seconds of a round.")]
NodeOption = Annotated[int | None, _cluster("--gpus-per-node", min=1, help="Accelerators of a machine.")]
SpreadFlag = Annotated[
    bool,
    _cluster("--unconsolidated", help="Let gangs be spread over machines, at the speeds of TYPE_unconsolidated."),
]
PoliciesOption = Annotated[str, _policy("--policy", "-p", help="One, or several separated by commas.")]
AgnosticFlag = Annotated[bool, _policy("--agnostic", help="Policies take all types for equal.")]
SharingFlag = Annotated[bool, _policy("--space-sharing", help="Two jobs may share accelerators.")]
LengthsOption = Annotated[str, _policy("--lengths", help="What policies know: known, predicted:FACTOR, unknown.")]
MechanismOption = Annotated[
    Mechanism,
    _policy("--mechanism", help="The loop of the control plane; to compare, Gavel's rounds with our policies, or its "
            "published rounds and programs to the letter."),
]  # fmt: skip
RestartOption = Annotated[float, _costs("--restart-cost", min=0, help="Seconds that a migration loses.")]
CheckpointOption = Annotated[str | None, _costs("--checkpoint", help="EVERY:COST in seconds, as in 1800:10.")]
MtbfOption = Annotated[float | None, _costs("--mtbf", help="Hours between failures of one accelerator.")]
PricesOption = Annotated[Path | None, _costs("--prices", help="CSV: seconds,type,usd_per_hour.")]
OutOption = Annotated[str | None, _output("--json", metavar="[OUT]", help="JSON, on stdout or into a file.")]
CsvOption = Annotated[Path | None, _output("--csv", help="One row for each job.")]
PlotOption = Annotated[Path | None, _output("--plot", help="An HTML page with figures.")]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="The same seed gives the same result.")]
SnapshotOption = Annotated[Path, typer.Option("--snapshot", help="The live state as JSON lines.")]
PolicyOption = Annotated[str, typer.Option("--policy", "-p", help="One policy.")]


def register(app: typer.Typer) -> None:
    from shoal.schedule.commands import live as schedule_live

    schedule_live.register(schedule_app)
    app.add_typer(schedule_app, name="schedule", rich_help_panel="Schedule")


class _BareJson(TyperCommand):
    """Lets `--json` stand without a file, for stdout, as it does in other commands."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = []
        for word, following in zip(args, [*args[1:], "--"], strict=True):
            words.append(word)
            if word == "--json" and following.startswith("-") and following != "-":
                words.append("-")
        return super().parse_args(ctx, words)


@schedule_app.command("simulate", cls=_BareJson)
def simulate(
    trace: TraceOption,
    throughputs: ThroughputsOption = None,
    cluster: ClusterOption = None,
    policy: PoliciesOption = "max-min",
    round: RoundOption = 360.0,
    seed: SeedOption = 0,
    gpus_per_node: NodeOption = None,
    unconsolidated: SpreadFlag = False,
    measure_jobs: MeasureOption = None,
    scale_gangs: ScaleFlag = False,
    restart_cost: RestartOption = 0.0,
    json: OutOption = None,
    agnostic: AgnosticFlag = False,
    space_sharing: SharingFlag = False,
    lengths: LengthsOption = "known",
    mechanism: MechanismOption = Mechanism.SHOAL,
    elastic: ElasticFlag = False,
    unsaved: UnsavedOption = 0.0,
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
    context = CommandContext(json == "-", None, None)

    def act() -> None:
        from shoal.base.console.files import OutFile
        from shoal.schedule.commands import view
        from shoal.schedule.commands.inputs import Inputs, played

        asked = {"--json": Path(json) if json not in (None, "-") else None, "--csv": csv, "--plot": plot}
        files = {option: OutFile(path, option) for option, path in asked.items() if path is not None}
        for file in files.values():
            file.check()
        inputs = Inputs.read(
            trace, throughputs, cluster, measure=measure_jobs, per_node=gpus_per_node, unconsolidated=unconsolidated,
            prices=prices, seed=seed, scaled=scale_gangs,
        )  # fmt: skip
        found = played(
            inputs, _names(policy), round_s=round, restart_s=restart_cost, seed=seed, agnostic=agnostic,
            space_sharing=space_sharing, lengths=lengths, mechanism=mechanism,
            checkpoint=checkpoint, mtbf_h=mtbf, elastic=elastic, unsaved=unsaved,
        )  # fmt: skip
        view.outcome(found, inputs, as_json=context.json, files=files, lengths=lengths, restart_s=restart_cost)

    guarded(context, act)


@schedule_app.command("compare")
def compare(
    trace: TraceOption,
    throughputs: ThroughputsOption = None,
    cluster: ClusterOption = None,
    policy: PoliciesOption = "fifo,max-min,finish-time,makespan,blend",
    round: RoundOption = 360.0,
    seed: SeedOption = 0,
    gpus_per_node: NodeOption = None,
    measure_jobs: MeasureOption = None,
    restart_cost: RestartOption = 0.0,
    lengths: LengthsOption = "known",
    elastic: ElasticFlag = False,
    unsaved: UnsavedOption = 0.0,
    json: JsonFlag = False,
) -> None:
    """Play a trace under several policies, and say what each is in parts of the first one's result. Simulated."""
    context = CommandContext(json, None, None)

    def act() -> None:
        from shoal.schedule.commands import view
        from shoal.schedule.commands.inputs import Inputs, played
        from shoal.schedule.metrics import relative

        names = _names(policy)
        if len(names) < 2:
            raise Invalid("a comparison needs at least two policies", where="--policy", hint="max-min,blend, say")
        inputs = Inputs.read(trace, throughputs, cluster, measure=measure_jobs, per_node=gpus_per_node, seed=seed)
        found = played(
            inputs, names, round_s=round, restart_s=restart_cost, seed=seed, lengths=lengths, elastic=elastic,
            unsaved=unsaved,
        )  # fmt: skip
        view.remark(inputs)
        base = found[0].metrics
        body = {
            "simulated": True,
            "base": base.policy,
            "policies": [{**view.as_data(each), "relative": relative(each.metrics, base)} for each in found],
        }
        context.show(body, lambda: view.compared(found))

    guarded(context, act)


@schedule_app.command("generate")
def generate(
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
    durations: Annotated[Durations, _tails("--durations", help="Distribution of durations.")] = Durations.LOGNORMAL,
    tail: Annotated[
        float,
        _tails(
            "--tail",
            min=0,
            help="How heavy it is: the standard deviation of the logarithm of a duration. Of a "
            "Pareto distribution that is one over the exponent.",
        ),
    ] = 2.0,
    median: Annotated[float, _tails("--median", min=0, help="Minutes that half of the jobs take at most.")] = 30.0,
    burst: Annotated[
        float,
        _tails("--burst", min=1, help="Jobs that come at a time, on average: equal ones, as in a sweep."),
    ] = 1.0,
    gang_mix: Annotated[
        str, _tails("--gang-mix", help="The part of jobs with each number of accelerators.")
    ] = "1=0.7,2=0.1,4=0.15,8=0.05",
) -> None:
    """Draw jobs from the papers' distributions, or from ones with a heavy tail, and write them as a trace."""

    def act() -> None:
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
        print(f"{work.jobs} jobs over {work.arrived[-1] / 3600:.1f} hours written to {out}{speeds}")

    guarded(CommandContext(False, None, None), act)


@schedule_app.command("solve")
def solve(
    snapshot: SnapshotOption,
    policy: PolicyOption = "max-min",
    agnostic: AgnosticFlag = False,
    space_sharing: SharingFlag = False,
    json: JsonFlag = False,
) -> None:
    """What a policy decides on a snapshot: shares of time, prices, and how good it is."""
    context = CommandContext(json, None, None)

    def act() -> None:
        from shoal.schedule.commands import view

        found = _solved(snapshot, policy, agnostic, space_sharing)
        context.show(view.allocation_json(found), lambda: view.allocation(found))

    guarded(context, act)


@schedule_app.command("explain")
def explain(
    snapshot: SnapshotOption,
    job: Annotated[list[str] | None, typer.Argument(metavar="[JOB]...", help="Their ids; else all.")] = None,
    policy: PolicyOption = "max-min",
    agnostic: AgnosticFlag = False,
    space_sharing: SharingFlag = False,
    json: JsonFlag = False,
) -> None:
    """Why each job of a snapshot would get what it would get: the prices that keep it waiting."""
    context = CommandContext(json, None, None)

    def act() -> None:
        from shoal.core import NotFound
        from shoal.schedule import reason_of

        found = _solved(snapshot, policy, agnostic, space_sharing)
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

    guarded(context, act)


def _solved(snapshot: Path, policy: str, agnostic: bool, space_sharing: bool) -> Allocation:
    from shoal.schedule import POLICIES, decide
    from shoal.schedule.workloads import read_snapshot

    known = POLICIES.get(policy)
    settings = {}
    for name, asked in (("agnostic", agnostic), ("space_sharing", space_sharing)):
        if asked and known is not None and name not in known.settings:
            raise Invalid(f"{policy} has no such form", where=f"--{name.replace('_', '-')}")
        if asked:
            settings[name] = True
    problem = read_snapshot(snapshot).problem()
    with hushed():
        return decide(policy, problem, **settings)


def _names(text: str) -> list[str]:
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise Invalid("no policy is named", where="--policy")
    return names
