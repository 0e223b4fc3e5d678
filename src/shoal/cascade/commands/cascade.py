"""`shoal cascade`: make a prediction pipeline faster, say by how much and at what certified loss."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.base.console.command import CommandContext, command
from shoal.base.console.files import OutFile
from shoal.base.console.panels import TOOLS
from shoal.cascade.commands.inputs import (
    digest_of,
    features_and_labels,
    load_object,
    parse_confidence,
    parse_loss,
    reads_by_name,
    whole_labels,
)
from shoal.cascade.commands.show import show_bench, show_report
from shoal.cascade.methods import Method
from shoal.core import Invalid

if TYPE_CHECKING:
    from shoal.cascade.cascade import Cascade

cascade_app = typer.Typer(
    help="Make a scikit-learn pipeline faster: compiled, and approximated as far as a certificate allows.",
    no_args_is_help=True,
)

PipelineArgument = Annotated[str, typer.Argument(metavar="MODULE:FUNCTION", help="A function that returns the "
                                                 "pipeline, or the pipeline: train:make_pipeline.")]  # fmt: skip
FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="What `shoal cascade optimize` wrote.")]
DataOption = Annotated[Path, typer.Option("--data", "-d", help="CSV with a header.")]
ColumnOption = Annotated[
    list[str] | None,
    typer.Option("--column", "-c", help="A column that the pipeline reads; without it all but the target."),
]


def register(app: typer.Typer) -> None:
    command(cascade_app, "optimize", takes=("json",))(optimize)
    command(cascade_app, "explain", takes=("json",))(explain)
    command(cascade_app, "certify", takes=("json",))(certify)
    command(cascade_app, "bench", takes=("json",))(bench)
    app.add_typer(
        cascade_app, name="cascade", rich_help_panel=TOOLS, short_help="Make a prediction pipeline faster, certified"
    )


def optimize(
    context: CommandContext, pipeline: PipelineArgument, data: DataOption,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write the cascade.")],
    target: Annotated[str | None, typer.Option("--target", "-t", help="The column of labels.")] = None,
    columns: ColumnOption = None,
    max_loss: Annotated[str, typer.Option("--max-loss", help="What may be lost: 0.5pt of accuracy; for a regression "
                                          "the increase of the mean absolute error, in the target's unit. 0: compile "
                                          "only.")] = "0",
    confidence: Annotated[str, typer.Option("--confidence", help="Of the certificate.")] = "95%",
    method: Annotated[Method, typer.Option("--method", help="willump: the paper's choice, without a certificate.")] =
        Method.SHOAL,
    group_by: Annotated[str | None, typer.Option("--group-by", help="A column: rows with the same value are one "
                                                 "unit of the certificate.")] = None,
    clip: Annotated[float | None, typer.Option("--clip", min=0, help="For a regression: the largest increase of an "
                                               "error that counts.")] = None,
    objective: Annotated[str, typer.Option("--objective", help="batch, single or lookups: what stages are "
                                                   "to save.")] = "batch",
    top_k: Annotated[int | None, typer.Option("--top-k", min=1, help="Certify a filter for this number of best rows "
                                              "instead.")] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same seed gives the same splits and choices.")] = 0,
) -> None:  # fmt: skip
    """Compile a pipeline, approximate it within a certified loss, and write the result."""
    from shoal.cascade.optimize import optimize as run

    loss, sure = parse_loss(max_loss), parse_confidence(confidence)
    OutFile(out, "--out").check()
    original = load_object(pipeline, "MODULE:FUNCTION")
    by_name = reads_by_name(original)
    X, y = features_and_labels(data, target, columns or [], by_name=by_name)
    groups = None
    if group_by is not None:
        groups = features_and_labels(data, group_by, columns or [])[1]
        if columns is None and hasattr(X, "drop"):
            X = X.drop(columns=[group_by])
    cascade = run(
        original, X, whole_labels(y, data), max_loss=loss, confidence=sure,
        method=method, groups=groups, clip=clip, objective=objective, top_k=top_k, seed=seed,
        progress=lambda text: context.note(f"{text} ..."),
    )  # fmt: skip
    cascade.report["data"] = {
        "columns": columns or [], "target": target, "group_by": group_by, "by_name": by_name,
        "file": data.name, "sha256": digest_of(data),
    }  # fmt: skip
    cascade.save(out)
    told = {"file": str(out), **cascade.explain()}

    def show() -> None:
        show_report(told)
        print(f"wrote {out}")

    context.show(told, show)


def explain(context: CommandContext, file: FileArgument) -> None:
    """Cost and importance of each group of features, the plan, what it saved, and the certificate."""
    from shoal.cascade.cascade import Cascade

    told = Cascade.load(file).explain()
    context.show(told, lambda: show_report(told))


def certify(
    context: CommandContext, file: FileArgument, data: DataOption,
    target: Annotated[str | None, typer.Option("--target", "-t", help="The column of labels in the data.")] = None,
    labels: Annotated[Path | None, typer.Option("--labels", help="A CSV of one column, a label a row; an empty one is "
                                                "unknown.")] = None,
    columns: ColumnOption = None,
    again: Annotated[bool, typer.Option("--again", help="Allow rows that certified before; the certificate says "
                                       "so.")] = False,
    leave_out_used: Annotated[bool, typer.Option("--leave-out-used", help="Leave out the rows that had a part in "
                                                 "making the cascade.")] = False,
    to_label: Annotated[Path | None, typer.Option("--to-label", help="Write the numbers of the rows whose labels a "
                                                  "test of the loss needs, 0 the first, and certify nothing.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Where to write the result; without it the file "
                                             "itself.")] = None,
) -> None:  # fmt: skip
    """Certify a cascade anew, on rows that had no part in making it."""
    from shoal.cascade.cascade import Cascade

    cascade = Cascade.load(file)
    X, y = _read(cascade, data, target, columns)
    if labels is not None:
        y = _labels_alone(labels)
    if to_label is not None:
        rows = cascade.rows_to_label(X).tolist()
        OutFile(to_label, "--to-label").write("row\n" + "".join(f"{row}\n" for row in rows))
        context.show({"rows": rows}, lambda: print(f"{len(rows):,} rows need a label: wrote {to_label}"))
        return
    target_file = OutFile(out or file, "--out")
    target_file.check()
    cascade.certify(X, y, again=again, leave_out_used=leave_out_used)
    cascade.save(out or file)  # without a certificate too: the rows are used, and every row takes the full path
    told = cascade.explain()
    if cascade.certificate is None:
        raise Invalid(f"not certified: {told['reason']}", where=str(data), hint="every row takes the full path now")
    context.show(told["certificate"], lambda: print(told["certificate"]["statement"]))


def bench(
    context: CommandContext, file: FileArgument,
    data: Annotated[Path | None, typer.Option("--data", "-d", help="CSV with a header. Without it: the file that the "
                                              "cascade was made of, if that is still beside it or here.")] = None,
    against: Annotated[str | None, typer.Option("--against", metavar="MODULE:FUNCTION", help="The pipeline to compare "
                                                "with; one that is not fitted needs --target.")] = None,
    target: Annotated[str | None, typer.Option("--target", "-t", help="The column of labels in the data.")] = None,
    columns: ColumnOption = None,
) -> None:  # fmt: skip
    """Measure a cascade, its full path and the original pipeline in turn, on the same rows."""
    from shoal.cascade.bench import bench as run
    from shoal.cascade.cascade import Cascade

    cascade = Cascade.load(file)
    if data is None:
        data, target = _made_of(cascade, file), target or cascade.report["data"]["target"]
        context.note(f"on rows of {data}, which the cascade was made of")
    X, y = _read(cascade, data, target, columns)
    pipeline = None if against is None else load_object(against, "--against")
    told = run(cascade, X, whole_labels(y, data), pipeline)
    context.show(told, lambda: show_bench(told))


def _made_of(cascade: Cascade, file: Path) -> Path:
    """The data file that the cascade was made of: beside it, or in the current folder. An artefact holds no rows."""
    made = cascade.report.get("data", {})
    name = Path(str(made.get("file", ""))).name
    for path in (file.parent / name, Path(name)):
        if name and path.is_file() and digest_of(path) == made["sha256"]:
            return path
    what = f"{name}, which the cascade was made of, is not here as it was" if name else "the cascade names no data"
    raise Invalid(what, where="--data", hint="name a CSV file of rows to predict")


def _read(cascade: Cascade, data: Path, target: str | None, columns: list[str] | None) -> tuple[Any, list[Any] | None]:
    """As the data were read when the cascade was made: the same columns, and labels only where they are named."""
    made = cascade.report.get("data", {})
    drop = [name for name in (made.get("target"), made.get("group_by")) if name and name != target]
    by_name = bool(made.get("by_name"))
    return features_and_labels(data, target, columns or made.get("columns") or [], drop, by_name)


def _labels_alone(path: Path) -> list[Any]:
    from shoal.cascade.commands.inputs import read_table

    columns = list(read_table(path).values())
    if len(columns) != 1:
        raise Invalid(f"it has {len(columns)} columns, not one", where=str(path))
    return [None if one == "" or one != one else one for one in columns[0]]
