"""`shoal measure frontier`, `interference`, `compare` and `plan`: several tenants, several servers."""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shoal.base.console.command import FAILED, CommandContext, command
from shoal.core import Invalid
from shoal.measure.commands.options import (
    Requests,
    SeedOption,
    Sending,
    SendingExamples,
    seconds_of,
)

if TYPE_CHECKING:
    from shoal.base.report import Section
    from shoal.measure.planning.simulated import Serve
    from shoal.measure.types import Target


class Model(StrEnum):
    QUEUEING = "queueing"
    SIMULATED = "simulated"


HtmlOption = Annotated[
    Path | None, typer.Option("--html", help="Write a report, one page that needs nothing else.", dir_okay=False)
]
TargetsOption = Annotated[
    list[str],
    typer.Option(
        "--target", "-T", metavar="NAME=URL,MODEL,SLO",
        help="A tenant, as in ocr=http://127.0.0.1:8000,ocr-det,50ms; add p=0.95, version=2, shape=x:1x3x48x192, "
        "input=FILE or token-env=OCR_TOKEN.",
    ),
]  # fmt: skip


def register(app: typer.Typer) -> None:
    """Add these commands to an app: `measure_app`."""
    for name, function in (
        ("frontier", frontier),
        ("interference", interference),
        ("compare", compare),
        ("plan", plan),
    ):
        command(app, name, ("json",))(function)


@dataclass(frozen=True, slots=True)
class Spec:
    """A `--target`: its name, the server and the model, the third field, and the others."""

    name: str
    target: Target
    third: str | None
    p: float


def frontier(
    context: CommandContext,
    target: TargetsOption,
    want: Annotated[
        list[str] | None,
        typer.Option("--want", metavar="NAME=RATE", help="A wanted rate; their mix is searched first, and priced."),
    ] = None,
    price: Annotated[
        str | None, typer.Option("--price", help="Dollars per server-hour, for the cost of what --want wants.")
    ] = None,
    rays: Annotated[int | None, typer.Option("--mixes", min=1, help="The most mixes; else 4 a tenant.")] = None,
    gap: Annotated[float, typer.Option("--gap", help="As exact as this, in sums of normalised throughput.")] = 0.05,
    tolerance: Annotated[float, typer.Option("--tolerance", help="How near the proven ends shall be.")] = 0.1,
    confidence: Annotated[float, typer.Option("--confidence", help="How sure each verdict is.")] = 0.95,
    trial_requests: Annotated[
        int, typer.Option("--trial-requests", help="The most requests of a trial, a tenant.")
    ] = 10_000,
    trial_time: Annotated[str, typer.Option("--trial-time", help="At most so long at one vector of rates.")] = "60s",
    within: Annotated[
        str, typer.Option("--within", help="Begin no trial after so long, and keep what was measured.")
    ] = "10m",
    html: HtmlOption = None,
    *,
    sending: Sending,
) -> None:
    """Search what several tenants can have of one server at once, so that every objective holds.

    shoal measure frontier -T a=http://127.0.0.1:8000,resnet,50ms -T b=http://127.0.0.1:8000,bert,80ms

    Exit code 1 if a tenant keeps its objective at no rate.
    """
    from shoal.core import Money
    from shoal.measure import report
    from shoal.measure.commands import frontier_view as view
    from shoal.measure.cost import mix_cost
    from shoal.measure.progress import bar, clear
    from shoal.measure.search.concurrent import ConcurrentLoad, ConcurrentProbe
    from shoal.measure.search.frontier import find_frontier
    from shoal.measure.search.judge import Effort, Goal
    from shoal.measure.search.pareto import VectorTrial

    specs = _specs(target, sending)
    goals = {one.name: Goal(seconds_of(_third(one, "SLO"), f"--target {one.name}"), one.p) for one in specs}
    wanted = _wanted(want or [], goals)
    if price is not None and not wanted:
        raise Invalid("a price is for wanted rates", where="--price", hint="add --want NAME=RATE")
    per_hour = None if price is None else Money.usd(_number(price, "--price"))
    effort = Effort(tolerance, confidence, trial_requests)
    most_s, within_s = seconds_of(trial_time, "--trial-time"), seconds_of(within, "--within")
    began = time.monotonic()
    context.note(f"each trial takes up to {most_s:g} s; none begins after {within_s:g} s (--within)")

    def told(trial: VectorTrial) -> None:
        clear()
        context.note(view.trial(trial))

    with bar("searching") as on_progress:
        load = ConcurrentLoad(
            {one.name: one.target for one in specs},
            settings=sending.settings(), on_progress=on_progress,
        )  # fmt: skip
        found = find_frontier(
            ConcurrentProbe(load, goals, effort, most_s=most_s), goals,
            start_per_s=load.guesses(), effort=effort, rays=rays, gap=gap, mixes=[wanted] if wanted else [],
            seed=sending.seed, on_trial=told, time_is_up=lambda: time.monotonic() - began > within_s,
        )  # fmt: skip
    document = found.as_json()
    sections = [report.frontier(found)]
    cost = None
    if wanted:
        document["wanted"] = {"total": found.total(wanted).as_json(), "saving": found.saving(wanted).as_json()}
    if per_hour is not None:
        alone = {name: one.value for name, one in found.dedicated.items()}
        cost = mix_cost(wanted, alone, found.total(wanted), per_hour)
        document["cost"] = cost.as_json()
        sections.append(report.mix_costs(cost))
    _write(context, html, "What tenants can have of one server", sections)
    context.show(document, lambda: view.frontier(found, wanted, cost))
    for warning in load.warnings():
        context.note(f"warning: {warning.text}")


