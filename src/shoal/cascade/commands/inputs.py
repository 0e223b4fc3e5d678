"""Inputs of the commands: data files, the pipeline by name, amounts as people write them."""

from __future__ import annotations

import csv
import hashlib
import importlib
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shoal.core import Invalid

_LOSS = re.compile(r"(\d+(?:\.\d+)?)\s*(pt|%)?")
_CONFIDENCE = re.compile(r"(\d+(?:\.\d+)?)\s*(%)?")
csv.field_size_limit(1 << 30)


def parse_loss(text: str) -> float:
    """`0.5pt` and `0.5%` are half a point of accuracy, 0.005; a bare number is taken as it is. Raises Invalid."""
    found = _LOSS.fullmatch(text.strip())
    if found is None:
        raise Invalid(f"{text!r} is no loss", where="--max-loss", hint="0.5pt, or 0.005")
    return float(found[1]) / (100 if found[2] else 1)


def parse_confidence(text: str) -> float:
    """`95%` or `0.95`. Raises Invalid."""
    found = _CONFIDENCE.fullmatch(text.strip())
    value = float(found[1]) / (100 if found[2] else 1) if found else 0.0
    if not 0.5 <= value < 1:
        raise Invalid(f"{text!r} is no confidence", where="--confidence", hint="95%, or 0.95")
    return value


def load_object(name: str, where: str) -> Any:
    """What `module:function` returns, or `module:object` is; modules of the current folder come first. Raises
    Invalid."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise Invalid(
            f"{name!r} names no function", where=where, hint="write module:function, such as train:make_pipeline"
        )
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # importing runs the module, which may fail in any way
        raise Invalid(f"{name!r} cannot be imported: {type(error).__name__}: {error}", where=where) from None
    if hasattr(found, "predict") or not callable(found):
        return found
    try:
        return found()
    except Exception as error:
        raise Invalid(f"{name}() failed: {type(error).__name__}: {error}", where=where) from None


def read_table(path: Path) -> dict[str, list[Any]]:
    """The columns of a CSV file with a header; numbers where a whole column is numbers or empty. Raises Invalid."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = csv.reader(file)
            header = next(rows, None)
            if not header or len(set(header)) != len(header):
                raise Invalid("it needs a header, a different name for each column", where=str(path))
            columns: list[list[str]] = [[] for _ in header]
            for row in rows:
                if len(row) != len(header):
                    raise Invalid(
                        f"{len(row)} fields, where the header has {len(header)}", where=f"{path}:{rows.line_num}"
                    )
                for column, value in zip(columns, row, strict=True):
                    column.append(value)
    except OSError as error:
        raise Invalid(f"cannot be read: {(error.strerror or str(error)).lower()}", where=str(path)) from None
    except UnicodeDecodeError as error:
        raise Invalid(f"it is not UTF-8 at byte {error.start}", where=str(path)) from None
    except csv.Error as error:
        raise Invalid(f"it is no CSV: {error}", where=str(path)) from None
    return {name: _typed(column) for name, column in zip(header, columns, strict=True)}


def digest_of(path: Path) -> str:
    """Of a file's bytes. Raises Invalid."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise Invalid(f"cannot be read: {(error.strerror or str(error)).lower()}", where=str(path)) from None


def features_and_labels(
    path: Path, target: str | None, columns: list[str], drop: Sequence[str] = (), by_name: bool = False
) -> tuple[Any, list[Any] | None]:
    """The input of the pipeline and its labels. A single column of text goes in as a sequence, as vectorisers take it,
    unless columns are read `by_name`; several columns as a data frame, without those of `drop`. An empty label is None.
    Raises Invalid."""
    table = read_table(path)
    labels = None
    if target is not None:
        if target not in table:
            raise Invalid(f"there is no column {target!r}", where=str(path), hint=f"it has {', '.join(table)}")
        labels = [None if one == "" or one != one else one for one in table.pop(target)]
    missing = [name for name in columns if name not in table]
    if missing:
        raise Invalid(f"there is no column {missing[0]!r}", where=str(path), hint=f"it has {', '.join(table)}")
    chosen = {name: table[name] for name in columns or table if name not in drop}
    if len(chosen) == 1 and not by_name:
        (only,) = chosen.values()
        if only and isinstance(only[0], str):
            return only, labels
    try:
        import pandas
    except ImportError:
        raise Invalid(
            "a table needs pandas, which is not installed",
            where=str(path),
            hint="pip install pandas, or choose one column of text with --column",
        ) from None
    return pandas.DataFrame(chosen), labels


def reads_by_name(pipeline: Any) -> bool:
    """Whether the first step of a scikit-learn pipeline chooses columns, so that it takes no bare sequence of texts."""
    parts = getattr(pipeline, "transformer_list", None) or getattr(pipeline, "steps", None)
    if parts is None:
        return hasattr(pipeline, "transformers")
    first = parts if hasattr(pipeline, "transformer_list") else parts[:1]
    return any(reads_by_name(part[1]) for part in first)


def whole_labels(labels: list[Any] | None, path: Path) -> Any:
    """Labels to fit with. Raises Invalid where one is missing."""
    if labels is None:
        return None
    lacking = sum(one is None for one in labels)
    if lacking:
        raise Invalid(f"{lacking:,} rows have no label", where=str(path), hint="leave them out to optimize")
    import numpy as np

    return np.array(labels)


def _typed(column: list[str]) -> list[Any]:
    for kind in (int, float):
        try:
            made = [kind(one) if one else (float("nan") if kind is float else int(one)) for one in column]
        except ValueError:
            continue
        return made if any(column) else column
    return column
