"""A provider that rents out nothing: prices and availability of a history, and instances that are rows of a file.

The file is the truth, and outlives every server; many processes may use it. Time goes by the clock, `speed` times as
fast. An instance of a spot offer is taken when its price passes the most that is paid, or when fewer are there than are
rented, with a notice before. The longest rented goes last.
"""

from __future__ import annotations

import asyncio
import math
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from shoal.core import Clock, SystemClock
from shoal.market.history import History, Track
from shoal.market.live.provider import Instance, Listing, NotAvailable, Notice, Order, Quote
from shoal.market.live.records import LEAST_S
from shoal.market.live.settings import SimulatedSection

_TABLES = """
CREATE TABLE IF NOT EXISTS origin (clock REAL NOT NULL, shown REAL NOT NULL, settled REAL NOT NULL);
CREATE TABLE IF NOT EXISTS instance (
  number INTEGER PRIMARY KEY, token TEXT NOT NULL UNIQUE, tenant TEXT NOT NULL, node TEXT NOT NULL,
  offer TEXT NOT NULL, most REAL NOT NULL, launched_at REAL NOT NULL, until REAL NOT NULL, taken_at REAL, ended_at REAL
);
"""
_LISTED_S = 3600.0
"""An instance that ended is listed for so long, as with AWS."""