def interference(
    context: CommandContext,
    target: Annotated[
        list[str],
        typer.Option(
            "--target", "-T", metavar="NAME=URL,MODEL,RATE", help="A tenant, as in ocr=http://127.0.0.1:8000,ocr,40."
        ),
    ],
    duration: Annotated[str, typer.Option("--duration", "-d", help="Of each load, after its warm-up.")] = "10s",
    rounds: Annotated[int, typer.Option("--rounds", "-n", min=2, help="The rounds from which intervals come.")] = 5,
    html: HtmlOption = None,
    *,
    sending: Sending,
) -> None:
    """Measure who slows down whom: each tenant alone, beside each other one, and beside all.

    shoal measure interference -T a=http://127.0.0.1:8000,resnet,40 -T b=http://127.0.0.1:8000,bert,20
    """
    from shoal.measure import report
    from shoal.measure.commands import frontier_view as view
    from shoal.measure.interference import measure_interference
    from shoal.measure.search.concurrent import ConcurrentLoad

    specs = _specs(target, sending)
    rates = {one.name: _number(_third(one, "RATE"), f"--target {one.name}", positive=True) for one in specs}
    load = ConcurrentLoad(
        {one.name: one.target for one in specs},
        settings=sending.settings(),
    )
    duration_s = seconds_of(duration, "--duration")
    with steps("loads") as on_run:
        found = measure_interference(
            lambda each, number: load.run(each, duration_s=duration_s, seed=number), rates,
            rounds=rounds, seed=sending.seed, on_run=on_run,
        )  # fmt: skip
    _write(context, html, "Who slows down whom", [report.interference(found)])
    context.show(found.as_json(), lambda: view.interference(found))
    for warning in found.warnings:
        context.note(f"warning: {warning.text}")


