"""Rentals in the database, and the money of tenants: what ended at its bill, what runs at the most that it may cost.

A cap is kept by setting money aside before it can be spent: the row that asks for an instance, or for more time of it,
is written in one transaction with the check of the cap. An instance ends by itself when the time that was paid for is
over, so a server that is dead cannot make it dearer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from sqlalchemy import Connection, func, insert, select, update

from shoal.contract.records import NewEvent
from shoal.core import Conflict
from shoal.market.live.records import Rental, RentalState
from shoal.market.live.tables import rental as table
from shoal.store import Store


@dataclass(frozen=True, slots=True)
class Account:
    """A tenant's money in millionths of a dollar: `spent` on what ended, `held` for what runs."""

    tenant: str
    cap: int
    spent: int
    held: int
    rentals: int

    @property
    def left(self) -> int:
        return self.cap - self.spent - self.held


class Ledger:
    """`caps` are dollars by tenant; a tenant without one may rent nothing."""

    def __init__(self, store: Store, caps: Mapping[str, float]) -> None:
        self._store = store
        self._caps = {tenant: int(usd * 1e6) for tenant, usd in caps.items()}

    def cap(self, tenant: str) -> int:
        return self._caps.get(tenant, 0)

    def open_rentals(self) -> list[Rental]:
        return self._read(select(table).where(table.c.state != RentalState.ENDED.value).order_by(table.c.id))

    def some(self, ids: Iterable[str]) -> list[Rental]:
        return self._read(select(table).where(table.c.id.in_(list(ids))))

    def of(self, tenant: str | None, limit: int = 1000) -> list[Rental]:
        """The newest first."""
        query = select(table).order_by(table.c.wanted_at.desc(), table.c.id).limit(limit)
        return self._read(query if tenant is None else query.where(table.c.tenant == tenant))

    def last_generation(self, job_id: str) -> int:
        found = self._store.rows(select(func.max(table.c.generation)).where(table.c.job_id == job_id))
        return int(found[0][0] or 0)

    def accounts(self) -> list[Account]:
        ended = table.c.state == RentalState.ENDED.value
        rows = self._store.rows(
            select(table.c.tenant, ended, func.sum(table.c.micro_usd), func.count()).group_by(table.c.tenant, ended)
        )
        sums: dict[str, list[int]] = {tenant: [0, 0, 0] for tenant in self._caps}
        for tenant, over, micro, count in rows:
            account = sums.setdefault(tenant, [0, 0, 0])
            account[0 if over else 1] += int(micro)
            account[2] += count
        return [Account(tenant, self.cap(tenant), *parts) for tenant, parts in sorted(sums.items())]

    async def reserve(self, changed: Sequence[Rental], *events: NewEvent) -> bool:
        """Write new rentals, or longer ones, of one tenant, if its cap allows all of them; else nothing. A rental of
        version 1 is new; of another, one version later than it was."""
        if not changed:
            return True
        tenant, cap = changed[0].tenant, self.cap(changed[0].tenant)
        ids = [one.id for one in changed]

        def run(connection: Connection) -> bool:
            others = select(func.coalesce(func.sum(table.c.micro_usd), 0)).where(
                table.c.tenant == tenant, table.c.id.not_in(ids)
            )
            total = int(connection.execute(others).scalar_one()) + sum(one.micro_usd for one in changed)
            if total > cap:
                return False
            for one in changed:
                _put(connection, one)
            return True

        return await self._store.transact(run, events)

    async def write(self, changed: Rental, *events: NewEvent) -> Rental:
        """The next version of a rental, which sets no more money aside."""
        newer = replace(changed, version=changed.version + 1)

        def run(connection: Connection) -> bool:
            _put(connection, newer)
            return True

        await self._store.transact(run, events)
        return newer

    async def write_events(self, *events: NewEvent) -> None:
        await self._store.record(events)

    def _read(self, query: Any) -> list[Rental]:
        return [_rental(row) for row in self._store.rows(query)]


def _put(connection: Connection, one: Rental) -> None:
    values = {field.name: getattr(one, field.name) for field in fields(one)}
    values |= {"state": one.state.value, "ready": int(one.ready), "exact": int(one.exact)}
    if one.version == 1:
        connection.execute(insert(table).values(values))
        return
    newer = update(table).where(table.c.id == one.id, table.c.version == one.version - 1).values(values)
    if connection.execute(newer).rowcount != 1:
        raise Conflict(f"rental {one.id} is not the one that was read")


def _rental(row: Sequence[Any]) -> Rental:
    values = dict(zip(table.c.keys(), row, strict=True))
    values |= {"state": RentalState(values["state"]), "ready": bool(values["ready"]), "exact": bool(values["exact"])}
    return Rental(**values)