@dataclass
class SimulatedProvider:
    """See `shoal.market.live.provider.Provider`."""

    path: Path
    listings: Sequence[Listing]
    history: History = field(default_factory=lambda: History({}))
    options: SimulatedSection = field(default_factory=lambda: SimulatedSection.model_validate({}))
    clock: Clock = field(default_factory=SystemClock)
    name: str = "simulated"

    def __post_init__(self) -> None:
        self._listing = {listing.offer.name: listing for listing in self.listings}
        self._origin = self._begin()

    def now(self) -> float:
        clock, shown = self._origin
        return shown + (self.clock.now() - clock) * self.options.speed

    async def open(self) -> None:
        """Its file was made when it was."""

    async def close(self) -> None:
        """Nothing is held open."""

    async def quotes(self) -> Sequence[Quote]:
        await self._wait()
        now, found = self.now(), []
        for one in self.listings:
            usd = self._price(one, now)
            there = not one.offer.spot or (usd <= one.usd_per_hour and self._count(one, now) > 0)
            found.append(Quote(one.offer, usd, there))
        return found

    async def launch(self, order: Order) -> Instance:
        await self._wait()
        found = self._launch(order)
        await self._wait()
        return found

    async def extend(self, instance_id: str, until: float) -> None:
        await self._wait()
        with self._settled() as database:
            database.execute(
                "UPDATE instance SET until = max(until, ?) WHERE number = ? AND ended_at IS NULL",
                (until, _number(instance_id)),
            )
        await self._wait()

    async def terminate(self, instance_id: str) -> None:
        await self._wait()
        with self._settled() as database:
            database.execute(
                "UPDATE instance SET ended_at = ? WHERE number = ? AND ended_at IS NULL",
                (self.now(), _number(instance_id)),
            )
        await self._wait()

    async def instances(self) -> Sequence[Instance]:
        await self._wait()
        with self._settled() as database:
            return [self._shown(row) for row in _rows(database, "ended_at IS NULL OR ended_at > ?",
                                                      self.now() - _LISTED_S)]  # fmt: skip

    async def notices(self) -> Sequence[Notice]:
        await self._wait()
        with self._settled() as database:
            return [Notice(f"sim-{row['number']}", float(row["taken_at"]))
                    for row in _rows(database, "ended_at IS NULL AND taken_at IS NOT NULL")]  # fmt: skip

    def bills(self) -> Mapping[str, float]:
        """Dollars by tenant, of all instances that there ever were: what a test holds the ledger against."""
        total: dict[str, float] = {}
        with self._settled() as database:
            for row in _rows(database, "1"):
                total[row["tenant"]] = total.get(row["tenant"], 0.0) + self._usd(row)
        return total

    def everything(self) -> Sequence[tuple[Instance, str]]:
        """All instances that there ever were, with their tenants."""
        with self._settled() as database:
            return [(self._shown(row), str(row["tenant"])) for row in _rows(database, "1")]

    # --- inside ---

    async def _wait(self) -> None:
        if self.options.answer_s:
            await asyncio.sleep(self.options.answer_s / 2)

    def _launch(self, order: Order) -> Instance:
        listing = self._listing.get(order.offer.name)
        with self._settled() as database:
            now = self.now()
            known = _rows(database, "token = ?", order.token)
            if known:
                return self._shown(known[0])
            if listing is None:
                raise NotAvailable(f"there is no offer {order.offer.name}")
            if order.offer.spot and self._price(listing, now) > order.usd_per_hour:
                raise NotAvailable(f"{order.offer.name} costs more than {order.usd_per_hour:g} dollars an hour")
            rented = len(_rows(database, "ended_at IS NULL AND offer = ?", order.offer.name))
            if self._count(listing, now) <= rented:
                raise NotAvailable(f"no capacity of {order.offer.name}")
            database.execute(
                "INSERT INTO instance (token, tenant, node, offer, most, launched_at, until) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (order.token, order.tenant, order.node, order.offer.name, order.usd_per_hour, now, order.until),
            )
            return self._shown(_rows(database, "token = ?", order.token)[0])

    def _begin(self) -> tuple[float, float]:
        """Where the clock and the time shown stood when the file was made."""
        firsts = [float(track.prices.at_s[0]) for track in self.history.tracks.values() if track.prices is not None]
        firsts += [one.availability.start_s for one in self.history.tracks.values() if one.availability is not None]
        clock = self.clock.now()
        start = self.options.start
        if start is None:
            start = max(firsts) if firsts else clock
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._database() as database:
            for statement in _TABLES.split(";"):
                database.execute(statement)
            database.execute(
                "INSERT INTO origin SELECT ?, ?, ? WHERE NOT EXISTS (SELECT 1 FROM origin)", (clock, start, start)
            )
            row = database.execute("SELECT clock, shown FROM origin").fetchone()
        return float(row[0]), float(row[1])

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path, timeout=30, isolation_level=None)) as database:
            database.row_factory = sqlite3.Row
            database.execute("PRAGMA synchronous=OFF")  # what it stands for would outlive a power cut by itself
            database.execute("BEGIN IMMEDIATE")
            yield database
            database.execute("COMMIT")

    @contextmanager
    def _settled(self) -> Iterator[sqlite3.Connection]:
        """The file as it is now: what happened since somebody looked has happened."""
        with self._database() as database:
            now = self.now()
            before = float(database.execute("SELECT settled FROM origin").fetchone()[0])
            if now > before:
                self._settle(database, before, now)
                database.execute("UPDATE origin SET settled = ?", (now,))
            yield database

    def _settle(self, database: sqlite3.Connection, before: float, now: float) -> None:
        for name, listing in self._listing.items():
            if not listing.offer.spot:
                continue
            alive = _rows(database, "ended_at IS NULL AND taken_at IS NULL AND offer = ? ORDER BY number", name)
            for place, row in enumerate(alive):
                lost = self._lost(listing, max(before, row["launched_at"]), now, row["most"], place)
                if lost is not None:
                    database.execute(
                        "UPDATE instance SET taken_at = ? WHERE number = ?",
                        (lost + self.options.notice, row["number"]),
                    )
        database.execute(
            "UPDATE instance SET ended_at = min(until, coalesce(taken_at, until)) "
            "WHERE ended_at IS NULL AND min(until, coalesce(taken_at, until)) <= ?",
            (now,),
        )

    def _track(self, listing: Listing) -> Track:
        return self.history.tracks.get(listing.offer, Track())

    def _price(self, listing: Listing, at: float) -> float:
        prices = self._track(listing).prices
        found = None if prices is None else prices.at(at)
        return listing.usd_per_hour if found is None else found

    def _count(self, listing: Listing, at: float) -> int:
        had = self._track(listing).availability
        if had is None or not listing.offer.spot:
            return 1 << 30
        which = math.floor((at - had.start_s) / had.gap_s)
        return int(had.counts[which]) if 0 <= which < len(had.counts) else 0

    def _lost(self, listing: Listing, before: float, now: float, most: float, place: int) -> float | None:
        """When, between two moments, the market took the instance that is the `place`th of its offer."""
        track, found = self._track(listing), []
        if track.prices is not None:
            rose = track.prices.at_s[
                (track.prices.at_s > before) & (track.prices.at_s <= now) & (track.prices.usd > most)
            ]
            found += [float(rose[0])] if len(rose) else []
        if track.availability is not None:
            had = track.availability
            first = math.floor((before - had.start_s) / had.gap_s) + 1
            last = math.floor((now - had.start_s) / had.gap_s)
            short = np.flatnonzero(had.counts[max(first, 0) : max(last + 1, 0)] <= place)
            found += [had.start_s + (max(first, 0) + int(short[0])) * had.gap_s] if len(short) else []
        return min(found, default=None)

    def _usd(self, row: Mapping[str, Any]) -> float:
        """The price of each moment, and never more than the most that was agreed; a minute at least."""
        begin = float(row["launched_at"])
        end = max(begin + LEAST_S, self.now() if row["ended_at"] is None else float(row["ended_at"]))
        listing = self._listing.get(row["offer"])
        prices = None if listing is None else self._track(listing).prices
        if prices is None:
            return float(row["most"]) * (end - begin) / 3600
        inside = [float(at) for at in prices.at_s if begin < at < end]
        edges = [begin, *inside, end]
        return sum(
            min(float(row["most"]), prices.at(low) or float(row["most"])) * (high - low) / 3600
            for low, high in pairwise(edges)
        )

    def _shown(self, row: Mapping[str, Any]) -> Instance:
        return Instance(
            f"sim-{row['number']}", row["token"], row["launched_at"], row["until"],
            self.now() >= row["launched_at"] + self.options.launch, row["ended_at"], self._usd(row),
        )  # fmt: skip


def _rows(database: sqlite3.Connection, where: str, *values: object) -> list[Any]:
    return list(database.execute(f"SELECT * FROM instance WHERE {where}", values))  # noqa: S608 - of this file only


def _number(instance_id: str) -> int:
    return int(instance_id.removeprefix("sim-"))
