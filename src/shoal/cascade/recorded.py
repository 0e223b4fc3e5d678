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

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.names))

    def width(self, group: str) -> int:
        return sum(size for name, size in zip(self.names, self.sizes, strict=True) if name == group)


def record(function: Callable[[Row], Sequence[Any]], rows: Sequence[Row]) -> Layout:
    """Run the function on some rows with calls put off. Raises Invalid where rows give different features."""
    eager: set[str] = set()
    while True:
        try:
            found = [_put_off(function, row, frozenset(eager)) for row in rows]
            break
        except Looked as error:
            if error.name in eager:
                raise Invalid(str(error), where=CODE) from None
            eager.add(error.name)
    if len({len(one) for one in found}) != 1:
        sizes = sorted({len(one) for one in found})
        raise Invalid(
            f"the function returns {sizes} features, by row", where="features", hint="return as many for each"
        )
    names = []
    for place in range(len(found[0])):
        here = {one[place].name if isinstance(one[place], Placeholder) else CODE for one in found}
        if len(here) > 1:
            raise Invalid(f"at place {place} rows have different features: {', '.join(sorted(here))}", where="features")
        names.append(here.pop())
    values = function(rows[0])
    return Layout(tuple(names), tuple(int(np.size(value)) for value in values), frozenset(eager))


def evaluate(function: Callable[[Row], Sequence[Any]], layout: Layout, group: str, rows: Sequence[Row]) -> Floats:
    """One group's features: rows x width. The calls of all rows are made together where they have a batch form."""
    places = [place for place, name in enumerate(layout.names) if name == group]
    found = [_put_off(function, row, layout.eager) for row in rows]
    items = [one[place] for one in found for place in places]
    if group != CODE:
        arguments = [item.arguments if isinstance(item, Placeholder) else () for item in items]
        batch = _batches.get(group)
        items = list(batch(arguments)) if batch else [_marked[group](*one) for one in arguments]
        if len(items) != len(arguments):
            raise ValueError(f"the batch form of {group} gave {len(items)} values for {len(arguments)} calls")
    flat = [np.ravel(np.asarray(item, np.float64)) for item in items]
    if not flat:
        return np.empty((len(rows), layout.width(group)))
    return np.concatenate(flat).reshape(len(rows), layout.width(group))


def _put_off(function: Callable[[Row], Sequence[Any]], row: Row, eager: frozenset[str]) -> list[Any]:
    before, _running.eager = _running.eager, eager
    try:
        return list(function(row))
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

    def apply(self, block: Block) -> Floats:
        return evaluate(self.call, self.layout, self.group, rows_of_block(block, self.names))

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        function = importable_name(self.call)
        if not function:
            raise Invalid("the recorded function cannot be imported, so no artefact can name it", where=self.group,
                          hint="define it in a module, outside of other functions")  # fmt: skip
        layout = {
            "names": list(self.layout.names),
            "sizes": list(self.layout.sizes),
            "eager": sorted(self.layout.eager),
        }
        return {"function": function, "layout": layout, "group": self.group, "names": list(self.names)}, {}

    @classmethod
    def restore(cls, parameters: Mapping[str, Any], arrays: Arrays) -> RecordedStep:  # noqa: ARG003
        layout = parameters["layout"]
        made = Layout(tuple(layout["names"]), tuple(map(int, layout["sizes"])), frozenset(layout["eager"]))
        call = import_function(str(parameters["function"]))
        if parameters["group"] not in made.groups or len(made.names) != len(made.sizes):
            raise ValueError("a recorded step of no group")
        return cls(call, made, str(parameters["group"]), tuple(parameters["names"]))


def rows_of_block(block: Block, names: Sequence[str]) -> list[dict[str, Any]]:
    return [dict(zip(names, row, strict=True)) for row in np.asarray(block).tolist()]
