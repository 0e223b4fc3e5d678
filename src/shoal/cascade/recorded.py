"""Features from an ordinary Python function: calls, branches and loops as they are.

    @feature
    def user(user_id): ...                      # a number, or several

    @feature(batch=many_films)                  # all rows in one call
    def film(film_id): ...

    def features(row):                          # a mapping of columns
        found = [user(row["user"]), row["hour"]]
        for actor in row["cast"].split():
            found.append(...)
        return found

    make_pipeline(Recorded(features), LogisticRegression())

The function runs with calls of marked functions put off: each gives a placeholder, and where the placeholder is
returned its value is filled in afterwards. So each marked function is a feature group, computed for the rows that need
it, and in one call where it has a batch form. A placeholder that the code looks into (a sum, a branch) cannot be put
off: that feature and the plain code around it are one group, named `code`.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, TypeVar

import numpy as np

from shoal.cascade.steps.base import Array, Arrays, Block, Floats
from shoal.cascade.steps.opaque import import_function, importable_name
from shoal.core import Invalid

CODE = "code"
"""The group of plain code, and of features that cannot be put off."""
Function = TypeVar("Function", bound=Callable[..., Any])
Row = Mapping[str, Any]


class Looked(Exception):  # it is caught here, and no error of anybody's
    """A placeholder was looked into."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the value of {name} is used by the code around it")
        self.name = name


class Placeholder:
    """What a call that was put off gives. Anything done with it but returning it raises `Looked`."""

    __slots__ = ("arguments", "name")

    def __init__(self, name: str, arguments: tuple[Any, ...]) -> None:
        self.name = name
        self.arguments = arguments

    def _look(self, *_: Any) -> NoReturn:
        raise Looked(self.name)

    __bool__ = __float__ = __int__ = __len__ = __iter__ = __getitem__ = __index__ = _look
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _look
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = __neg__ = __abs__ = _look
    __hash__ = None  # type: ignore[assignment]


class _Running(threading.local):
    eager: frozenset[str] | None = None
    """The features whose calls are made at once while a function is recorded; None: no recording, all are."""


_running = _Running()
_batches: dict[str, Callable[[list[tuple[Any, ...]]], Sequence[Any]]] = {}
_marked: dict[str, Callable[..., Any]] = {}


def feature(function: Any = None, *, batch: Callable[[list[tuple[Any, ...]]], Sequence[Any]] | None = None) -> Any:
    """Mark a function as a feature. `batch` takes a list of argument tuples and gives as many values."""

    def mark(plain: Function) -> Function:
        name = plain.__qualname__
        _marked[name] = plain
        if batch is not None:
            _batches[name] = batch

        @functools.wraps(plain)
        def call(*arguments: Any) -> Any:
            if _running.eager is None or name in _running.eager:
                return plain(*arguments)
            return Placeholder(name, arguments)

        return call  # type: ignore[return-value]

    return mark if function is None else mark(function)


