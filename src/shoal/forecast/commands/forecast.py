"""`shoal forecast`: how fast a model will be, how long a transient server lives, when a job finishes."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.base.console.command import CommandContext, JobArgument, TenantOption, command
from shoal.base.console.panels import TOOLS
from shoal.core import Estimate, Invalid, NotFound, Speeds
from shoal.forecast.commands import plots
from shoal.forecast.commands.gang import ALL_REDUCE, PARAMETER_SERVER, fit_all_reduce, fit_parameter_server, gang
from shoal.forecast.commands.inputs import Line, positive, read_model, rows_of
from shoal.forecast.commands.measure import measure, report
from shoal.forecast.commands.plots import PlotOption
from shoal.forecast.commands.start_up import LAUNCHES, fit_start_up, start_up

if TYPE_CHECKING:
    from shoal.forecast.lifetimes import HourlyLifetimes
    from shoal.forecast.steptime import StepTime

forecast_app = typer.Typer(
    help="Predict with intervals: speed of a model, life of a transient server, end of a job.", no_args_is_help=True
)


class Model(StrEnum):
    SPEED = "speed"
    LIFETIME = "lifetime"
    PARAMETER_SERVER = "parameter-server"
    ALL_REDUCE = "all-reduce"
    START_UP = "start-up"


ModelOption = Annotated[Path, typer.Option("--model", "-m", help="What `shoal forecast fit` wrote.")]
KindOption = Annotated[str, typer.Option("--kind", "-k", help="The kind of accelerator, as in the measurements.")]


def register(app: typer.Typer) -> None:
    command(forecast_app, "fit")(fit)
    command(forecast_app, "features")(features)
    command(forecast_app, "devices")(devices)
    command(forecast_app, "speed")(speed)
    command(forecast_app, "lifetime")(lifetime)
    command(forecast_app, "start-up")(start_up)
    command(forecast_app, "finish")(finish)
    command(forecast_app, "bottleneck")(bottleneck)
    command(forecast_app, "cluster")(cluster)
    command(forecast_app, "gang")(gang)
    command(forecast_app, "measure")(measure)
    command(forecast_app, "report")(report)
    app.add_typer(
        forecast_app,
        name="forecast",
        rich_help_panel=TOOLS,
        short_help="Predict speeds, ends and lifetimes, with intervals",
    )


def fit(
    context: CommandContext,
    model: Annotated[Model, typer.Argument(help="What to predict.", metavar="MODEL")],
    measured: Annotated[Path, typer.Argument(metavar="FILE", help="CSV, or a JSON array of objects: "
                                             "kind,model,flops,parameters,tensors,seconds for speed; "
                                             "kind,region,lifetime_s,revoked (1 or 0) for lifetime; with it, where "
                                             "known, hour (0 to 23), the hour of the day of a revocation; "
                                             f"{','.join(PARAMETER_SERVER)} for parameter-server; "
                                             f"{','.join(ALL_REDUCE)} for all-reduce; "
                                             f"{','.join(LAUNCHES)} for start-up.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write the fitted model, as JSON.")],
    hours: Annotated[int, typer.Option("--hours", min=1, help="The longest life of a server, in hours.")] = 24,
) -> None:  # fmt: skip
    """Fit a model to measurements."""
    makers: dict[Model, Callable[[], dict[str, Any]]] = {
        Model.SPEED: lambda: _speed_of(measured).as_json(),
        Model.LIFETIME: lambda: _lifetime_of(measured, hours).as_json(),
        Model.PARAMETER_SERVER: lambda: fit_parameter_server(measured),
        Model.ALL_REDUCE: lambda: fit_all_reduce(measured),
        Model.START_UP: lambda: fit_start_up(measured),
    }
    data = makers[model]()
    try:
        out.write_text(json.dumps(data, indent=2) + "\n")
    except OSError as error:
        raise Invalid(f"cannot be written: {error.strerror}", where=str(out)) from None
    context.show(data, lambda: print(f"wrote {out}"))


def features(
    context: CommandContext,
    model: Annotated[str, typer.Argument(metavar="NETWORK", help="An ONNX file, a TorchScript file (.pt, .ts), or "
                                         "package.module:function that returns a torch.nn.Module.")],
    batch: Annotated[int, typer.Option("--batch", min=1, help="Samples of a training step.")] = 1,
    shape: Annotated[str, typer.Option("--shape", help="Of one sample, for PyTorch: 3,224,224.")] = "",
) -> None:  # fmt: skip
    """What `shoal forecast speed` wants to know of a model, counted without running it."""
    if model.endswith(".onnx"):
        from shoal.forecast.onnx_file import features_of

        counted = features_of(Path(model), batch=batch)
    else:
        from shoal.forecast.torch_model import features_of_factory, features_of_script

        try:
            sizes = [int(one) for one in shape.split(",")]
        except ValueError:
            raise Invalid(
                f"a PyTorch model needs the shape of a sample, not {shape!r}", hint="--shape 3,224,224"
            ) from None
        if ":" in model:
            counted = features_of_factory(model, sizes, batch=batch)
        else:
            counted = features_of_script(Path(model), sizes, batch=batch)
    found = counted.features
    told = {"flops": found.flops, "parameters": found.parameters, "tensors": found.tensors}
    context.show(
        {**told, "weight_bytes": counted.weight_bytes},
        lambda: print(" ".join(f"--{name} {value:g}" for name, value in told.items())),
    )


def devices(context: CommandContext) -> None:
    """Peak rates of accelerators by their makers' data sheets, without sparsity."""
    from shoal.forecast.devices import DEVICES

    told = [
        {"kind": kind, "memory_gb": one.memory_gb, "bandwidth_gb_s": one.bandwidth_gb_s, "tflops": dict(one.tflops),
         "source": one.source}
        for kind, one in DEVICES.items()
    ]  # fmt: skip

    def show() -> None:
        for kind, one in DEVICES.items():
            rates = ", ".join(f"{name} {value:g}" for name, value in one.tflops.items())
            print(f"{kind:10} {one.memory_gb:4g} GB {one.bandwidth_gb_s:5g} GB/s  TFLOPS {rates}  ({one.source})")

    context.show(told, show)


