"""`shoal measure`: put load on any server of the Open Inference Protocol, and say what it can take."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shoal.base.console.command import FAILED, CommandContext, command
from shoal.base.console.panels import TOOLS
from shoal.core import Invalid
from shoal.measure.commands import frontier as measure_frontier
from shoal.measure.commands.options import (
    LongWarmup,
    ModelOption,
    ModelsOption,
    SendingExamples,
    Starts,
    UrlOption,
    VersionOption,
    seconds_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.measure.load.generator import Load
    from shoal.measure.search.judge import Trial
    from shoal.measure.types import Floats, LoadResult

measure_app = typer.Typer(
    help="Put load on any server of the Open Inference Protocol (Shoal, Triton, MLServer, ...) and judge it.",
    no_args_is_help=True,
)


class Arrivals(StrEnum):
    POISSON = "poisson"
    CONSTANT = "constant"
    BURSTY = "bursty"
    DIURNAL = "diurnal"
    TRACE = "trace"


_SHAPE = "Shape of the load"


def register(app: typer.Typer) -> None:
    measure_frontier.register(measure_app)
    app.add_typer(
        measure_app, name="measure", rich_help_panel=TOOLS, short_help="Put load on an inference server, and judge it"
    )


@command(measure_app, "run", ("json",))
def run(
    context: CommandContext,
    url: UrlOption,
    model: ModelsOption,
    rate: Annotated[
        list[float] | None,
        typer.Option("--rate", "-r", help="Requests per second; one for each model, or one for all."),
    ] = None,
    clients: Annotated[
        int | None,
        typer.Option("--clients", "-c", min=1, help="A closed loop of this number of clients instead of a rate."),
    ] = None,
    duration: Annotated[str, typer.Option("--duration", "-d", help="Of the whole load, warm-up included.")] = "10s",
    arrivals: Annotated[Arrivals, typer.Option("--arrivals", "-a", rich_help_panel=_SHAPE)] = Arrivals.POISSON,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", help="Recorded arrivals: Azure's CSV, or seconds.", rich_help_panel=_SHAPE),
    ] = None,
    speed: Annotated[
        float, typer.Option("--speed", help="The factor by which the trace is played faster.", rich_help_panel=_SHAPE)
    ] = 1.0,
    burst_factor: Annotated[
        float, typer.Option("--burst-factor", help="Rate in a burst, over that between.", rich_help_panel=_SHAPE)
    ] = 5.0,
    burst: Annotated[str, typer.Option("--burst", help="Mean length of a burst.", rich_help_panel=_SHAPE)] = "1s",
    period: Annotated[
        str, typer.Option("--period", help="Length of a diurnal load's day.", rich_help_panel=_SHAPE)
    ] = "60s",
    slo: Annotated[str | None, typer.Option("--slo", help="Count what is answered within this, as in 50ms.")] = None,
    require: Annotated[
        float | None, typer.Option("--require", min=0, max=1, help="Exit 1 if a smaller share is within --slo.")
    ] = None,
    version: VersionOption = None,
    give_up: Annotated[str, typer.Option("--give-up", help="Abort after so long of nothing but failures.")] = "5s",
    *,
    sending: LongWarmup,
) -> None:
    """Load one or more models and report latency from the scheduled arrival, with intervals.

    shoal measure run -u http://127.0.0.1:8000 -m resnet --rate 200 --slo 50ms
    """
    from shoal.measure.commands import view
    from shoal.measure.load.generator import ClosedLoad, OpenLoad, run_load
    from shoal.measure.progress import bar
    from shoal.measure.types import Target

    duration_s, slo_s = seconds_of(duration, "--duration"), seconds_of(slo, "--slo") if slo else None
    if require is not None and slo_s is None:
        raise Invalid("--require needs an objective", where="--require", hint="add --slo 50ms")
    targets = [Target(url, name, version, sending.token, inputs=sending.maker()) for name in model]
    loads: list[Load]
    if clients is not None:
        if rate or trace:
            raise Invalid("a closed loop makes its own rate", where="--clients", hint="leave out --rate and --trace")
        loads = [ClosedLoad(target, clients, duration_s) for target in targets]
    else:
        rates = _rates(rate, len(targets), needed=arrivals is not Arrivals.TRACE)
        loads = []
        for at, (target, wanted) in enumerate(zip(targets, rates, strict=True)):
            times = _times(
                arrivals, wanted, duration_s, seed=sending.seed + at, trace=trace, speed=speed,
                burst_factor=burst_factor, burst_s=seconds_of(burst, "--burst"),
                period_s=seconds_of(period, "--period"),
            )  # fmt: skip
            loads.append(OpenLoad(target, times, duration_s))
    settings = sending.settings(give_up_s=seconds_of(give_up, "--give-up"))
    with bar("measuring") as on_progress:
        results = run_load(loads, settings, on_progress=on_progress)
    documents = [result.as_json(slo_s=slo_s) for result in results]
    context.show(documents[0] if len(documents) == 1 else documents, lambda: view.results(results, slo_s))
    _warn(context, results)
    missed = require is not None and slo_s is not None and any(
        result.attainment(slo_s).value < require for result in results
    )  # fmt: skip
    if missed or any(result.aborted for result in results):
        raise typer.Exit(FAILED)


@command(measure_app, "capacity", ("json",))
def capacity(
    context: CommandContext,
    url: UrlOption,
    model: ModelOption,
    slo_p99: Annotated[
        str | None, typer.Option("--slo-p99", help="The objective for the 99th percentile, as in 50ms.")
    ] = None,
    slo: Annotated[str | None, typer.Option("--slo", help="The objective for another one: see --quantile.")] = None,
    quantile: Annotated[float, typer.Option("--quantile", "-q", help="0.95 is the 95th percentile.")] = 0.99,
    tolerance: Annotated[float, typer.Option("--tolerance", help="As exact as this, as a share.")] = 0.03,
    confidence: Annotated[float, typer.Option("--confidence", help="How sure each end is.")] = 0.95,
    trial_requests: Annotated[int, typer.Option("--trial-requests", help="The most requests at one rate.")] = 100_000,
    trial_time: Annotated[str, typer.Option("--trial-time", help="At most so long at one rate.")] = "30s",
    budget: Annotated[str, typer.Option("--budget", help="Begin no trial later than this.")] = "5m",
    start_rate: Annotated[
        float | None, typer.Option("--start-rate", help="The first guess; else 70 % of the saturated throughput.")
    ] = None,
    version: VersionOption = None,
    *,
    sending: SendingExamples,
) -> None:
    """Search the highest rate of independent (Poisson) requests that keeps a latency objective.

    shoal measure capacity -u http://127.0.0.1:8000 -m resnet --slo-p99 50ms

    Exit code 1 if no rate keeps it.
    """
    from shoal.measure.commands import view
    from shoal.measure.live import measure_capacity
    from shoal.measure.progress import bar, clear
    from shoal.measure.search.judge import Effort, Goal
    from shoal.measure.types import Target

    def told(trial: Trial) -> None:
        clear()
        context.note(view.trial(trial))

    if (slo_p99 is None) == (slo is None):
        raise Invalid("give one objective", where="--slo-p99", hint="--slo-p99 50ms, or --slo 50ms --quantile 0.95")
    goal = Goal(seconds_of(slo_p99, "--slo-p99"), 0.99) if slo_p99 else Goal(seconds_of(slo, "--slo"), quantile)
    trial_s, budget_s = seconds_of(trial_time, "--trial-time"), seconds_of(budget, "--budget")
    context.note(
        f"ends when the rate is known to {tolerance:.0%} (--tolerance); each trial takes up to {trial_s:g} s, and none "
        f"begins after {budget_s:g} s (--budget)"
    )
    with bar("searching") as on_progress:
        found = measure_capacity(
            Target(url, model, version, sending.token, inputs=sending.maker()),
            goal,
            effort=Effort(tolerance, confidence, trial_requests),
            settings=sending.settings(),
            start_per_s=start_rate,
            trial_s=trial_s,
            budget_s=budget_s,
            on_trial=told,
            on_progress=on_progress,
        )
    context.show(found.as_json(), lambda: view.capacity(found))
    for warning in found.warnings:
        context.note(f"warning: {warning.text}")
    if found.capacity.rate_per_s.value == 0:
        raise typer.Exit(FAILED)


@command(measure_app, "coldstart", ("json",))
def coldstart(
    context: CommandContext,
    url: UrlOption,
    model: ModelOption,
    repeats: Annotated[int, typer.Option("--repeats", "-n", min=1, help="The number of cold starts.")] = 10,
    *,
    sending: Starts,
) -> None:
    """Unload and load a model over and over, and time it until its first answer."""
    from shoal.measure.coldstart import cold_starts
    from shoal.measure.commands import view
    from shoal.measure.load.generator import run as run_loop
    from shoal.measure.types import Target

    target = Target(url, model, token=sending.token, inputs=sending.maker())
    found = run_loop(
        cold_starts(
            target, repeats=repeats, timeout_s=seconds_of(sending.timeout, "--timeout"),
            encoding=sending.encoding,
            on_start=lambda number: context.note(f"cold start {number} of {repeats}"),
        )
    )  # fmt: skip
    context.show(found.as_json(), lambda: view.cold_starts(found))


def _warn(context: CommandContext, results: Sequence[LoadResult]) -> None:
    for result in results:
        if (warning := result.bottleneck()) is not None:
            context.note(f"warning: {result.label}: {warning.text}")
        if result.aborted is not None:
            context.note(f"aborted: {result.aborted.text}")


def _rates(given: list[float] | None, models: int, *, needed: bool) -> list[float | None]:
    """One for each model; None where a trace keeps its own."""
    if not given:
        if needed:
            raise Invalid("how many requests per second?", where="--rate", hint="--rate 100, or --clients 8")
        return [None] * models
    if len(given) == 1:
        return [given[0]] * models
    if len(given) != models:
        raise Invalid(f"there are {len(given)} rates for {models} models", where="--rate", hint="give one for each")
    return list(given)


def _times(
    arrivals: Arrivals,
    rate: float | None,
    duration_s: float,
    *,
    seed: int,
    trace: Path | None,
    speed: float,
    burst_factor: float,
    burst_s: float,
    period_s: float,
) -> Floats:
    from shoal.base import arrivals as processes
    from shoal.measure.load.traces import read_trace

    if (trace is not None) != (arrivals is Arrivals.TRACE):
        raise Invalid("a trace is played by `--arrivals trace --trace FILE`", where="--trace")
    if trace is not None:
        played = read_trace(trace).faster(speed)
        played = played.at_rate(rate, seed=seed) if rate is not None else played
        return processes.recorded(played.times_s, duration_s=duration_s)
    assert rate is not None
    if arrivals is Arrivals.CONSTANT:
        return processes.constant(rate, duration_s)
    if arrivals is Arrivals.BURSTY:
        return processes.bursty(rate, duration_s, seed=seed, factor=burst_factor, burst_s=burst_s)
    if arrivals is Arrivals.DIURNAL:
        return processes.diurnal(rate, duration_s, seed=seed, period_s=period_s)
    return processes.poisson(rate, duration_s, seed=seed)
