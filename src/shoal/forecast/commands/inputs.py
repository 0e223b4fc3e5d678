"""Tables of measurements and fitted models as files; what is wrong with them is told by file and line."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO, TypeVar

from shoal.core import Invalid

Fitted = TypeVar("Fitted")


class Line:
    """Turns a wrong value into a message that names its line."""

    def __init__(self, path: Path, number: int) -> None:
        self._where = f"{path}:{number}"

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ValueError | OverflowError | Invalid):
            raise Invalid(str(error), where=self._where) from None


def positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError(f"must be a positive number, not {text}")
    return value


def rows_of(path: Path, *names: str, optional: tuple[str, ...] = ()) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Lines of a CSV file, or objects of a JSON array, with their numbers."""
    if path.suffix == ".json":
        yield from _objects(path, names, optional)
        return
    with opened(path) as file:
        rows = csv.DictReader(file)
        missing = [name for name in names if name not in (rows.fieldnames or ())]
        if missing:
            raise Invalid(f"has no column {', '.join(missing)}", where=str(path))
        there = [*names, *(name for name in optional if name in (rows.fieldnames or ()))]
        empty = True
        for row in rows:
            empty = False
            yield rows.line_num, {name: row[name] or "" for name in there}
        if empty:
            raise Invalid("has no measurements", where=f"{path}:2", hint="a line for each, below the names of columns")


def _objects(path: Path, names: tuple[str, ...], optional: tuple[str, ...]) -> Iterator[tuple[int, Mapping[str, str]]]:
    data = read_json(path)
    if not isinstance(data, list):
        raise Invalid("is no array of measurements", where=str(path))
    for number, row in enumerate(data, 1):
        missing = [name for name in names if not isinstance(row, dict) or name not in row]
        if missing:
            raise Invalid(f"has no {', '.join(missing)}", where=f"{path}:{number}")
        yield number, {name: str(row[name]) for name in (*names, *optional) if name in row}


def read_model(path: Path, read: Callable[[dict[str, Any]], Fitted]) -> Fitted:
    """What `shoal forecast fit` wrote, as `read` understands it."""
    data = read_json(path)
    if not isinstance(data, dict):
        raise Invalid("is no fitted model", where=str(path), hint="`shoal forecast fit` writes one")
    try:
        return read(data)
    except Invalid as error:
        raise Invalid(str(error), where=str(path), hint="`shoal forecast fit` writes one") from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Invalid(f"is no whole fitted model: {error!r}", where=str(path)) from None


def read_json(path: Path) -> Any:
    with opened(path) as file:
        try:
            return json.load(file)
        except ValueError as error:
            raise Invalid(f"is no JSON: {error}", where=str(path)) from None
        except RecursionError:
            raise Invalid("is JSON of too many levels", where=str(path)) from None


def opened(path: Path) -> TextIO:
    try:
        return io.StringIO(path.read_text(encoding="utf-8-sig"), newline="")
    except OSError as error:
        raise Invalid(f"cannot be read: {error.strerror}", where=str(path)) from None
    except UnicodeDecodeError:
        raise Invalid("is not text", where=str(path), hint="a CSV or JSON file in UTF-8 is meant") from None
