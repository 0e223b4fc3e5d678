"""Subscriptions: in the database, and in memory for every event."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from datetime import time
from typing import Any

import orjson
from sqlalchemy import Connection, delete, insert, select, update

from shoal.contract.records import NewEvent
from shoal.core import Conflict, Invalid, NotFound, Unavailable
from shoal.extension import Server
from shoal.notify.live import tables
from shoal.notify.policy.times import Schedule
from shoal.notify.records import EVERYONE, Kind, NotifyEvent, State, Subscription, Target, Topic

MOST_OF_TENANT = 100

_table = tables.subscription


class Book:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._known: dict[str, Subscription] = {}

    def open(self) -> None:
        for row in self._server.store.rows(select(_table)):
            one = self._read(row)
            self._known[one.id] = one

    def __iter__(self) -> Iterator[Subscription]:
        return iter(self._known.values())

    def get(self, channel: str) -> Subscription | None:
        return self._known.get(channel)

    def named(self, tenant: str, name: str) -> Subscription | None:
        return next((one for one in self if (one.tenant, one.name) == (tenant, name)), None)

    def find(self, tenant: str, name: str) -> Subscription:
        """Raises NotFound."""
        if (found := self.named(tenant, name)) is None:
            raise NotFound(f"there is no subscription {name!r}", where=name, hint="`shoal notify list` lists them")
        return found

    def of(self, tenant: str | None) -> list[Subscription]:
        """Of one tenant, or all; by tenant and name."""
        return sorted((one for one in self if tenant in (None, one.tenant)), key=lambda one: (one.tenant, one.name))

    def hears(self, tenant: str | None) -> bool:
        """Whether anyone is told of what happens to this tenant, or to the nodes."""
        return any(one.tenant in (tenant, EVERYONE) for one in self)

    def asks(self, *topics: Topic) -> bool:
        return any(not one.topics.isdisjoint(topics) for one in self)

    async def add(self, one: Subscription, *, actor: str) -> None:
        """Raises Conflict for a name that is taken, and beyond the number that a tenant may have."""
        if self.named(one.tenant, one.name) is not None:
            raise Conflict(f"there is a subscription {one.name!r} already", where=one.name, hint="remove it first")
        if len(self.of(one.tenant)) >= MOST_OF_TENANT:
            raise Conflict(f"there are {MOST_OF_TENANT} subscriptions already", hint="remove one that nobody needs")
        row = self._row(one)

        def run(connection: Connection) -> bool:
            connection.execute(insert(_table), [row])
            return True

        await self._server.store.transact(run, [self._event(NotifyEvent.SUBSCRIBED, one, actor)])
        self._known[one.id] = one

    async def remove(self, one: Subscription, *, actor: str) -> None:
        """With the news that were held back for it; what is being sent is given up."""
        now = self._server.clock.now()
        news, sent = tables.news, tables.delivery
        given_up = {"state": State.GAVE_UP.value, "ended_at": now, "error": "the subscription was removed"}

        def run(connection: Connection) -> bool:
            connection.execute(delete(_table).where(_table.c.id == one.id))
            connection.execute(delete(news).where(news.c.channel == one.id, tables.NOT_CARRIED))
            connection.execute(update(sent).where(sent.c.channel == one.id, tables.NOT_ENDED).values(given_up))
            return True

        await self._server.store.transact(run, [self._event(NotifyEvent.UNSUBSCRIBED, one, actor)])
        self._known.pop(one.id, None)

    async def last_seq(self) -> int:
        return await asyncio.to_thread(self._server.store.last_seq)

    # --- rows ---

    def _event(self, kind: NotifyEvent, one: Subscription, actor: str) -> NewEvent:
        tenant = None if one.tenant == EVERYONE else one.tenant
        return NewEvent(self._server.clock.now(), kind, actor, f"{one.target.kind} {one.name}", tenant)

    def _cipher(self) -> Any:
        from cryptography.fernet import Fernet  # heavy: only where somebody subscribes

        return Fernet(base64.urlsafe_b64encode(bytes.fromhex(self._server.derive_secret("notify addresses"))))

    def _row(self, one: Subscription) -> dict[str, Any]:
        plan = one.schedule
        quiet = None if plan.quiet is None else [_clock(part) for part in plan.quiet]
        daily = None if plan.daily is None else _clock(plan.daily)
        schedule = {"zone": plan.zone, "quiet": quiet, "every_s": plan.every_s, "daily": daily}
        return {
            "id": one.id, "tenant": one.tenant, "name": one.name, "kind": one.target.kind.value,
            "address": self._cipher().encrypt(one.target.address.encode()),
            "topics": orjson.dumps(sorted(one.topics)).decode(), "created_at": one.created_at,
            "created_by": one.created_by, "from_seq": one.from_seq, "jobs": one.jobs, "waits_s": one.waits_s,
            "schedule": orjson.dumps(schedule).decode(),
        }  # fmt: skip

    def _read(self, row: Any) -> Subscription:
        from cryptography.fernet import InvalidToken

        try:
            address = self._cipher().decrypt(row.address).decode()
        except InvalidToken:
            raise Unavailable(
                f"the address of the subscription {row.name} cannot be opened", where="notify",
                hint="the server's key is not the one it was sealed with; put the key of a backup in its place",
            ) from None  # fmt: skip
        plan = orjson.loads(row.schedule)
        quiet = (
            None
            if plan["quiet"] is None
            else (time.fromisoformat(plan["quiet"][0]), time.fromisoformat(plan["quiet"][1]))
        )
        daily = None if plan["daily"] is None else time.fromisoformat(plan["daily"])
        return Subscription(
            row.id, row.tenant, row.name, Target(Kind(row.kind), address),
            frozenset(Topic(one) for one in orjson.loads(row.topics)), row.created_at, row.created_by, row.from_seq,
            row.jobs, row.waits_s, Schedule(plan["zone"], quiet, plan["every_s"], daily),
        )  # fmt: skip


def _clock(at: time) -> str:
    return f"{at:%H:%M}"


def check_topics(topics: frozenset[Topic], waits_s: float | None) -> None:
    """Raises Invalid for topics that cannot be told."""
    if Topic.TEST in topics:
        raise Invalid("`test` is no topic", where="topics", hint="`shoal notify test NAME` sends a message")
    if (Topic.WAITS in topics) != (waits_s is not None):
        raise Invalid(
            "the topic `waits` and the duration need each other", where="waits", hint="--on waits --waits 30m"
        )