@dataclass(frozen=True)
class Layout:
    """Which feature is at each place of what the function returns (`CODE` for plain values), how many numbers each
    place has, and the features whose calls cannot be put off."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    eager: frozenset[str]
    lineage: Mapping[str, tuple[str, ...]]
    """By group, the columns that its values were seen to depend on."""

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.names))

    def width(self, group: str) -> int:
        return sum(size for name, size in zip(self.names, self.sizes, strict=True) if name == group)


def record(function: Callable[[Row], Sequence[Any]], rows: Sequence[Row]) -> Layout:
    """Run the function on some rows with calls put off. Where a branch gives one row another feature than the next, at
    the same place, these features belong to the code. Raises Invalid where rows give more features than others."""
    eager: set[str] = set()
    while True:
        found = []
        for row in rows:
            items, looked = _put_off(function, row, frozenset(eager))
            eager |= looked
            found.append(items)
        if len({len(one) for one in found}) != 1:
            sizes = sorted({len(one) for one in found})
            raise Invalid(
                f"the function returns {sizes} features, by row", where="features", hint="return as many for each"
            )
        here = [{_name_of(one[place]) for one in found} for place in range(len(found[0]))]
        mixed = {name for names in here if len(names) > 1 for name in names} - {CODE}
        if not mixed - eager and all(len(names) == 1 for names in here):
            break
        eager |= mixed
    values = function(rows[0])
    places = tuple(names.pop() for names in here)
    lineage = _lineage(function, rows, places, found, frozenset(eager))
    return Layout(places, tuple(int(np.size(one)) for one in values), frozenset(eager), lineage)


def _lineage(
    function: Callable[[Row], Sequence[Any]], rows: Sequence[Row], names: Sequence[str],
    found: Sequence[Sequence[Any]], eager: frozenset[str],
) -> dict[str, tuple[str, ...]]:  # fmt: skip
    """By group, the columns it depends on, through calls, branches and loops alike. Each column in turn gets the values
    of other rows; a group depends on it where the arguments of its calls, or its plain values, are others then. A
    function that fails, or gives more or fewer features, depends on the column as a whole."""
    of: dict[str, list[str]] = {name: [] for name in dict.fromkeys(names)}
    for column in rows[0]:
        changed: set[str] = set()
        for at, row in enumerate(rows):
            other = next((one[column] for one in (*rows[at + 1 :], *rows) if not _same(one[column], row[column])), None)
            if other is None or changed.issuperset(of):
                continue
            try:
                items = _put_off(function, {**row, column: other}, eager)[0]
            except Exception:  # the code is anybody's, and gets a row that there may not be
                items = []
            if len(items) != len(names):
                changed.update(of)
            changed.update(name for name, new, old in zip(names, items, found[at], strict=False) if not _same(new, old))
        for name in changed:
            of[name].append(column)
    return {name: tuple(columns) for name, columns in of.items()}


def _same(one: Any, other: Any) -> bool:
    """Of two plain values, or of two calls that were put off. NaN is the same as NaN."""
    if isinstance(one, Placeholder) or isinstance(other, Placeholder):
        both = isinstance(one, Placeholder) and isinstance(other, Placeholder) and one.name == other.name
        return both and _same(one.arguments, other.arguments)
    return repr(one) == repr(other)


def evaluate(function: Callable[[Row], Sequence[Any]], layout: Layout, group: str, rows: Sequence[Row]) -> Floats:
    """One group's features: rows x width. The calls of all rows are made together where they have a batch form. Raises
    ValueError where a row has another number of features than those that were recorded."""
    places = [place for place, name in enumerate(layout.names) if name == group]
    found = [_put_off(function, row, layout.eager)[0] for row in rows]
    if any(len(one) != len(layout.names) for one in found):
        raise ValueError(f"the function returns other features than the {len(layout.names)} that were recorded")
    items = [one[place] for one in found for place in places]
    batch = _batches.get(group)
    own = [at for at, item in enumerate(items) if batch and _name_of(item) == group]
    if batch and own:
        values = list(batch([items[at].arguments for at in own]))
        if len(values) != len(own):
            raise ValueError(f"the batch form of {group} gave {len(values)} values for {len(own)} calls")
        for at, value in zip(own, values, strict=True):
            items[at] = value
    flat = [np.ravel(np.asarray(_value(item), np.float64)) for item in items]
    if not flat:
        return np.empty((len(rows), layout.width(group)))
    return np.concatenate(flat).reshape(len(rows), layout.width(group))


def _name_of(item: Any) -> str:
    return item.name if isinstance(item, Placeholder) else CODE


def _value(item: Any) -> Any:
    """Of a branch that no recorded row took, another feature's call may be at this place: it is made here."""
    return _marked[item.name](*item.arguments) if isinstance(item, Placeholder) else item


def _put_off(
    function: Callable[[Row], Sequence[Any]], row: Row, eager: frozenset[str]
) -> tuple[list[Any], frozenset[str]]:
    """What the function returns, and the features whose calls it could not put off: those of `eager`, and those whose
    values this row's code looks into."""
    before = _running.eager
    try:
        while True:
            _running.eager = eager
            try:
                return list(function(row)), eager
            except Looked as error:
                if error.name in eager:
                    raise Invalid(str(error), where=CODE) from None
                eager |= {error.name}
    finally:
        _running.eager = before


@dataclass(frozen=True)
class RecordedStep:
    """One group of a recorded function. `function` is its name where it can be imported."""

    kind: ClassVar[str] = "recorded"

    call: Callable[[Row], Sequence[Any]]
    layout: Layout
    group: str
    names: tuple[str, ...]
    """Of the columns that the row has."""

    @property
    def width(self) -> int:
        return self.layout.width(self.group)

    @property
    def lineage(self) -> tuple[str, ...]:
        return self.layout.lineage[self.group]

    def apply(self, block: Block) -> Floats:
        return evaluate(self.call, self.layout, self.group, rows_of_block(block, self.names))

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        function = importable_name(self.call)
        if not function:
            raise Invalid("the recorded function cannot be imported, so no artefact can name it", where=self.group,
                          hint="define it in a module, outside of other functions")  # fmt: skip
        layout = {
            "names": list(self.layout.names), "sizes": list(self.layout.sizes), "eager": sorted(self.layout.eager),
            "lineage": self.layout.lineage,
        }  # fmt: skip
        return {"function": function, "layout": layout, "group": self.group, "names": list(self.names)}, {}

    @classmethod
    def restore(cls, parameters: Mapping[str, Any], arrays: Arrays) -> RecordedStep:  # noqa: ARG003
        layout = parameters["layout"]
        lineage = {name: tuple(columns) for name, columns in layout["lineage"].items()}
        made = Layout(tuple(layout["names"]), tuple(map(int, layout["sizes"])), frozenset(layout["eager"]), lineage)
        call = import_function(str(parameters["function"]))
        if parameters["group"] not in made.groups or len(made.names) != len(made.sizes):
            raise ValueError("a recorded step of no group")
        return cls(call, made, str(parameters["group"]), tuple(parameters["names"]))


def rows_of_block(block: Block, names: Sequence[str]) -> list[dict[str, Any]]:
    return [dict(zip(names, row, strict=True)) for row in np.asarray(block).tolist()]