def speed(
    context: CommandContext, model: ModelOption, kind: KindOption,
    flops: Annotated[float, typer.Option("--flops", help="Floating point operations of a step.")],
    parameters: Annotated[float, typer.Option("--parameters", help="Parameters of the model.")],
    tensors: Annotated[float, typer.Option("--tensors", help="Tensors that hold them.")],
    plot: PlotOption = None,
) -> None:  # fmt: skip
    """Steps per second of a model that was never run, from what it is made of."""
    from shoal.forecast.features import Features
    from shoal.forecast.speeds import InferredSpeeds
    from shoal.forecast.steptime import StepTime

    try:
        one = Features(flops, parameters, tensors)
    except ValueError as error:
        raise Invalid(str(error)) from None
    fitted = read_model(model, StepTime.from_json)
    speeds: Speeds = InferredSpeeds(fitted, {"model": one})
    found = speeds.steps_per_s("model", kind)
    if found is None:
        raise NotFound(f"nothing was measured on {kind!r}", hint=f"known: {', '.join(sorted(fitted.kinds))}")
    if plot is not None:
        kinds = dict.fromkeys([kind, *sorted(fitted.kinds)])
        each = {one: speeds.steps_per_s("model", one) for one in kinds}
        plots.intervals(plot, "Speed", "steps/s", {one: of for one, of in each.items() if of is not None})
    context.show(
        found.as_json(),
        lambda: print(
            f"{found.median:.3g} steps/s ({found.low:.3g} to {found.high:.3g} in {found.level:.0%} of all cases), "
            f"{found.source}"
        ),
    )


