"""Reservations and maintenance windows: kept, and as windows of the coming time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from shoal.calendar.keeping import Amount, Book, owed
from shoal.calendar.live.events import CalendarEvent
from shoal.calendar.live.tables import plan as table
from shoal.calendar.windows import Plan, Repeat, Window, all_windows, check
from shoal.contract.records import NewEvent
from shoal.core import Conflict, NotFound
from shoal.extension import Server

HORIZON_S = 60 * 86_400.0
"""Windows that begin later are not looked at yet: a job that may run longer counts as one that ends then."""
_FRESH_S = 600.0


class Plans:
    """All plans. `changed` is called when there are others."""

    def __init__(self, server: Server, changed: Callable[[], None]) -> None:
        self._server, self._changed = server, changed
        self._plans: dict[str, Plan] = {}
        self._windows: list[Window] = []
        self._made_at: float | None = None

    def load(self) -> None:
        self._plans = {plan.name: plan for plan in map(_plan_of, self._server.store.rows(select(table)))}
        self._made_at = None

    def all(self) -> list[Plan]:
        return list(self._plans.values())

    def find(self, name: str) -> Plan:
        """Raises NotFound."""
        if name not in self._plans:
            raise NotFound(f"there is no plan {name!r}", where=name, hint="`shoal calendar list` lists what there is")
        return self._plans[name]

    def windows(self, now: float) -> list[Window]:
        """Those that are not over, up to the horizon."""
        if not self._plans:
            return []
        if self._made_at is None or not 0 <= now - self._made_at < _FRESH_S:
            self._windows, self._made_at = all_windows(self._plans.values(), now, now + HORIZON_S + _FRESH_S), now
        return [window for window in self._windows if window.end > now]

    async def add(self, plan: Plan, nodes: dict[str, Amount], *, actor: str) -> tuple[Plan, bool]:
        """The same again is the one that is there. Raises Invalid, and Conflict where the nodes have not as much as all
        plans together promise."""
        now = self._server.clock.now()
        check(plan, now, nodes)
        old = self._plans.get(plan.name)
        if old is not None and _same(old, plan):
            return old, False
        if old is not None:
            raise Conflict(f"there is a plan {plan.name} already", where="name",
                           hint=f"`shoal calendar remove {plan.name}` first")  # fmt: skip
        if plan.tenant is not None:
            _require_room([*self._plans.values(), plan], plan, nodes, now)
        what = f"for tenant {plan.tenant}" if plan.tenant is not None else "for maintenance"
        told = NewEvent(
            now, CalendarEvent.PLANNED, actor, f"plan {plan.name} was made, {what}", tenant=plan.tenant,
            data={"begin": plan.begin, "end": plan.end, "repeat": plan.repeat.value}, owner_id=plan.id,
        )  # fmt: skip

        def run(connection: Connection) -> bool:
            connection.execute(insert(table).values(_values(plan)))
            return True

        await self._server.store.transact(run, [told])
        self._plans[plan.name] = plan
        self._other()
        return plan, True

    async def remove(self, plan: Plan, *, actor: str) -> None:
        now = self._server.clock.now()
        told = NewEvent(
            now, CalendarEvent.UNPLANNED, actor, f"plan {plan.name} was removed", tenant=plan.tenant, owner_id=plan.id
        )

        def run(connection: Connection) -> bool:
            return connection.execute(delete(table).where(table.c.id == plan.id)).rowcount == 1

        await self._server.store.transact(run, [told])
        self._plans.pop(plan.name, None)
        self._other()

    def _other(self) -> None:
        self._made_at = None
        self._changed()


def _require_room(plans: Iterable[Plan], new: Plan, nodes: dict[str, Amount], now: float) -> None:
    """Raises Conflict for a promise that an empty cluster could not keep beside the others."""
    windows = all_windows(plans, now, now + HORIZON_S)
    for own in (window for window in windows if window.plan is new):
        beside = [one for one in windows if one.begin < own.end and own.begin < one.end]
        book = Book(now, nodes, (), beside)
        mine = [one for one in book.claims if one.window is own]
        found = sum(sum(n for k, n in each.items() if k[0] != "/") for one in mine for each in one.amounts.values())
        if new.accelerators is not None and found < new.accelerators:
            kind = "" if new.kind == "any" else f" {new.kind}"
            raise Conflict(
                f"there are {found}{kind} accelerators to reserve, not {new.accelerators}", where="accelerators",
                hint="`shoal nodes` shows what there is",
            )  # fmt: skip
        at = max(own.begin, now)
        for moment in sorted({at, *(one.begin for one in beside if at <= one.begin < own.end)}):
            active = [one for one in book.claims if one.window.begin <= moment < one.window.end]
            for name, capacity in nodes.items():
                total = owed(active, name, capacity, {})
                short = next((kind for kind, number in capacity.items() if total.get(kind, 0) > number), None)
                if short is not None:
                    raise Conflict(
                        f"node {name} is planned for something else at that time", where="nodes",
                        hint="`shoal calendar list` shows what is planned",
                    )  # fmt: skip


def _same(old: Plan, new: Plan) -> bool:
    return {**asdict(old), "id": ""} == {**asdict(new), "id": ""}


def _values(plan: Plan) -> dict[str, Any]:
    return {**asdict(plan), "nodes": json.dumps(plan.nodes), "repeat": plan.repeat.value}


def _plan_of(row: Any) -> Plan:
    values = dict(zip(table.c.keys(), row, strict=True))
    values |= {"nodes": tuple(json.loads(values["nodes"])), "repeat": Repeat(values["repeat"])}
    return Plan(**values)
