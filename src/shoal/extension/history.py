"""Histories that outlive the server, in a table of the component whose they are."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Collection, Sequence
from typing import Any, Generic, TypeVar

from sqlalchemy import Column, Connection, Double, Integer, MetaData, Table, Text, and_, delete, insert, select

from shoal.base.history import History
from shoal.core import ShoalError
from shoal.store import Key, Store

T = TypeVar("T")

WRITE_EVERY_S = 60.0
"""How often what is new is to be written: a server that is killed loses no more than that."""


def history_table(name: str, metadata: MetaData) -> Table:
    """A row for each point of `Histories`."""
    return Table(
        name,
        metadata,
        Column("subject", Key, primary_key=True),
        Column("at", Double, primary_key=True),
        Column("joined", Integer, nullable=False),
        Column("value", Text, nullable=False),
    )


class Histories(Generic[T]):
    """A bounded history for each subject. `pack` makes a JSON value of a sample, and `unpack` a sample of it. What a
    sample is worth nothing (`not value`) is written with the next one that is worth something."""

    def __init__(
        self, store: Store, table: Table, join: Callable[[Sequence[T]], T], *,
        pack: Callable[[T], Any], unpack: Callable[[Any], T],
    ) -> None:  # fmt: skip
        self._store = store
        self._table = table
        self._join = join
        self._pack = pack
        self._unpack = unpack
        self._of: dict[str, History[T]] = {}
        self._written: dict[str, dict[float, tuple[bool, T]]] = {}

    def load(self) -> None:
        """What was written, in place of what is here. Blocks. A row that is not understood is left out."""
        columns = self._table.c
        older: dict[str, list[tuple[float, T]]] = {}
        recent: dict[str, list[tuple[float, T]]] = {}
        self._written = {}
        for subject, at, joined, text in self._store.rows(select(self._table).order_by(columns.subject, columns.at)):
            try:
                value = self._unpack(json.loads(text))
            except (ValueError, TypeError, KeyError, AttributeError):
                continue
            (older if joined else recent).setdefault(subject, []).append((float(at), value))
            self._written.setdefault(subject, {})[float(at)] = bool(joined), value
        self._of = {}
        for subject in older.keys() | recent.keys():
            self._history(subject).restore(older.get(subject, []), recent.get(subject, []))

    def add(self, subject: str, at: float, value: T) -> None:
        """A sample of now."""
        self._history(subject).add(at, value)

    def _history(self, subject: str) -> History[T]:
        return self._of.setdefault(subject, History(self._join))

    def keep(self, subjects: Collection[str]) -> None:
        """Forget all others."""
        self._of = {name: history for name, history in self._of.items() if name in subjects}

    def points(self, subject: str) -> list[tuple[float, T]]:
        """(Unix seconds, value), oldest first."""
        found = self._of.get(subject)
        return [] if found is None else found.points()

    async def write(self) -> None:
        """Bring the table up to date."""
        new: list[dict[str, Any]] = []
        gone: list[tuple[str, float]] = []
        present: dict[str, dict[float, tuple[bool, T]]] = {}
        some = False
        for subject in self._of.keys() | self._written.keys():
            history, before = self._of.get(subject), self._written.get(subject, {})
            now = {} if history is None else {at: (joined, value) for at, value, joined in history.marked()}
            changed = {at: one for at, one in now.items() if at not in before or before[at][1] is not one[1]}
            lost = [at for at in before if at not in now or at in changed]
            some = some or any(value for _, value in changed.values()) or bool(lost)
            new += [{"subject": subject, "at": at, "joined": int(joined), "value": json.dumps(self._pack(value))}
                    for at, (joined, value) in changed.items()]  # fmt: skip
            gone += [(subject, at) for at in lost]
            if now:
                present[subject] = now
        if not some:
            return

        def run(connection: Connection) -> bool:
            for subject, at in gone:
                connection.execute(delete(self._table).where(self._row(subject, at)))
            if new:
                connection.execute(insert(self._table), new)
            return True

        await self._store.transact(run)
        self._written = present

    async def close(self) -> None:
        """Write what is new, where the database can still be written to."""
        with contextlib.suppress(ShoalError):
            await self.write()

    def _row(self, subject: str, at: float) -> Any:
        return and_(self._table.c.subject == subject, self._table.c.at == at)