def lifetime(
    context: CommandContext, model: ModelOption, kind: KindOption,
    region: Annotated[str, typer.Option("--region", "-r", help="The region; one never seen has the shared hazard.")],
    age: Annotated[float, typer.Option("--age", min=0, help="Hours that the server has lived.")] = 0.0,
    ahead: Annotated[float, typer.Option("--ahead", min=0, help="Hours from now.")] = 1.0,
    clock: Annotated[float | None, typer.Option("--clock", min=0, max=24, help="The hour of the day now, to count it "
                                                "in.")] = None,
    plot: PlotOption = None,
) -> None:  # fmt: skip
    """The probability that a transient server is still there some time from now."""
    from shoal.forecast.lifetimes import HOUR_S, HourlyLifetimes

    fitted = read_model(model, HourlyLifetimes.from_json)
    stays = fitted.survival(kind, region, age * HOUR_S, ahead * HOUR_S, clock)
    mean = fitted.mean_life_s(kind, region) / HOUR_S
    seen = (kind, region) in fitted.seen
    others = f"of {kind} in other regions" if kind in fitted.alpha else "of all kinds and regions"
    source = f"measured for {kind} in {region}" if seen else f"{others}: none was seen of this one"
    if plot is not None:
        hours = [ahead * part / 48 for part in range(49)]
        points = [(at, fitted.survival(kind, region, age * HOUR_S, at * HOUR_S, clock)) for at in hours]
        plots.survival(plot, f"{kind} in {region}, {age:g} h old", points)
    context.show(
        {"survival": stays, "mean_life_h": mean, "source": source},
        lambda: print(f"{stays:.1%} are still there {ahead:g} h later; the mean life is {mean:.1f} h ({source})"),
    )


def cluster(
    context: CommandContext, model: ModelOption, kind: KindOption,
    region: Annotated[str, typer.Option("--region", "-r", help="The region; one never seen has the shared hazard.")],
    work: Annotated[float, typer.Option("--work", help="Hours of work without interruption.")],
    checkpoint: Annotated[float, typer.Option("--checkpoint", help="Seconds that a checkpoint takes.")],
    restart: Annotated[float, typer.Option("--restart", help="Seconds until a replacement works again.")],
    every: Annotated[float | None, typer.Option("--every", help="Seconds of work between checkpoints; else the best "
                                                "for servers of this mean life.")] = None,
    servers: Annotated[int, typer.Option("--servers", min=1, help="Servers that work together; the revocation of one "
                                         "stops all.")] = 1,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same seed gives the same result.")] = 0,
    plot: PlotOption = None,
) -> None:  # fmt: skip
    """How long a training takes on transient servers that are replaced when they are revoked (simulated)."""
    from shoal.forecast.checkpoint import best_interval_s
    from shoal.forecast.lifetimes import HOUR_S, HourlyLifetimes
    from shoal.forecast.transient import Training, total_time

    fitted = read_model(model, HourlyLifetimes.from_json)
    if every is None:
        if checkpoint <= 0:
            raise Invalid("the best time between checkpoints is known for a positive time of a checkpoint only")
        every = best_interval_s(checkpoint, fitted.mean_life_s(kind, region), servers)
    training = Training(work * HOUR_S, checkpoint, every, restart)
    found = total_time(training, fitted, kind, region, servers=servers, seed=seed)
    if plot is not None:
        tried = {
            every * factor: total_time(
                replace(training, every_s=every * factor), fitted, kind, region, servers=servers, seed=seed
            ).scaled(1 / HOUR_S)
            for factor in (0.25, 0.5, 1.0, 2.0, 4.0)
        }
        plots.choices(plot, "Total time", "time between checkpoints", "hours", tried)
    context.show(
        {**found.as_json(), "checkpoint_every_s": every},
        lambda: print(
            f"{found.median / HOUR_S:.1f} h ({found.low / HOUR_S:.1f} to {found.high / HOUR_S:.1f} in "
            f"{found.level:.0%} of all cases), with a checkpoint every {every:.0f} s: {found.source}"
        ),
    )


