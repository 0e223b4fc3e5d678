"""The outbox: news are in it before anything is sent, and the position in the log of events moves in one transaction
with them. So a server that dies loses none and writes none twice; what it was sending is sent again under its key.

Reads may be made from any thread; writes go through the store's one writer.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Connection, and_, delete, func, insert, or_, select, update

from shoal.notify.live import tables
from shoal.notify.policy.batches import batches
from shoal.notify.policy.retry import Open
from shoal.notify.policy.times import LONGEST_DELAY_S
from shoal.notify.records import Delivery, News, State, Topic
from shoal.store import Store

_news, _delivery = tables.news.c, tables.delivery.c
_READ = 2000
_IDS = 500


class Entry(NamedTuple):
    """News for a channel, and when they are due. `owner` is the tenant whose channel it is."""

    channel: str
    owner: str
    news: News
    due_at: float

    @property
    def id(self) -> str:
        """The same whenever the same is told to the same."""
        return _key(self.channel, self.news.about)


@dataclass(frozen=True, slots=True)
class Counts:
    """Of one tenant's people, or all."""

    held_back: int
    waiting: int
    gave_up: int


def _key(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


class Outbox:
    def __init__(self, store: Store) -> None:
        self._store = store

    # --- news come in ---

    def position(self) -> int | None:
        """The last event whose news are here; None: none ever was looked at."""
        found = self._store.rows(select(tables.position.c.seq))
        return int(found[0][0]) if found else None

    async def put(self, entries: Sequence[Entry], seq: int | None = None) -> None:
        """Keep news, and with `seq` that the events up to there are told. News that are here stay as they are."""
        rows = {one.id: _row(one) for one in entries}

        def run(connection: Connection) -> bool:
            if seq is not None:
                _move(connection, seq)
            known = _known(connection, rows)
            if new := [row for id_, row in rows.items() if id_ not in known]:
                connection.execute(insert(tables.news), new)
            return True

        await self._store.transact(run)

    async def put_delivery(self, entry: Entry, now: float) -> str:
        """News that are sent by themselves and at once; the delivery's id."""
        made = _made([entry.id], entry.channel, entry.owner, now)

        def run(connection: Connection) -> bool:
            connection.execute(insert(tables.news), [{**_row(entry), "delivery_id": made["id"]}])
            connection.execute(insert(tables.delivery), [made])
            return True

        await self._store.transact(run)
        return str(made["id"])

    # --- deliveries are made of them ---

    def due(self) -> dict[str, float]:
        """When the first news of each channel are due that no delivery carries yet."""
        query = select(_news.channel, func.min(_news.due_at)).where(tables.NOT_CARRIED).group_by(_news.channel)
        return {channel: float(at) for channel, at in self._store.rows(query)}

    async def form(self, channels: Collection[str], now: float, digests: Collection[str]) -> int:
        """Make deliveries of the news that are due: each of its own, but those of `digests` and a flood together. A
        channel has few open ones. Returns how many were made."""
        made: list[dict[str, Any]] = []

        def run(connection: Connection) -> bool:
            made.clear()
            for channel in channels:
                is_open = and_(_delivery.channel == channel, tables.NOT_ENDED)
                count = select(func.count()).select_from(tables.delivery).where(is_open)
                waiting = (
                    select(_news.id, _news.owner).where(_news.channel == channel, tables.NOT_CARRIED, _is_due(now))
                    .order_by(_news.due_at, _news.at, _news.id).limit(_READ)
                )  # fmt: skip
                found = {row[0]: row[1] for row in connection.execute(waiting)}
                open_now = int(connection.execute(count).scalar_one())
                for batch in batches(list(found), open_now, digest=channel in digests):
                    one = _made(batch, channel, found[batch[0]], now)
                    carried = update(tables.news).where(_news.id.in_(batch))
                    connection.execute(carried.values(delivery_id=one["id"]))
                    made.append(one)
            if made:
                connection.execute(insert(tables.delivery), made)
            return True

        await self._store.transact(run)
        return len(made)

    # --- deliveries are tried ---

    def waiting(self) -> list[Open]:
        """What is still to be sent; each channel has few."""
        query = select(_delivery.id, _delivery.channel, _delivery.owner, _delivery.next_at).where(tables.NOT_ENDED)
        return [Open(*row) for row in self._store.rows(query.order_by(_delivery.next_at).limit(_READ))]

    def delivery(self, delivery_id: str) -> Delivery | None:
        """With its news."""
        return next(iter(self._deliveries(select(tables.delivery).where(_delivery.id == delivery_id))), None)

    async def tried(
        self, delivery_id: str, state: State, *, attempts: int, next_at: float, error: str, ended_at: float | None
    ) -> None:  # fmt: skip
        """How a try ended; nothing where the delivery is over already."""
        values = {
            "state": state.value, "attempts": attempts, "next_at": next_at, "error": error, "ended_at": ended_at,
        }  # fmt: skip
        change = update(tables.delivery).where(_delivery.id == delivery_id, tables.NOT_ENDED).values(values)

        def run(connection: Connection) -> bool:
            connection.execute(change)
            return True

        await self._store.transact(run)

    async def again(self, delivery_id: str, now: float) -> bool:
        """Try one anew that was given up, or at once what waits; False where it is sent or unknown."""
        fresh = {"state": State.WAITING.value, "attempts": 0, "next_at": now, "ended_at": None}
        change = update(tables.delivery).where(_delivery.id == delivery_id, _delivery.state != State.SENT.value)

        def run(connection: Connection) -> bool:
            return connection.execute(change.values(fresh)).rowcount > 0

        return await self._store.transact(run)

    # --- looked at, and forgotten ---

    def deliveries(self, owner: str | None, state: State | None = None, limit: int = 100) -> list[Delivery]:
        """The newest first; of one tenant, or all."""
        query = select(tables.delivery).order_by(_delivery.created_at.desc(), _delivery.id).limit(limit)
        if owner is not None:
            query = query.where(_delivery.owner == owner)
        if state is not None:
            query = query.where(_delivery.state == state.value)
        return self._deliveries(query)

    def counts(self) -> Mapping[str, Counts]:
        """By tenant."""
        held = select(_news.owner, func.count()).where(tables.NOT_CARRIED).group_by(_news.owner)
        states = select(_delivery.owner, _delivery.state, func.count()).group_by(_delivery.owner, _delivery.state)
        found: dict[str, dict[str, int]] = defaultdict(dict)
        for tenant, number in self._store.rows(held):
            found[tenant]["held"] = number
        for tenant, state, number in self._store.rows(states):
            found[tenant][state] = number
        return {
            tenant: Counts(one.get("held", 0), one.get(State.WAITING, 0), one.get(State.GAVE_UP, 0))
            for tenant, one in found.items()
        }  # fmt: skip

    def old(self, before: float) -> list[tuple[str, str | None]]:
        """News, with the jobs that they are of, whose deliveries ended before then."""
        query = select(_news.id, _news.job_id).join(tables.delivery, _delivery.id == _news.delivery_id)
        found = self._store.rows(query.where(_delivery.ended_at < before).limit(_READ))
        return [(row[0], row[1]) for row in found]

    async def forget(self, news_ids: Sequence[str], before: float) -> None:
        """Remove these news, and deliveries that ended before then and have no news left."""
        left = select(_news.id).where(_news.delivery_id == _delivery.id).exists()
        empty = delete(tables.delivery).where(_delivery.ended_at < before, ~left)

        def run(connection: Connection) -> bool:
            for start in range(0, len(news_ids), _IDS):
                connection.execute(delete(tables.news).where(_news.id.in_(news_ids[start : start + _IDS])))
            connection.execute(empty)
            return True

        await self._store.transact(run)

    # --- marks ---

    def marks(self) -> dict[str, float]:
        """Times that are remembered, by name."""
        return {name: float(at) for name, at in self._store.rows(select(tables.mark.c.name, tables.mark.c.at))}

    async def mark(self, new: Mapping[str, float], over: Iterable[str]) -> None:
        """Remember these times, and forget some."""
        rows = [{"name": name, "at": at} for name, at in new.items()]
        gone = list(over)

        def run(connection: Connection) -> bool:
            for start in range(0, len(gone), _IDS):
                connection.execute(delete(tables.mark).where(tables.mark.c.name.in_(gone[start : start + _IDS])))
            if rows:
                connection.execute(insert(tables.mark), rows)
            return True

        await self._store.transact(run)

    # ---

    def _deliveries(self, query: Any) -> list[Delivery]:
        rows = self._store.rows(query)
        carried: dict[str, list[News]] = defaultdict(list)
        ids = [row[0] for row in rows]
        for start in range(0, len(ids), _IDS):
            wanted = _news.delivery_id.in_(ids[start : start + _IDS])
            for row in self._store.rows(select(tables.news).where(wanted).order_by(_news.at, _news.id)):
                carried[row.delivery_id].append(
                    News(
                        Topic(row.topic), row.tenant, row.at, row.about, row.title, row.job_id, orjson.loads(row.facts)
                    )
                )
        return [
            Delivery(
                row.id, row.channel, row.owner, row.created_at, State(row.state), row.attempts, row.next_at,
                row.ended_at, row.error, tuple(carried[row.id]),
            )
            for row in rows
        ]  # fmt: skip


def _is_due(now: float) -> Any:
    return or_(_news.due_at <= now, _news.due_at > now + LONGEST_DELAY_S)


def _made(ids: Sequence[str], channel: str, owner: str, now: float) -> dict[str, Any]:
    return {
        "id": _key(*ids), "channel": channel, "owner": owner, "created_at": now, "state": State.WAITING.value,
        "attempts": 0, "next_at": now, "ended_at": None, "error": "",
    }  # fmt: skip


def _row(entry: Entry) -> dict[str, Any]:
    one = entry.news
    return {
        "id": entry.id, "channel": entry.channel, "owner": entry.owner, "tenant": one.tenant,
        "topic": one.topic.value, "at": one.at, "about": one.about, "title": one.title, "job_id": one.job_id,
        "facts": orjson.dumps(one.facts).decode(), "due_at": entry.due_at, "delivery_id": None,
    }  # fmt: skip


def _move(connection: Connection, seq: int) -> None:
    row = tables.position
    if not connection.execute(update(row).where(row.c.id == 1).values(seq=seq)).rowcount:
        connection.execute(insert(row), [{"id": 1, "seq": seq}])


def _known(connection: Connection, rows: Mapping[str, Any]) -> set[str]:
    ids, found = list(rows), set[str]()
    for start in range(0, len(ids), _IDS):
        query = select(_news.id).where(_news.id.in_(ids[start : start + _IDS]))
        found |= {row[0] for row in connection.execute(query)}
    return found
