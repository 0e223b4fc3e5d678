"""`shoal recurrent`: compile a recurrent network, see what was made of it, and compare it with other runtimes."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.base.console.command import FAILED, CommandContext, command
from shoal.base.console.panels import TOOLS
from shoal.base.extras import install
from shoal.core import Invalid, Unavailable
from shoal.recurrent.commands.chip import chip

if TYPE_CHECKING:
    from shoal.recurrent.llvm.target import Target
    from shoal.recurrent.network.graph import Graph

recurrent_app = typer.Typer(help="Compile LSTM, GRU and RNN networks to this machine.", no_args_is_help=True)

ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="An .onnx file, or a .safetensors state dict.")]
SetOption = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=NUMBER", help="Fix an input; may repeat.")]
StateOption = Annotated[
    list[str] | None,
    typer.Option("--state", metavar="INPUT=OUTPUT", help="An input whose next value is an output; may repeat."),
]
ShapeOption = Annotated[
    list[str] | None,
    typer.Option("--shape", metavar="NAME=1x576", help="The shape of an input for good; may repeat."),
]
CellOption = Annotated[str | None, typer.Option("--cell", help="The cell of a state dict: lstm, gru, rnn, rnn-relu.")]
TypeOption = Annotated[str, typer.Option("--type", help="Of the weights: fp32, bf16, int8, int4 (inexact).")]


def register(app: typer.Typer) -> None:
    command(recurrent_app, "compile", takes=("json",))(compile_)
    command(recurrent_app, "explain", takes=("json",))(explain)
    command(recurrent_app, "bench", takes=("json",))(bench)
    command(recurrent_app, "doctor", takes=("json",))(doctor)
    command(recurrent_app, "chip", takes=("json",))(chip)
    app.add_typer(
        recurrent_app, name="recurrent", rich_help_panel=TOOLS, short_help="Compile recurrent networks to this machine"
    )


def compile_(
    context: CommandContext,
    model: ModelArgument,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The artefact; MODEL.rnn if not given.")] = None,
    fixed: SetOption = None,
    state: StateOption = None,
    shape: ShapeOption = None,
    cell: CellOption = None,
    kind: TypeOption = "fp32",
    first: Annotated[
        str | None, typer.Option("--first-type", help="Of the first recurrent node, which reads the network's input.")
    ] = None,
    calibrate: Annotated[
        Path | None, typer.Option("--calibrate", metavar="FILE", help="Inputs by name (.npz) to measure the error on.")
    ] = None,
    most: Annotated[float, typer.Option("--max-error", min=0, help="The largest relative error against fp32.")] = 0.02,
    allow: Annotated[bool, typer.Option("--allow-error", help="Accept a larger error.")] = False,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Length of the sequences to tune for.")] = 64,
    rows: Annotated[int, typer.Option("--rows", min=1, help="Sessions in one batch to tune for.")] = 8,
    timed: Annotated[int, typer.Option("--candidates", min=0, max=30, help="To time for a layer; 0: no search.")] = 16,
    threads: Annotated[
        int, typer.Option("--threads", min=1, max=64, help="At most; fewer where those are faster.")
    ] = 1,
) -> None:
    """Compile a network, and write it with what was found out about it."""
    from shoal.recurrent import compile as compiler
    from shoal.recurrent.llvm.cache import user_cache
    from shoal.recurrent.loading import maker, read, tuned
    from shoal.recurrent.network import artefact
    from shoal.recurrent.search.model import first_schedules

    target = _target()
    given: dict[str, Any] = {"fixed": _numbers(fixed), "state": _words(state), "shape": _shapes(shape)}
    graph = read(model, cell=cell, kind=_kind(kind), **given)
    if first is not None:
        from shoal.recurrent.network.onnx_node import first_typed

        graph = first_typed(graph, _kind(first))
    cache = user_cache()
    data = None if calibrate is None else compiler.read_calibration(calibrate)
    error = compiler.error_of(graph, maker(target, cache, first_schedules), data)
    compiler.check_error(error, most, allowed=allow)
    if timed and graph.segments and graph.recurrences:
        whole = read(model, without="it is faster", **given)
        graph = compiler.faster(graph, whole, maker(target, cache, first_schedules), steps=steps)
    tunings, about = _tune(graph, target, steps, rows, timed, context)
    if threads > 1:
        found = compiler.threads_for(partial(tuned, graph, tunings), threads, steps=steps, rows=rows)
        about = {**about, **found}
    program = tuned(graph, tunings).program if graph.segments else None
    if program is not None:
        about = {**about, "program": program.layers}
    facts = {"source": model.name, "target": target.name, "error": error, **about}
    place = out or model.with_suffix(".rnn")
    try:
        artefact.write(place, artefact.Artefact(graph, tunings, facts))
    except OSError as failed:
        raise Invalid(f"cannot be written: {failed.strerror}", where=str(place)) from None
    for remark in cache.remarks:
        context.note(remark)
    _show(context, place)


def _tune(
    graph: Graph, target: Target, steps: int, rows: int, timed: int, context: CommandContext
) -> tuple[Any, dict[str, Any]]:
    from shoal.recurrent.compile import tune_all
    from shoal.recurrent.layers.layer import LayerSpec
    from shoal.recurrent.llvm.cache import user_cache
    from shoal.recurrent.llvm.engine import VERSION
    from shoal.recurrent.network.artefact import Tuning
    from shoal.recurrent.search.machine import measured
    from shoal.recurrent.search.model import first_schedules
    from shoal.recurrent.search.tune import Search

    cache = user_cache()
    if not timed:
        return tune_all(graph, lambda spec: Tuning(first_schedules(spec, target))), {}
    machine = measured(target, cache.folder)
    search = Search(target, machine, cache, steps=steps, rows=rows, timed=timed)

    def tune(spec: LayerSpec) -> Tuning:
        found = search.run(spec)
        return Tuning(found.schedules, tuple(one.as_json() for one in found.tried))

    key = f"{machine.processor} {target.features} {VERSION} {steps} {rows} {timed}"
    note = context.note if sys.stderr.isatty() else lambda _: None
    tunings = tune_all(graph, tune, folder=cache.folder, key=key, progress=note)
    return tunings, {"processor": machine.processor, "llvm": VERSION}


def explain(
    context: CommandContext,
    model: Annotated[Path, typer.Argument(metavar="ARTEFACT", help="What `shoal recurrent compile` wrote.")],
) -> None:
    """Show the loop nest, what it reads and computes, its share of the roofline, and what was tried."""
    _show(context, model, nests=True)


def _show(context: CommandContext, path: Path, *, nests: bool = False) -> None:
    from shoal.recurrent.explain import describe, lines

    found = describe(path, _target(), nests=nests)
    context.show(found, lambda: print("\n".join(lines(found))))


def bench(
    context: CommandContext,
    model: ModelArgument,
    against: Annotated[
        str, typer.Option("--against", help="onnxruntime, onnxruntime-int8, torch, torch-int8.")
    ] = "onnxruntime",
    fixed: SetOption = None,
    shape: ShapeOption = None,
    cell: CellOption = None,
    kind: TypeOption = "fp32",
    steps: Annotated[int, typer.Option("--steps", min=1, help="Of the sequence.")] = 50,
    rows: Annotated[int, typer.Option("--rows", min=1, help="Of the batch.")] = 1,
    seconds: Annotated[float, typer.Option("--seconds", min=0, help="For all together.")] = 3.0,
) -> None:  # fmt: skip
    """Compare with other runtimes: same inputs, one thread, in turns, the least time of each, the error beside it."""
    from shoal.recurrent.compare import benchmark

    peers = [one.strip() for one in against.split(",") if one.strip()]
    found = benchmark(model, peers, _numbers(fixed), _shapes(shape), cell, _kind(kind), steps, rows, seconds)

    def human() -> None:
        from shoal.base.console.output import put, table

        ours = found["rows"][0]["ms"]
        cells = [
            (row["runtime"], f"{row['ms']:.3f} ms", f"{row['ms'] / ours:.2f}x", f"{row['error']:.1e}")
            for row in found["rows"]
        ]
        put(table(["runtime", "time", "over ours", "relative error"], cells))
        print(f"{found['target']}, one thread, least of {seconds:g} s in turns, load {found['load']:.1f}")

    context.show(found, human)


def doctor(context: CommandContext) -> None:
    """What this machine has for recurrent networks, what is missing, and what that costs. Exit code 1 without a code
    generator."""
    from dataclasses import asdict

    from shoal.base.console.output import put, table
    from shoal.recurrent.doctor import examine

    found = examine()
    rows = [(one.name, "yes" if one.available else "no", one.detail, one.consequence) for one in found]
    context.show([asdict(one) for one in found], lambda: put(table(("what", "there", "detail", "otherwise"), rows)))
    if not found[0].available:
        raise typer.Exit(FAILED)


def _target() -> Target:
    from shoal.recurrent.layers.make import best_target

    found = best_target()
    if found is None:
        raise Unavailable("there is no code generator here", hint=install("recurrent"))
    return found


def _kind(text: str) -> Any:
    from shoal.recurrent.numbers import NumberType

    try:
        return NumberType(text)
    except ValueError:
        raise Invalid(f"{text!r} is no type", where="--type", hint=f"one of {', '.join(NumberType)}") from None


def _words(given: list[str] | None) -> dict[str, str]:
    found = {}
    for one in given or []:
        name, sign, value = one.partition("=")
        if not (name and sign and value):
            raise Invalid(f"{one!r} is not NAME=VALUE", where="--set, --state or --shape")
        found[name] = value
    return found


def _shapes(given: list[str] | None) -> dict[str, list[int]]:
    try:
        return {name: [int(side) for side in value.split("x")] for name, value in _words(given).items()}
    except ValueError:
        raise Invalid(f"{given} is no shape", where="--shape", hint="as in --shape input=1x576") from None


def _numbers(given: list[str] | None) -> dict[str, float]:
    try:
        return {name: float(value) for name, value in _words(given).items()}
    except ValueError as error:
        raise Invalid(str(error), where="--set") from None
