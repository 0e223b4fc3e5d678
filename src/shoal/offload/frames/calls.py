"""Whole calls of pandas that Polars does where it gives the same result in less time: joins, groups, distinct values.

Numeric columns only, which both engines read in place: to convert strings costs more than the call gains. The labels,
their order, the types and the names are made as pandas makes them; the first result is compared whole.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from pandas.core.groupby.generic import DataFrameGroupBy, SeriesGroupBy

from shoal.offload.arrays.state import state
from shoal.offload.frames.entry import passed_by
from shoal.offload.frames.trial import Engine
from shoal.offload.trust import agree

_TOLERANCE = 1e-11
"""Relative, of sums and means: the order of summation differs."""

_FUNCTIONS = ("sum", "mean", "min", "max", "count")
_TYPES = "dl"

_STABLE_COUNTS = int(pd.__version__.partition(".")[0]) >= 3
"""Before, the order of equal counts was that of an unstable sort."""

passed_by(Engine.call)


def _values(column: Any) -> np.ndarray | None:
    """The array of a Series or an index of double precision or 64-bit integers; None of any other."""
    array = getattr(column, "_values", column)
    good = type(array) is np.ndarray and array.dtype.char in _TYPES and array.dtype.isnative and array.ndim == 1
    return array if good else None


def _plain_frame(frame: Any) -> bool:
    return (
        type(frame) is pd.DataFrame and not frame.attrs and frame.flags.allows_duplicate_labels
        and type(frame.columns) is pd.Index and frame.columns.is_unique and frame.columns.inferred_type == "string"
    )  # fmt: skip


def same(expected: Any, found: Any) -> bool:
    """Whether everything visible of two results is equal; sums and means within the tolerance."""
    if type(expected) is not type(found):
        return False
    if isinstance(expected, pd.DataFrame):
        return (
            _same_labels(expected.columns, found.columns) and _same_labels(expected.index, found.index)
            and all(same_values(expected.iloc[:, i], found.iloc[:, i]) for i in range(expected.shape[1]))
        )  # fmt: skip
    if isinstance(expected, pd.Series):
        return (
            expected.name == found.name and _same_labels(expected.index, found.index) and same_values(expected, found)
        )
    return bool(expected == found)


def same_values(expected: Any, found: Any) -> bool:
    if expected.dtype != found.dtype:
        return False
    if expected.dtype.kind == "f":
        return agree(expected.to_numpy(), found.to_numpy(), _TOLERANCE)
    return (
        bool(expected.array.equals(found.array))
        if hasattr(expected.array, "equals")
        else bool((expected == found).all())
    )


def _same_labels(expected: Any, found: Any) -> bool:
    return (
        type(expected) is type(found) and list(expected.names) == list(found.names) and bool(expected.equals(found))
        and getattr(expected, "dtype", None) == getattr(found, "dtype", None)
    )  # fmt: skip


def _numbers(series: Any) -> np.ndarray | None:
    large = type(series) is pd.Series and len(series) >= state.threshold
    return _values(series) if large and not series.attrs and series.flags.allows_duplicate_labels else None


def _nunique(original: Any, engine: Engine) -> Any:
    @passed_by
    @functools.wraps(original)
    def nunique(self: Any, dropna: bool = True) -> Any:
        array = _numbers(self) if engine.allowed and dropna is True else None
        if array is None:
            return original(self, dropna)

        def other() -> int:
            import polars as pl

            column = pl.Series(array, nan_to_null=True)
            return int(column.n_unique()) - bool(column.null_count())

        return engine.call("nunique", (array.dtype.char,), array.size, functools.partial(original, self), other, same)

    return nunique


def _value_counts(original: Any, engine: Engine) -> Any:
    @passed_by
    @functools.wraps(original)
    def value_counts(self: Any, *args: Any, **options: Any) -> Any:
        array = _numbers(self) if engine.allowed and not args and not options else None
        if array is None or array.dtype.kind == "f":  # of a zero, its first sign is told
            return original(self, *args, **options)

        def other() -> Any:
            import polars as pl

            found = pl.DataFrame({"": pl.Series(array, nan_to_null=True)}).group_by("", maintain_order=True).len("n")
            found = found.drop_nulls()
            keys, counts = found[""].to_numpy(), found["n"].to_numpy().astype(np.int64)
            order = np.argsort(-counts, kind="stable")
            return pd.Series(counts[order], index=pd.Index(keys[order], name=self.name), name="count")

        return engine.call(
            "value_counts", (array.dtype.char,), array.size, functools.partial(original, self), other, same
        )

    return value_counts


def _merge(original: Any, engine: Engine) -> Any:
    @passed_by
    @functools.wraps(original)
    def merge(left: Any, right: Any, how: Any = "inner", on: Any = None, *args: Any, **options: Any) -> Any:
        keys = None
        if engine.allowed and how in ("inner", "left") and not args and not options:
            keys = _join_keys(left, right, on)
        if keys is None:
            return original(left, right, how, on, *args, **options)
        given = [(_values(left[key]), _values(right[key])) for key in keys]
        kinds = tuple(array.dtype.char if array is not None else "" for pair in given for array in pair)

        def other() -> Any:
            found = _joined_rows(given, how)
            if found is None:
                return None
            rows, others = found
            first = left.take(rows).set_axis(range(len(rows)), axis=0)
            second = right.drop(columns=keys).take(others)
            result = pd.concat([first, second.set_axis(first.index, axis=0)], axis=1)
            return result.set_axis(pd.RangeIndex(len(rows)), axis=0)

        key = (how, *kinds, left.shape[1], right.shape[1])
        return engine.call("merge", key, len(left), functools.partial(original, left, right, how, on), other, same)

    return merge


def _join_keys(left: Any, right: Any, on: Any) -> list[str] | None:
    """The columns by which two frames are joined; None where pandas must do it."""
    if not (_plain_frame(left) and _plain_frame(right)) or len(left) < state.threshold or not len(right):
        return None
    common = [each for each in left.columns if each in right.columns]
    keys = common if on is None else [on] if type(on) is str else on
    if type(keys) is not list or not keys or sorted(keys) != sorted(common):
        return None
    columns = [_values(frame[key]) for key in keys for frame in (left, right)]
    return None if any(each is None or each.dtype.char != "l" for each in columns) else keys


def _joined_rows(given: Sequence[tuple[Any, Any]], how: str) -> tuple[np.ndarray, np.ndarray] | None:
    """The rows of both sides that belong together; None where one has no partner."""
    import polars as pl

    sides = [
        pl.DataFrame({str(i): pair[side] for i, pair in enumerate(given)}).with_row_index(name)
        for side, name in ((0, "left"), (1, "right"))
    ]
    names = [str(i) for i in range(len(given))]
    found = sides[0].join(sides[1], on=names, how=how, maintain_order="left_right")  # type: ignore[arg-type]
    if found["right"].null_count():
        return None
    return found["left"].to_numpy().astype(np.intp), found["right"].to_numpy().astype(np.intp)


def _aggregated(original: Any, name: str, engine: Engine) -> Any:
    @passed_by
    @functools.wraps(original)
    def aggregate(self: Any, *args: Any, **options: Any) -> Any:
        function = args[0] if name == "" and len(args) == 1 and not options and type(args[0]) is str else name
        usual = function in _FUNCTIONS and not options and len(args) == (name == "")
        found = _grouped(self) if engine.allowed and usual else None
        if found is None:
            return original(self, *args, **options)
        keys, columns = found

        def other() -> Any:
            return _of_groups(self, keys, columns, function)

        kinds = (function, len(keys), "".join(each.dtype.char for each in columns.values()), type(self).__name__)
        size = len(self.obj)
        return engine.call("groupby", kinds, size, functools.partial(original, self, *args, **options), other, same)

    return aggregate


def _grouped(grouped: Any) -> tuple[list[tuple[Any, np.ndarray]], dict[Any, np.ndarray]] | None:
    """The names and arrays of the keys, and the arrays of the columns; None where pandas must do it."""
    obj = grouped.obj
    if len(obj) < state.threshold or grouped.level is not None or not (grouped.as_index and grouped.sort):
        return None
    keys = []
    for each in grouped._grouper.groupings:
        array = _values(each.grouping_vector)
        if array is None or array.dtype.char != "l" or type(each.name) is not str:
            return None
        keys.append((each.name, array))
    if isinstance(grouped, SeriesGroupBy):
        named = {obj.name: obj} if type(obj) is pd.Series and not obj.attrs else {}
    else:
        chosen = grouped._obj_with_exclusions
        named = {name: chosen[name] for name in chosen.columns} if _plain_frame(obj) and _plain_frame(chosen) else {}
    columns = {name: array for name, each in named.items() if (array := _values(each)) is not None}
    return (keys, columns) if columns and len(columns) == len(named) else None


def _of_groups(grouped: Any, keys: list[tuple[Any, np.ndarray]], columns: dict[Any, np.ndarray], function: str) -> Any:
    import polars as pl

    table = {f"k{i}": pl.Series(array) for i, (_, array) in enumerate(keys)}
    table |= {f"v{i}": pl.Series(array, nan_to_null=True) for i, array in enumerate(columns.values())}
    by = [f"k{i}" for i in range(len(keys))]
    wanted = [getattr(pl.col(f"v{i}"), function)() for i in range(len(columns))]
    found = pl.DataFrame(table).group_by(by).agg(wanted).sort(by)
    labels = [found[each].to_numpy() for each in by]
    names = [name for name, _ in keys]
    index = pd.Index(labels[0], name=names[0]) if len(by) == 1 else pd.MultiIndex.from_arrays(labels, names=names)
    made = {
        name: found[f"v{i}"].to_numpy().astype(np.int64 if function == "count" else found[f"v{i}"].to_numpy().dtype)
        for i, name in enumerate(columns)
    }
    if isinstance(grouped, SeriesGroupBy):
        return pd.Series(next(iter(made.values())), index=index, name=grouped.obj.name)
    return pd.DataFrame(made, index=index, columns=grouped._obj_with_exclusions.columns)


def install(engine: Engine) -> Callable[[], None]:
    """Wrap the functions of pandas; answers what takes the wrappers out."""
    undo: list[Callable[[], None]] = []

    def replace(owner: Any, name: str, made: Callable[[Any], Any]) -> None:
        original, own = getattr(owner, name), vars(owner).get(name)
        setattr(owner, name, made(original))
        undo.append(lambda: setattr(owner, name, own) if own is not None else delattr(owner, name))

    if engine.allowed:
        replace(pd.Series, "nunique", lambda original: _nunique(original, engine))
        if _STABLE_COUNTS:
            replace(pd.Series, "value_counts", lambda original: _value_counts(original, engine))
        replace(pd, "merge", lambda original: _merge(original, engine))
        replace(pd.DataFrame, "merge", lambda original: _merge(original, engine))
        for owner in (DataFrameGroupBy, SeriesGroupBy):
            for name in _FUNCTIONS:
                replace(owner, name, functools.partial(_aggregated, name=name, engine=engine))
            for name in ("agg", "aggregate"):
                replace(owner, name, lambda original: _aggregated(original, "", engine))

    def take_out() -> None:
        while undo:
            undo.pop()()

    return take_out