def bottleneck(
    context: CommandContext,
    steps: Annotated[Path, typer.Argument(metavar="FILE", help="CSV: a row a step, its step_s and, where known, "
                                          "network_wait_s, input_wait_s, memory_stall, clock_mhz and other sensors.")],
    mean_run: Annotated[float, typer.Option("--mean-run", help="Steps until a false alarm, on average.")] = 100_000,
) -> None:  # fmt: skip
    """When a job became slower than it was, and what holds it back."""
    from shoal.forecast.bottleneck import SENSORS, detect

    columns: dict[str, list[float]] = defaultdict(list)
    for number, row in rows_of(steps, "step_s", optional=tuple(SENSORS)):
        with Line(steps, number):
            for name, text in row.items():
                columns[name].append(float(text or "nan"))
    found = detect(columns.pop("step_s", []), columns, mean_run=mean_run)
    if found is None:
        context.show({"slowdown": None}, lambda: print(f"no slowdown (a false alarm every {mean_run:g} steps)"))
        return
    context.show(
        {"slowdown": found.as_json()},
        lambda: print(f"from about step {found.began} on, steps take {found.factor:.2f} times as long: {found.why}"),
    )


def finish(context: CommandContext, job: JobArgument, tenant: TenantOption = None, plot: PlotOption = None) -> None:
    """When a running job finishes, with an interval."""
    with context.client() as client:
        told = client.explain(job, tenant=tenant)
    cause = next((one for one in told.causes if one.cause == "finish"), None)
    if cause is None:
        raise NotFound(
            f"no finish time is known: {told.summary}",
            hint="the extension `forecast` must be on, and the job report five steps and their total",
        )
    if plot is not None:
        facts, now = cause.reason.facts, time.time()
        median, low, high = (max(0.0, facts[name] - now) for name in ("finish_at", "finish_low", "finish_high"))
        left = Estimate(median, low, high, facts["level"], facts["source"])
        plots.intervals(plot, f"Time until {job} finishes", "seconds", {job: left})
    context.show(cause.reason.facts, lambda: print(cause.reason.text))


def _speed_of(path: Path) -> StepTime:
    from shoal.forecast.features import Features
    from shoal.forecast.steptime import StepTime

    features: dict[tuple[str, str], Features] = {}
    seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
    for number, row in rows_of(path, "kind", "model", "flops", "parameters", "tensors", "seconds"):
        key = row["kind"], row["model"]
        with Line(path, number):
            known = Features(float(row["flops"]), float(row["parameters"]), float(row["tensors"]))
            if features.setdefault(key, known) != known:
                raise ValueError(f"{row['model']} on {row['kind']} has two sets of features: give each its own name")
            seconds[key].append(positive(row["seconds"]))
    kinds = sorted({kind for kind, _ in features})
    return StepTime.fit({k: {m: (features[k, m], seconds[k, m]) for one, m in features if one == k} for k in kinds})


def _lifetime_of(path: Path, hours: int) -> HourlyLifetimes:
    from shoal.forecast.lifetimes import Exposure, HourlyLifetimes

    lives: dict[tuple[str, str], list[tuple[float, bool]]] = defaultdict(list)
    by_hour = [0] * 24
    for number, row in rows_of(path, "kind", "region", "lifetime_s", "revoked", optional=("hour",)):
        with Line(path, number):
            if row["revoked"] not in ("0", "1"):
                raise ValueError(f"revoked must be 1 or 0, not {row['revoked']!r}")
            lives[row["kind"], row["region"]].append((positive(row["lifetime_s"]), row["revoked"] == "1"))
            if row.get("hour") and row["revoked"] == "1":
                hour = int(row["hour"])
                if not 0 <= hour < len(by_hour):
                    raise ValueError(f"an hour of the day is 0 to 23, not {hour}")
                by_hour[hour] += 1
    return HourlyLifetimes.fit({key: Exposure.of(of, hours) for key, of in lives.items()}, by_hour)
