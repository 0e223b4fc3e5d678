"""One row through numbers, joins and trees without arrays, which take longer to make than the row to answer.

A value of a kind that a block would change on its way (a date, None, a text for a number) is left to the ordinary path,
which says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.cascade.models.trees import Trees
from shoal.cascade.steps.columns import AsNumbers
from shoal.cascade.steps.lookup import JoinStep
from shoal.cascade.table import Column, Key, Table

if TYPE_CHECKING:
    from shoal.cascade.program import Group, Stage

_PLAIN = frozenset({str, int, float, bool, np.float64, np.int64, np.str_})
Row = Callable[[Table], Sequence[float]]


class NotPlain(ValueError):
    """A value that the ordinary path has to look at."""


def ways_of(groups: Sequence[Group], stages: Sequence[Stage]) -> tuple[Row, ...] | None:
    """By group, its features of a table of one row; None where a group or a model has no such way."""
    if not all(isinstance(stage.model, Trees) and stage.model.has_kernel for stage in stages):
        return None
    ways = [_way(group) for group in groups]
    found = tuple(way for way in ways if way is not None)
    return found if len(found) == len(ways) else None


def _way(group: Group) -> Row | None:
    if len(group.steps) != 1:
        return None
    step, columns = group.steps[0], group.columns
    if isinstance(step, AsNumbers) and not group.one:
        return lambda table: _values(table.columns, columns)
    if isinstance(step, JoinStep):
        row = step.row
        return lambda table: row(_values(table.columns, columns))
    return None


def _values(of: Mapping[Key, Column], names: Sequence[Key]) -> list[Any]:
    found = []
    for name in names:
        column = of[name]
        value = column[0] if type(column) is list else _item(column)
        if type(value) not in _PLAIN:
            raise NotPlain
        found.append(value)
    return found


def _item(column: Column) -> Any:
    if not isinstance(column, np.ndarray):
        return column[0]
    if column.ndim != 1 or column.dtype.kind not in "fiubUO":
        raise NotPlain
    return column.item(0)
