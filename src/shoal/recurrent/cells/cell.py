"""A cell: its states and how each is computed, traced from a Python function or read from JSON."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

from shoal.recurrent.cells.symbols import (
    HIDDEN,
    PROJECTION,
    Expression,
    from_json,
    lift,
    make,
    to_json,
    walk,
)
from shoal.recurrent.errors import NotPure


@dataclass(frozen=True)
class Cell:
    """`updates` gives each state of the next step from the input and the states of this one. The first state is the
    output. `spaces` says which space of units a state has."""

    name: str
    updates: Mapping[str, Expression]

    @cached_property
    def spaces(self) -> Mapping[str, str]:
        """The space of each state, from its update."""
        return MappingProxyType({name: space_of(update, name) for name, update in self.updates.items()})

    @property
    def states(self) -> tuple[str, ...]:
        return tuple(self.updates)

    @cached_property
    def nodes(self) -> tuple[Expression, ...]:
        return tuple(walk(self.updates.values()))

    @cached_property
    def dots(self) -> tuple[Expression, ...]:
        return tuple(node for node in self.nodes if node.op == "dot")

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.nodes if node.op == "parameter")

    @property
    def projected(self) -> bool:
        return PROJECTION in self.spaces.values()

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, **to_json(self.updates)}

    @classmethod
    def of_json(cls, data: Any) -> Cell:
        """Raises NotPure."""
        if not isinstance(data, Mapping):
            raise NotPure("this is no cell", where="cell")
        return checked(cls(str(data.get("name", "")), from_json(data)))


def space_of(root: Expression, where: str) -> str:
    """The one space that an expression is computed in. Raises NotPure where it mixes two."""
    found = set()
    left, seen = [root], set[Expression]()
    while left:
        node = left.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.op == "dot":
            found.add(node.space)
        elif node.op != "mean":
            left += node.args
    if len(found) > 1:
        raise NotPure("it mixes values of projected and of hidden units", where=where)
    return found.pop() if found else HIDDEN


def checked(cell: Cell) -> Cell:
    """The cell, if it can be compiled. Raises NotPure."""
    if not cell.updates:
        raise NotPure("a cell needs at least one state", where=cell.name)
    names: dict[str, Expression] = {}
    for node in cell.nodes:
        if node.op == "state" and node.name not in cell.updates:
            raise NotPure(f"the state {node.name!r} is never computed", where=cell.name)
        if node.op == "input" and node.name != "x":
            raise NotPure(f"a cell has one input, x, not {node.name!r}", where=cell.name)
        if node.op in ("dot", "parameter") and names.setdefault(node.name, node) is not node:
            raise NotPure(f"two different parts use the weight {node.name!r}", where=cell.name)
    for name, update in cell.updates.items():
        _check_spaces(cell, update, cell.spaces[name])
    for node in cell.dots:
        if node.args[0].op not in ("input", "state"):
            _check_spaces(cell, node.args[0], space_of(node.args[0], node.name))
    return cell


def _check_spaces(cell: Cell, root: Expression, space: str) -> None:
    """The states that an expression uses unit by unit must have as many units as it."""
    left = [root]
    while left:
        node = left.pop()
        if node.op == "state" and cell.spaces[node.name] != space:
            raise NotPure(f"{node.name} is used unit by unit where there are other units", where=cell.name)
        if node.op not in ("dot", "mean"):
            left += node.args


def cell(function: Callable[..., Any]) -> Cell:
    """Trace a function of (x, state, state, ...) that returns the next states: one expression, or a mapping by name
    whose first is the output.

    Raises NotPure, with the line, for what is not a pure expression: a choice on a value, a random number, a function
    of another library.
    """
    code = function.__code__
    where = f"{code.co_filename}:{code.co_firstlineno}"
    names = list(inspect.signature(function).parameters)
    if len(names) < 2:
        raise NotPure("a cell takes the input and at least one state", where=where)
    first, again = _trace(function, names, where), _trace(function, names, where)
    if list(first.items()) != list(again.items()):
        raise NotPure("two traces of the cell differ: it depends on more than its inputs", where=where)
    if set(first) != set(names[1:]):
        raise NotPure(f"it computes {', '.join(first)} for the states {', '.join(names[1:])}", where=where)
    return checked(Cell(function.__name__, MappingProxyType(first)))


def _trace(function: Callable[..., Any], names: list[str], where: str) -> dict[str, Expression]:
    symbols = [make("input", name="x"), *(make("state", name=name) for name in names[1:])]
    try:
        made = function(*symbols)
        if not isinstance(made, Mapping):
            made = {names[1]: made}
        return {str(name): lift(value) for name, value in made.items()}
    except Exception as error:  # whatever the function or a library makes of a symbol
        lines = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename == function.__code__.co_filename
        ]
        line = f"{lines[-1].filename}:{lines[-1].lineno}" if lines else where
        what = error.what if isinstance(error, NotPure) else f"{type(error).__name__}: {error}"
        hint = error.hint if isinstance(error, NotPure) else "use the functions of shoal.recurrent alone"
        raise NotPure(f"{function.__name__} is not a pure expression: {what}", where=line, hint=hint) from None
