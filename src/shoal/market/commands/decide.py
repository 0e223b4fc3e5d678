"""`shoal market simulate`, `compare`, `plan` and `explain`: one job with a deadline on a history."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.base.console.command import CommandContext, command
from shoal.core import Invalid
from shoal.market.commands.output import (
    AcceleratorOption,
    HistoryArgument,
    RegionOption,
    read_history,
    read_speeds,
    table,
)  # fmt: skip

if TYPE_CHECKING:
    from shoal.market.policy.fallback import Choice
    from shoal.market.policy.view import View
    from shoal.market.ticks import Ticks

_JOB, _PRICES = "Job", "Prices"
_REPLAYED_TICKS = 6_000
"""Replays of long jobs are fewer, so that all of them are done in seconds."""
WorkOption = Annotated[float, typer.Option("--work", min=0.01, help="Hours of work at speed 1.", rich_help_panel=_JOB)]
DeadlineOption = Annotated[float, typer.Option("--deadline", min=0.01, help="Hours.", rich_help_panel=_JOB)]
LaunchOption = Annotated[float, typer.Option("--launch", min=0, help="Seconds of a launch.", rich_help_panel=_JOB)]
LostOption = Annotated[
    float, typer.Option("--lost", min=0, help="Seconds of work that a preemption loses.", rich_help_panel=_JOB)
]
NodesOption = Annotated[int, typer.Option("--nodes", min=1, help="Needed all at once.", rich_help_panel=_JOB)]
DataOption = Annotated[float, typer.Option("--data-gb", min=0, help="Read at each launch.", rich_help_panel=_JOB)]
StateOption = Annotated[float, typer.Option("--state-gb", min=0, help="Read at each launch.", rich_help_panel=_JOB)]
HomeOption = Annotated[str, typer.Option("--data-home", help="The region of data and state.", rich_help_panel=_JOB)]
DemandOption = Annotated[
    float | None,
    typer.Option(
        "--on-demand", min=0, help="Dollars an hour of each accelerator, where the history has no price on demand.",
        rich_help_panel=_PRICES,
    ),
]  # fmt: skip
SpotOption = Annotated[
    float | None, typer.Option("--spot-price", min=0, help="For traces without prices.", rich_help_panel=_PRICES)
]
RefusedOption = Annotated[
    float, typer.Option("--refused", min=0, max=1, help="The part of launches that fail.", rich_help_panel=_PRICES)
]
RetriesOption = Annotated[
    int, typer.Option("--retries", min=0, help="Of failed launches on demand in a row.", rich_help_panel=_PRICES)
]
SpeedsOption = Annotated[
    Path | None,
    typer.Option(
        "--speeds", help='JSON: speed of an instance by accelerator and number, {"v100": 1, "v100:8": 7}.',
        rich_help_panel=_JOB,
    ),
]  # fmt: skip
TickOption = Annotated[float, typer.Option("--tick", min=1, help="Seconds between decisions.")]
StartOption = Annotated[float, typer.Option("--start", min=0, help="Hours after the history begins.")]
LearnOption = Annotated[
    list[Path] | None, typer.Option("--learn", help="Histories of other zones or days, for the policy `markov`.")
]
SeedOption = Annotated[int, typer.Option("--seed", min=0)]
PolicyOption = Annotated[str, typer.Option("--policy", "-p", help="markov, or one to compare with.")]
PlotOption = Annotated[Path | None, typer.Option("--plot", help="An HTML page with figures.")]


@dataclass(frozen=True, slots=True)
class JobOptions:
    """What is known of the job and its market, whatever is asked about them."""

    on_demand: DemandOption = None
    spot_price: SpotOption = None
    learn: LearnOption = None
    launch: LaunchOption = 600.0
    lost: LostOption = 0.0
    nodes: NodesOption = 1
    data_gb: DataOption = 0.0
    state_gb: StateOption = 0.0
    data_home: HomeOption = ""
    tick: TickOption = 600.0
    accelerator: AcceleratorOption = None
    region: RegionOption = None
    speeds: SpeedsOption = None
    retries: RetriesOption = 0


def register(app: typer.Typer) -> None:
    for name, function in (("simulate", simulate), ("compare", compare), ("plan", plan), ("explain", explain)):
        command(app, name)(function)


def simulate(
    context: CommandContext, history: HistoryArgument, work: WorkOption, deadline: DeadlineOption, options: JobOptions,
    policy: PolicyOption = "markov", start: StartOption = 0.0, refused: RefusedOption = 0.0, plot: PlotOption = None,
) -> None:  # fmt: skip
    """One job through the history: what it held when, what that cost, and the least it could have cost."""
    from shoal.market.optimum import optimum
    from shoal.market.plots import track
    from shoal.market.policy.names import policy_named
    from shoal.market.simulate import simulate as run
    from shoal.market.tables import storage_usd

    market = _market(context, history, work, deadline, options, refused)
    past = _past(context, work, deadline, options, refused)
    _check_possible(market, work, deadline)
    if not math.isfinite(start):
        raise Invalid(f"{start:g} h after the beginning is no time", where="--start", hint="a number of hours is meant")
    window, kept_gb = market.window(int(start * 3600 / options.tick)), options.state_gb + options.data_gb
    outcome, best = run(window, policy_named(policy, window, past)), optimum(window)
    if plot is not None:
        plot.write_text(track(window, outcome, policy), encoding="utf-8")
    row = {
        "policy": policy, "usd": outcome.usd, "egress_usd": outcome.egress_usd,
        "finish_h": None if outcome.finish_s is None else outcome.finish_s / 3600, "launches": outcome.launches,
        "preemptions": outcome.preemptions, "refusals": outcome.refusals,
        "storage_usd": storage_usd(window.offers[0].provider, kept_gb, outcome.finish_s or deadline * 3600),
        "lost_h": outcome.lost_s / 3600, "optimum_usd": [best.lower, best.upper],
        "over_optimum": outcome.usd / best.lower,
        "moves": [
            {"h": t * options.tick / 3600, "offer": None if step.offer is None else window.offers[step.offer].name,
             "reason": step.reason}
            for t, step in enumerate(outcome.steps) if t == 0 or step.offer != outcome.steps[t - 1].offer
        ],
    }  # fmt: skip
    context.show(row, lambda: _outcome(row))


def compare(
    context: CommandContext, history: HistoryArgument, work: WorkOption, options: JobOptions,
    deadlines: Annotated[str, typer.Option("--deadlines", help="Deadlines over work, separated by commas.")] = "1.3",
    policies: Annotated[str, typer.Option("--policy", "-p", help="Several, separated by commas.")] = (
        "greedy,uniform-progress,markov"
    ),
    starts: Annotated[int, typer.Option("--starts", min=1, help="Starts drawn from the history.")] = 10,
    seed: SeedOption = 0, refused: RefusedOption = 0.0, plot: PlotOption = None,
) -> None:  # fmt: skip
    """Policies from many starts: mean cost over the offline optimum, with a 95 % interval over the starts."""
    from shoal.market.compare import compared, run, starts_of
    from shoal.market.plots import deadlines as page

    names = [name.strip() for name in policies.split(",")]
    try:
        factors = [float(one) for one in deadlines.split(",")]
    except ValueError as error:
        raise Invalid("numbers separated by commas are meant", where="--deadlines") from error
    past, rows = _past(context, work, work, options, refused, seed), []
    for factor in factors:
        market = _market(context, history, work, work * factor, options, refused, seed)
        runs = run(market, names, starts_of(market, starts, seed), past)
        if not runs:
            raise Invalid(f"no schedule ends {work:g} h of work within {work * factor:g} h")
        rows += [{"deadline": factor, **asdict(one)} for one in compared(runs, names)]
    if plot is not None:
        curves = {name: [(row["deadline"], row["ratio"]) for row in rows if row["policy"] == name] for name in names}
        plot.write_text(page(curves), encoding="utf-8")
    context.show(rows, lambda: table(rows, {
        "deadline": "DEADLINE/WORK", "policy": "POLICY", "usd": "MEAN $", "ratio": "OVER OPTIMUM", "low": "LOW",
        "high": "HIGH", "missed": "MISSED", "launches": "LAUNCHES", "preemptions": "PREEMPTIONS",
    }))  # fmt: skip


def plan(
    context: CommandContext, history: HistoryArgument, work: WorkOption, deadline: DeadlineOption, options: JobOptions,
    refused: RefusedOption = 0.0,
    replays: Annotated[int, typer.Option("--replays", min=1, help="Starts in the history to try the plan from.")] = 20,
    seed: SeedOption = 0,
) -> None:  # fmt: skip
    """What to rent first after the end of the history, what the job is expected to cost, and what it would have cost
    from starts in that history."""
    from shoal.market.policy.fallback import choose

    market = _market(context, history, work, deadline, options, refused, seed)
    _check_possible(market, work, deadline)
    past = _past(context, work, deadline, options, refused, seed)
    choice = choose(market, [market, *past], seed=seed)
    row = {**_decided(_now(market), choice, past, 1.0), "replayed": _replayed(market, choice, past, replays, seed)}
    context.show(row, lambda: _planned(row))


def explain(
    context: CommandContext, history: HistoryArgument, work: WorkOption, deadline: DeadlineOption, options: JobOptions
) -> None:
    """Why this offer and why now, and what would be decided if its price rose."""
    from shoal.market.policy.fallback import choose

    market = _market(context, history, work, deadline, options)
    _check_possible(market, work, deadline)
    view, past = _now(market), _past(context, work, deadline, options)
    choice = choose(market, [market, *past])
    rows = [_decided(view, choice, past, factor) for factor in (1.0, 1.2, 1.5, 2.0)]
    context.show(rows, lambda: table(rows, {"price": "PRICE X", "offer": "RENT", "text": "WHY"}))


def _decided(view: View, choice: Choice, past: list[Ticks], factor: float) -> dict[str, Any]:
    from shoal.market.policy.markov import prior_of
    from shoal.market.policy.view import dearer, safe

    changed = dearer(view, factor) if factor != 1.0 else view
    decision = safe(changed, choice.policy(prior_of(past)).decide(changed))
    name = None if decision.offer is None else view.market.offers[decision.offer].name
    return {"price": factor, "offer": name, **decision.reason.as_json()}


def _replayed(market: Ticks, choice: Choice, past: list[Ticks], replays: int, seed: int) -> dict[str, Any] | None:
    """The same job, from starts drawn from the history; None where the history is shorter than the deadline."""
    import numpy as np

    from shoal.market.compare import starts_of
    from shoal.market.policy.fallback import around
    from shoal.market.policy.markov import prior_of, steady
    from shoal.market.simulate import simulate as run

    if market.deadline > len(market.up):
        return None
    others, found = prior_of(past), []
    number = max(1, min(replays, _REPLAYED_TICKS // market.deadline))
    again = max(48, market.deadline // 3)
    for at in starts_of(market, number, seed):
        known = around(market, at, market.deadline) + others
        found.append(run(market.window(at), choice.policy(known, again=again)))
    low, middle, high = (float(one) for one in np.quantile([one.usd for one in found], (0.1, 0.5, 0.9)))
    demand = steady(_now(market))
    ticks = market.launch + math.ceil(market.work / float(market.speed[demand]) - 1e-9)
    return {
        "policy": choice.name, "starts": len(found), "usd": {"p10": low, "p50": middle, "p90": high},
        "met": sum(one.met for one in found), "launches": float(np.mean([one.launches for one in found])),
        "preemptions": float(np.mean([one.preemptions for one in found])),
        "all_on_demand_usd": ticks * float(market.usd[-1, demand]),
    }  # fmt: skip


def _planned(row: dict[str, Any]) -> None:
    print(f"rent {row['offer'] or 'nothing yet'}: {row['text']}")
    tried = row["replayed"]
    if tried is None:
        print("the history is shorter than the deadline: no replays")
        return
    usd = tried["usd"]
    print(f"from {tried['starts']} starts in this history: ${usd['p50']:.2f} in the median, "
          f"${usd['p10']:.2f} to ${usd['p90']:.2f} in eight of ten; {tried['met']} in time")  # fmt: skip
    print(f"  {tried['launches']:.1f} launches and {tried['preemptions']:.1f} preemptions on average; "
          f"all on demand it is ${tried['all_on_demand_usd']:.2f}")  # fmt: skip


def _now(market: Ticks) -> View:
    """The job before its first tick, at the last tick of the history, all of which it has seen."""
    from shoal.market.policy.view import View

    usd, up = market.usd[-1], market.up[-1]
    last = replace(market, usd=usd[None], up=up[None], refused=None)
    return View(last, 0, market.work, None, 0, 0, usd, up, market.up)


def _market(
    context: CommandContext, history: list[Path], work: float, deadline: float, options: JobOptions,
    refused: float = 0.0, seed: int = 0,
) -> Ticks:  # fmt: skip
    """The job on this history, where the part `refused` of launches fails."""
    from shoal.market.ticks import Job, cut, shape

    def note(text: str) -> None:
        if not context.json:
            context.note(f"note: {text}")

    found = read_history(context, history, options.accelerator, options.region)
    job = Job(
        work * 3600, deadline * 3600, options.launch, options.lost, options.nodes, options.state_gb, options.data_gb,
        options.data_home,
    )  # fmt: skip
    speeds = {} if options.speeds is None else read_speeds(options.speeds)
    for offer, track in found.tracks.items():
        if track.availability is not None and int(track.availability.counts.max()) < job.nodes:
            note(f"{offer.name} never had {job.nodes} at once: it serves no gang of this size")
    market = cut(
        found, job, tick_s=options.tick, on_demand_usd=options.on_demand, spot_usd=options.spot_price, speeds=speeds
    )
    shapes = sorted({shape(offer) for offer in market.offers})
    alike = [one for one in shapes if one not in speeds]
    if len(shapes) > 1 and alike:
        note(f"speeds of {', '.join(alike)} are not given: those of one kind, or 1")
    if unused := sorted(speeds.keys() - {offer.accelerator for offer in market.offers} - set(shapes)):
        note(f"no offer has {', '.join(unused)}, of which --speeds has a speed")
    if not refused and not options.retries:
        return market
    return market.refusing(refused, refused if options.retries else 0.0, options.retries, seed)


def _past(
    context: CommandContext, work: float, deadline: float, options: JobOptions, refused: float = 0.0, seed: int = 0
) -> list[Ticks]:
    """The same job on the histories to learn from."""
    if not options.learn:
        return []
    return [_market(context, options.learn, work, deadline, replace(options, region=None), refused, seed)]


def _check_possible(market: Ticks, work: float, deadline: float) -> None:
    """Raises Invalid where no offer is fast enough for the deadline."""
    ticks = market.launch + math.ceil(market.work / float(market.speed.max()) - 1e-9)
    if ticks > market.deadline:
        least = ticks * market.tick_s / 3600
        raise Invalid(
            f"{work:g} h of work cannot end within {deadline:g} h", where="--deadline",
            hint=f"with its launch, the fastest offer needs {least:.1f} h",
        )  # fmt: skip


def _outcome(row: dict[str, Any]) -> None:
    ending = "the deadline is missed" if row["finish_h"] is None else f"ends after {row['finish_h']:.2f} h"
    low, high = row["optimum_usd"]
    print(f"{row['policy']}: ${row['usd']:.2f} (egress ${row['egress_usd']:.2f}), {ending}")
    print(f"  storage until then ${row['storage_usd']:.2f}; launches that failed: {row['refusals']}")
    print(f"  {row['launches']} launches, {row['preemptions']} preemptions, {row['lost_h']:.2f} h of work lost")
    print(f"  {row['over_optimum']:.3f} of the offline optimum (${low:.2f} to ${high:.2f})")
    table(row["moves"], {"h": "HOUR", "offer": "HELD", "reason": "WHY"})