def compare(
    context: CommandContext,
    target: Annotated[
        list[str],
        typer.Option(
            "--target", "-T", metavar="NAME=URL,MODEL", help="A server; the first is the baseline. Two at least."
        ),
    ],
    rate: Annotated[float | None, typer.Option("--rate", "-r", help="Poisson requests per second.")] = None,
    trace: Annotated[Path | None, typer.Option("--trace", help="Recorded arrivals: Azure's CSV, or seconds.")] = None,
    speed: Annotated[float, typer.Option("--speed", help="The factor by which the trace is played faster.")] = 1.0,
    duration: Annotated[str, typer.Option("--duration", "-d", help="Of each load, after its warm-up.")] = "10s",
    rounds: Annotated[int, typer.Option("--rounds", "-n", min=2, help="The rounds from which intervals come.")] = 5,
    slo: Annotated[str | None, typer.Option("--slo", help="Compare what is answered within this as well.")] = None,
    html: HtmlOption = None,
    *,
    sending: SendingExamples,
) -> None:
    """Send the same requests at the same moments to several servers in turn, and compare.

    shoal measure compare -T shoal=http://127.0.0.1:8000,ocr -T triton=http://127.0.0.1:9000,ocr --rate 100
    """
    from shoal.base.arrivals import poisson, recorded
    from shoal.measure import report
    from shoal.measure.commands import frontier_view as view
    from shoal.measure.comparison import compare as compared
    from shoal.measure.load.traces import read_trace
    from shoal.measure.search.concurrent import ConcurrentLoad
    from shoal.measure.types import LoadResult

    if (rate is None) == (trace is None):
        raise Invalid("which requests?", where="--rate", hint="give --rate 100, or --trace FILE")
    specs = _specs(target, sending)
    for one in specs:
        if one.third is not None:
            raise Invalid(f"what is {one.third!r}?", where=f"--target {one.name}", hint="write it as NAME=URL,MODEL")
    settings = sending.settings()
    duration_s, slo_s = seconds_of(duration, "--duration"), seconds_of(slo, "--slo") if slo else None
    whole_s = settings.warmup_s + duration_s
    played = read_trace(trace).faster(speed) if trace is not None else None
    each = {one.name: ConcurrentLoad({one.name: one.target}, settings=settings) for one in specs}

    def play(name: str, number: int) -> LoadResult:
        if played is not None:
            times = recorded(played.times_s, duration_s=whole_s)
        else:
            times = poisson(rate or 0.0, whole_s, seed=sending.seed * 1009 + number)
        return each[name].replay({name: times}, duration_s=duration_s)[name]

    with steps("loads") as on_run:
        found = compared(play, [one.name for one in specs], rounds=rounds, slo_s=slo_s, on_run=on_run)
    _write(context, html, "The same requests to several servers", [report.comparison(found)])
    context.show(found.as_json(), lambda: view.comparison(found))
    for warning in found.warnings:
        context.note(f"warning: {warning.text}")


def plan(
    context: CommandContext,
    profiles: Annotated[Path, typer.Option("--profiles", help="Models: times by batch, memory, load time.")],
    servers: Annotated[Path, typer.Option("--servers", help="Types of servers: price, slots, memory.")],
    rates: Annotated[Path | None, typer.Option("--rates", help="A file of rates and objectives.")] = None,
    rate: Annotated[
        list[str] | None,
        typer.Option("--rate", "-r", metavar="MODEL=RATE,SLO", help="One more, as in vision/resnet=120,50ms,burst=2."),
    ] = None,
    model: Annotated[
        Model, typer.Option("--model", help="What allows sharing: a proven bound, or simulation.")
    ] = Model.QUEUEING,
    check: Annotated[bool, typer.Option("--check/--no-check", help="Simulate each planned server.")] = True,
    asks: Annotated[int | None, typer.Option("--asks", min=1, help="Look at no more sets of models than this.")] = None,
    seed: SeedOption = 0,
    html: HtmlOption = None,
) -> None:
    """Decide which models share which servers so that every objective holds at least cost. Measures nothing.

    shoal measure plan --profiles models.json --servers servers.yaml --rate resnet=120,50ms --rate bert=40,80ms

    Exit code 1 if something could not be placed.
    """
    from shoal.measure import report
    from shoal.measure.commands import files
    from shoal.measure.commands import frontier_view as view
    from shoal.measure.planning.plan_check import Simulated
    from shoal.measure.planning.planner import plan as planned

    known = files.read_profiles(profiles)
    demands = files.read_rates(rates, known) if rates is not None else []
    demands += [files.read_rate(one, known) for one in rate or ()]
    if not demands:
        raise Invalid(
            "how much of which model is wanted?", where="--rate", hint="--rate resnet=120,50ms, or --rates FILE"
        )
    serve = _serving()
    with line() as on_step:
        found = planned(
            demands, files.read_servers(servers), serve=serve, check=check, asks=asks, seed=seed, on_step=on_step,
            model=Simulated(serve) if model is Model.SIMULATED else None,
        )  # fmt: skip
    _write(context, html, "Who shares which server", [report.plan(found)])
    context.show(found.as_json(), lambda: view.plan(found))
    if found.refused:
        raise typer.Exit(FAILED)


def _serving() -> Serve:
    """Serves simulated requests. This package knows no scheduler: another component declares it."""
    from shoal.base.discover import find_one

    found = find_one("simulators", "scheduler")
    if found is None:
        raise Invalid("no scheduler is installed that could be simulated", where="--model", hint="install Shoal again")
    serve: Serve = found.load()()
    return serve


