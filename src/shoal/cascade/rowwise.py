"""One row through numbers, joins and trees without arrays, which take longer to make than the row to answer.

Each column is read once. A group's features are the bytes of its doubles: packed from the row's own values, or found in
an index that has them packed. A value of a kind that a block would change on its way (a date, None, a text for a
number) is left to the ordinary path, which says what is wrong with it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.cascade.models.trees import Trees
from shoal.cascade.steps.columns import AsNumbers
from shoal.cascade.steps.lookup import JoinStep
from shoal.cascade.table import Column, Key, Table

if TYPE_CHECKING:
    from shoal.cascade.program import Group, Stage

_PLAIN = frozenset({str, int, float, bool, np.float64, np.int64, np.str_})
Packed = Callable[[Any], bytes]
"""A group's features, from a row's values."""
Answer = tuple[list[float], int]
"""Scores, and the stage that gave them."""


class NotPlain(ValueError):
    """A value that the ordinary path has to look at."""


class RowPath:
    """Stages of trees over numbers and joins."""

    def __init__(self, groups: Sequence[Group], stages: Sequence[Stage], ways: Sequence[Packed]) -> None:
        self._read = _getter(_columns_of(groups))
        read: set[int] = set()
        self._stages = []
        for stage in stages:
            new = [(group, ways[group]) for group in stage.groups if group not in read]
            read.update(stage.groups)
            assert isinstance(stage.model, Trees)
            self._stages.append((new, stage.groups, stage.model.score_packed, stage.rule, stage.model.output))

    def __call__(self, table: Table) -> Answer | None:
        """None where a value is not plain, or no number."""
        try:
            columns = self._read(table.columns)
            row = [column[0] if type(column) is list else _item(column) for column in columns]
            return self._answer(row) if _PLAIN.issuperset(map(type, row)) else None
        except (NotPlain, KeyError, struct.error, TypeError, OverflowError):
            return None

    def _answer(self, row: list[Any]) -> Answer:
        made: dict[int, bytes] = {}
        for at, (new, groups, score, rule, output) in enumerate(self._stages):
            for group, way in new:
                made[group] = way(row)
            scores = score(b"".join([made[group] for group in groups]))
            if rule is None or rule.sure_of(scores, output):
                return scores, at
        raise AssertionError("the last stage answers every row")


def row_path(groups: Sequence[Group], stages: Sequence[Stage]) -> RowPath | None:
    """None where a group or a model has no such way."""
    if not all(isinstance(stage.model, Trees) and stage.model.has_kernel for stage in stages):
        return None
    place = {name: at for at, name in enumerate(_columns_of(groups))}
    ways = [_way(group, place) for group in groups]
    found = [way for way in ways if way is not None]
    return RowPath(groups, stages, found) if found and len(found) == len(ways) else None


def _columns_of(groups: Sequence[Group]) -> list[Key]:
    return list(dict.fromkeys(name for group in groups for name in group.columns))


def _way(group: Group, place: Mapping[Key, int]) -> Packed | None:
    if len(group.steps) != 1 or not group.columns:
        return None
    step, places = group.steps[0], [place[name] for name in group.columns]
    if isinstance(step, AsNumbers) and not group.one:
        pack, values = struct.Struct(f"{len(places)}d").pack, _getter(places)
        return lambda row: pack(*values(row))
    if isinstance(step, JoinStep):
        key, find, nothing = itemgetter(*places), step.packed.get, step.packed_missing
        return lambda row: find(key(row), nothing)
    return None


def _getter(names: Sequence[Any]) -> Callable[[Any], Sequence[Any]]:
    """The values of these names, also where there is one."""
    if len(names) > 1:
        return itemgetter(*names)
    (only,) = names
    return lambda of: (of[only],)


def _item(column: Column) -> Any:
    if not isinstance(column, np.ndarray):
        return column[0]
    if column.ndim != 1 or column.dtype.kind not in "fiubUO":
        raise NotPlain
    return column.item(0)