def _specs(texts: Sequence[str], sending: Requests) -> list[Spec]:
    specs = [_spec(text, sending) for text in texts]
    names = [one.name for one in specs]
    if len(names) < 2:
        raise Invalid("one target is not enough", where="--target", hint="repeat --target for each")
    if len(set(names)) < len(names):
        raise Invalid("two targets share a name", where="--target", hint=", ".join(names))
    return specs


def _spec(text: str, sending: Requests) -> Spec:
    from shoal.measure.types import Target

    name, _, rest = text.partition("=")
    parts = rest.split(",")
    plain = [part for part in parts if "=" not in part or part is parts[0]]
    pairs = [part.partition("=")[::2] for part in parts if part not in plain]
    shapes = [value for key, value in pairs if key == "shape"]
    extra = {key: value for key, value in pairs if key != "shape"}
    if not name or len(plain) not in (2, 3) or not all(plain) or set(extra) - {"p", "version", "input", "token-env"}:
        raise Invalid(
            f"{text!r} is no target", where="--target",
            hint="write it as NAME=URL,MODEL,SLO and perhaps ,p=0.95 ,version=2 ,shape=INPUT:1x3x48x192 ,input=FILE "
            ",token-env=VARIABLE",
        )  # fmt: skip
    variable = extra.get("token-env")
    if variable is not None and variable not in os.environ:
        raise Invalid(f"the environment has no {variable}", where=f"--target {name}")
    secret = os.environ[variable] if variable is not None else sending.token
    maker = sending.maker(Path(extra["input"]) if "input" in extra else None, shapes)
    target = Target(plain[0], plain[1], extra.get("version"), secret, tenant=name, inputs=maker)
    p = _number(extra["p"], f"--target {name}") if "p" in extra else 0.99
    return Spec(name, target, plain[2] if len(plain) > 2 else None, p)


def _third(one: Spec, what: str) -> str:
    if one.third is None:
        hint = f"write it as {one.name}={one.target.url},{one.target.model},{what}"
        raise Invalid(f"it has no {what}", where=f"--target {one.name}", hint=hint)
    return one.third


def _wanted(texts: Sequence[str], known: Mapping[str, object]) -> dict[str, float]:
    wanted = {}
    for text in texts:
        name, _, rate = text.partition("=")
        if name not in known:
            raise Invalid(f"there is no target {name!r}", where="--want", hint=f"targets: {', '.join(known)}")
        wanted[name] = _number(rate, f"--want {name}", positive=True)
    return wanted


def _number(text: str, where: str, *, positive: bool = False) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf") or (positive and not value):
        raise Invalid(f"{text!r} is not a {'positive ' if positive else ''}number", where=where)
    return value


def _write(context: CommandContext, path: Path | None, title: str, sections: Sequence[Section]) -> None:
    if path is None:
        return
    from shoal.base.report import Report, write_html

    command = "shoal " + shlex.join(_without_secrets(sys.argv[1:]))
    write_html(Report.of(title, sections, facts={"command": command}), path)
    context.note(f"report: {path}")


def _without_secrets(words: Sequence[str]) -> list[str]:
    """Neither what follows --token nor what a URL holds before its host."""
    shown = []
    for before, word in zip(["", *words], words, strict=False):
        hidden = "***" if before == "--token" else re.sub(r"^--token=.*", "--token=***", word)
        shown.append(re.sub(r"//[^/@\s]*@", "//***@", hidden))
    return shown


@contextmanager
def steps(what: str) -> Iterator[Callable[[int, int], None]]:
    """Counts on stderr for the time of the block; nothing where stderr is not a terminal."""
    with line() as show:
        began_s = time.monotonic()

        def counted(done: int, total: int) -> None:
            left_s = (time.monotonic() - began_s) / done * (total - done)
            show(f"{done} of {total} {what}, about {left_s:.0f} s left")

        yield counted


@contextmanager
def line() -> Iterator[Callable[[str], None]]:
    """A line on stderr that is drawn over and over; nothing where stderr is not a terminal."""
    from shoal.measure.progress import clear

    shown = sys.stderr.isatty()

    def show(text: str) -> None:
        if shown:
            clear()
            sys.stderr.write(text[:100])
            sys.stderr.flush()

    try:
        yield show
    finally:
        clear()
