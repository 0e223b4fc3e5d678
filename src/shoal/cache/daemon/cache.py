"""The cache of one node: rights, contents, fetches and decisions together, without the socket."""

from __future__ import annotations

import math
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from shoal.cache.daemon.fills import NOW, Fetch, Fills, Pace
from shoal.cache.daemon.grants import Grants
from shoal.cache.daemon.inputs import Inputs
from shoal.cache.daemon.planner import Planner, Planning
from shoal.cache.daemon.waits import Waits
from shoal.cache.sources import Source, Uncacheable, Version, key_of, source_of
from shoal.cache.store import ObjectInfo, Store
from shoal.core import Conflict, Invalid, NotFound, ShoalError, Unavailable

_FAILURES = (OSError, sqlite3.Error, ShoalError)
_IDLE_S = 600.0
"""A tenant that reads nothing for so long loses its links: they would be asked for at the source for ever."""


LARGE_INPUT = 64 << 20
"""A smaller one is copied sooner than the process of a mount starts, and takes less room than that."""

_ANYBODY = 65534
"""The user as which files are fetched before a tenant's own user asks for them: what it may read, each may."""


@dataclass(frozen=True, slots=True)
class Settings:
    """`recheck_s`: how old may be what a source said of a tenant's rights. `fill_bytes_per_s`: 0 is no limit. `wait_s`:
    for how long a job waits for the first part of an input. What is not there of an input of `mount_bytes` or more is
    shown by FUSE."""

    planning: Planning = field(default_factory=Planning)
    recheck_s: float = 60.0
    fill_threads: int = 4
    fill_bytes_per_s: float = 0.0
    rechecks_per_s: int = 200
    wait_s: float = 30.0
    mount_bytes: float = float("inf")


@dataclass(slots=True)
class Account:
    """The traffic of one tenant since the start, in bytes but for `loads` and `refused`. `hit` is what it read on the
    fast disk, `saved` the same less what was loaded: a load is shared by the tenants that may read it."""

    read: float = 0.0
    hit: float = 0.0
    saved: float = 0.0
    loads: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True)
class Caller:
    """A process that asks: `uid` is its user, as the kernel says. Without `files` it gets no files of this machine: it
    shares the daemon's user, whose rights are not its own, or its sandbox hides them."""

    tenant: str
    uid: int
    files: bool = True


class SharedCache:
    def __init__(self, store: Store, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self.store = store
        self.settings = settings
        self.planner = Planner(settings.planning, store.chunk_bytes, store.limits.bytes, store.limits.files)
        self.grants = Grants(settings.recheck_s, clock, self._withdrawn, self._changed)
        self.fills = Fills(self._fetch, settings.fill_threads)
        self.accounts: dict[str, Account] = {}
        self.broken = ""
        self.waits = Waits(clock)
        self._pace = Pace(settings.fill_bytes_per_s)
        self._fetched_bytes, self._fetched_s = 0.0, 0.0
        self._mutex = threading.Lock()
        self._rechecks = ThreadPoolExecutor(8, thread_name_prefix="recheck")
        self._surplus: list[str] = []
        self.inputs = Inputs(self)
        for held in store.objects():
            self.planner.see(held.info.part_of, held.info.key, held.info.size)

    def close(self) -> None:
        self.inputs.close()
        self.fills.close()
        self._rechecks.shutdown(wait=False, cancel_futures=True)
        self.store.close()

    # --- reading ---

    def open(self, reader: Caller, url: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """What the reader may do: read its link (`held`), or go to the source itself (`through`). Raises what the
        source says to this tenant."""
        source = source_of(url, options, reader.uid)
        version = self._check(reader, source)
        info = self._info(source, version)
        self.planner.see(info.part_of, info.key, info.size)
        held = self.store.find(info.key)
        current = held is not None and (held.info.tag, held.info.size) == (info.tag, info.size)
        if info.size > self.store.chunk_bytes:
            if not version.exact:
                return self._through("its version cannot be checked chunk by chunk", version)
            if not current and not self._wanted_at_all(info):
                return self._through("no part of it is wanted", version)
            if current:
                self.store.link(reader.tenant, info.key)
            return {"outcome": "chunks", "size": info.size, "tag": info.tag}
        if not current:
            why = self._fill(info, 0, source, version)
            if why:
                return self._through(why, version)
        self.store.link(reader.tenant, info.key)
        return {"outcome": "held", "size": info.size}

    def chunk(self, reader: Caller, url: str, options: Mapping[str, Any], number: int, tag: str) -> dict[str, Any]:
        """One chunk of a large object. Raises Conflict where it is of another version by now."""
        source = source_of(url, options, reader.uid)
        version = self._check(reader, source)
        if version.tag != tag:
            raise Conflict("the object changed while it was read", where=url)
        info = self._info(source, version)
        if not 0 <= number * self.store.chunk_bytes < max(info.size, 1):
            raise Invalid(f"there is no chunk {number}", where=url)
        held = self.store.find(info.key)
        if held is None or held.info.tag != info.tag or number not in held.chunks:
            why = self._fill(info, number, source, version)
            if why:
                return self._through(why, version)
        self.store.link(reader.tenant, info.key)
        return {"outcome": "held", "size": info.size}

    def report(self, reader: Caller, reads: Mapping[str, Any]) -> None:
        """What was read since the last report, by key: `hits` how often a whole file was opened, `parts` bytes of large
        objects; and by URL: `bytes` that came from the source."""
        self.grants.heard(reader.tenant)
        account = self._account(reader.tenant)
        self.waits.add(reader.tenant, str(reads.get("job", "")), _amount(reads.get("waited_s", 0.0)))
        saved = [(self.store.find(str(key)), _amount(times), True) for key, times in reads.get("hits", {}).items()]
        saved += [(self.store.find(str(key)), _amount(count), False) for key, count in reads.get("parts", {}).items()]
        for held, amount, whole in saved:
            if held is not None:
                count = amount * held.info.size if whole else amount
                account.read += count
                account.hit += count
                account.saved += count
                self.planner.read(reader.tenant, held.info.part_of, count)
        for url, given in reads.get("bytes", {}).items():
            account.read += _amount(given)
            self.planner.read(reader.tenant, self.planner.set_of(str(url)), _amount(given))

    def observe(self, reads: Iterable[Mapping[str, Any]]) -> None:
        """What jobs read by other ways of sets that are known: demand as well, which one that is cached would serve."""
        for one in reads:
            try:
                source, count = source_of(str(one["url"]), {}, _ANYBODY), _amount(one["bytes"])
            except (ShoalError, ValueError):
                continue
            part_of = self.planner.set_of(source.url)
            if part_of in self.planner.sets:
                self._account(str(one["tenant"])).read += count
                self.planner.read(str(one["tenant"]), part_of, count)

    def _through(self, why: str, version: Version) -> dict[str, Any]:
        """With the version, so that the reader need not ask for it again."""
        return {"outcome": "through", "why": why, "tag": version.tag, "size": version.size, "exact": version.exact}

    def check_reader(self, reader: Caller, source: Source) -> None:
        """Raises Uncacheable for a file that this tenant may not see, or may see for all that the kernel tells."""
        if not reader.files and source.url.startswith("file://"):
            what = "files of the machine are cached for tenants with a user of their own that see them"
            raise Uncacheable(what, where=source.url)

    def _check(self, reader: Caller, source: Source) -> Version:
        self.check_reader(reader, source)
        try:
            return self.grants.check(reader.tenant, source)
        except ShoalError:
            self._account(reader.tenant).refused += 1
            raise

    def _info(self, source: Source, version: Version) -> ObjectInfo:
        url = source.url
        return ObjectInfo(key_of(url), url, self.planner.set_of(url), version.tag, version.size)

    def wanted(self, info: ObjectInfo, number: int) -> bool:
        """Before a round has decided on the set, everything is welcome that fits beside what is there."""
        found = self.planner.sets.get(info.part_of)
        wants = None if found is None else found.wants(info.key, number)
        return self._has_room(info.size) if wants is None else wants

    def _wanted_at_all(self, info: ObjectInfo) -> bool:
        count = -(-info.size // self.store.chunk_bytes)
        return any(self.wanted(info, number) for number in range(min(count, 10_000)))

    def _has_room(self, count: int) -> bool:
        return self.store.usage().bytes + count <= self.store.limits.bytes

    def _fill(self, info: ObjectInfo, number: int, source: Source, version: Version) -> str:
        """Fetch a chunk for a reader who waits. Why it was not, or nothing."""
        if self.broken:
            return self.broken
        if not self.wanted(info, number):
            return "it is not wanted"
        try:
            self.fills.fetch(Fetch(info, number, source, version), NOW).result()
        except _FAILURES as error:
            return f"it was not fetched: {error}"
        return ""

    # --- fetching ---

    def _fetch(self, fetch: Fetch) -> None:
        info, number = fetch.info, fetch.number
        held = self.store.find(info.key)
        if held is not None and held.info.tag == info.tag and number in held.chunks:
            return
        began, start = time.monotonic(), number * self.store.chunk_bytes
        count = min(self.store.chunk_bytes, info.size - start)
        try:
            made = self._reserve(count)
            if made is None:
                raise Unavailable("the cache is full")
            with made:
                for part in fetch.source.read(start, count, fetch.version) if count else ():
                    self._pace.wait(len(part))
                    made.write(part)
                made.commit(info, number)
        except (OSError, sqlite3.Error) as error:
            self.broken = f"the disk of the cache failed: {error}"
            raise
        self._fetched_bytes += count
        self._fetched_s += time.monotonic() - began
        tenants = self.grants.holders(info.key, fetch.version)
        for tenant in tenants:
            account = self._account(tenant)
            account.loads += 1
            account.saved -= count / len(tenants)
            self.store.link(tenant, info.key)

    def _reserve(self, count: int) -> Any:
        """Space, by evicting what no set wants where that is needed."""
        while (made := self.store.reserve(count)) is None:
            with self._mutex:
                if not self._surplus:
                    return None
                digest = self._surplus.pop()
            self.store.evict(digest)
        return made

    # --- what the sources say ---

    def _withdrawn(self, tenant: str, key: str) -> None:
        with suppress(OSError):
            self.store.unlink(tenant, key)

    def _changed(self, key: str) -> None:
        held = self.store.find(key)
        if held is not None:
            self.planner.lose(held.info.part_of, key)
            self.store.drop(key)

    # --- declared, warmed, pinned ---

    def declare(
        self,
        reader: Caller,
        url: str,
        options: Mapping[str, Any],
        bytes_per_s: float,
        epochs: float | None,
        fetch: bool,
    ) -> dict[str, Any]:
        """A job reads all objects below the URL, or will. `fetch`: fill them without waiting for the first read."""
        source = source_of(url, options, reader.uid)
        name = source.url
        bytes_per_s, epochs = _amount(bytes_per_s), None if epochs is None else _amount(epochs)
        self.check_reader(reader, source)
        if bytes_per_s <= 0:
            self.planner.declare(reader.tenant, name, 0.0, None)
            return {"set": name}
        objects = self.inputs.listed(source)
        self.planner.declare(reader.tenant, name, bytes_per_s, epochs)
        if fetch:
            for _, child, _ in objects:
                with suppress(ShoalError):
                    list(self.inputs.fetches(reader.tenant, name, child))
        return {"set": name, "objects": len(objects), "bytes": sum(size for _, _, size in objects)}

    def missing(self, key: str) -> bool:
        """Whether some of the object is not there, as far as is known."""
        held = self.store.find(key)
        return held is None or len(held.chunks) < -(-held.info.size // self.store.chunk_bytes)

    def declare_all(
        self, demands: list[Mapping[str, Any]], weights: Mapping[str, float], devices: Mapping[str, int]
    ) -> None:
        """Takes in the data sets that the server's jobs read, and the weights and devices of its tenants. A set is
        prefetched where its `options` are credentials or it needs none; else once the tenant itself has shown some.
        A demand that means nothing is left out: it is one tenant's, and the others' count."""
        found: dict[tuple[str, str], tuple[float, float | None]] = {}
        sources: dict[tuple[str, str], Source | None] = {}
        for one in demands:
            try:
                source = source_of(str(one["url"]), one.get("options") or {}, _ANYBODY)
                rate, more = _amount(one["bytes_per_s"]), _amount(one.get("epochs") or 0.0) or None
            except (ShoalError, ValueError):
                continue
            name = source.url
            sources[str(one["tenant"]), name] = source if one.get("prefetch") else None
            before = found.get((str(one["tenant"]), name), (0.0, 0.0))
            both = None if more is None or before[1] is None else before[1] + more
            found[str(one["tenant"]), name] = before[0] + rate, both
        self.planner.weights = {str(name): float(weight) for name, weight in weights.items()}
        self.planner.devices = {str(name): int(number) for name, number in devices.items()}
        self.planner.declare_all(found)
        self.inputs.expect(sources)

    def pin(self, url: str, pinned: bool) -> None:
        """Keep all of a set, whatever a round decides; or no longer."""
        with self.planner.mutex:
            found = self.planner.sets.get(url.rstrip("/"))
            if found is None:
                raise NotFound("the cache knows no such data set", where=url, hint="`shoal cache status` lists them")
            found.pinned = pinned
            if pinned:
                found.cut, found.kept = 1.0, 1.0

    def drop(self, url: str) -> int:
        """Evict all that is held of a set, or of one object. How many objects that were."""
        gone = [held.info.key for held in self.store.objects() if url.rstrip("/") in (held.info.part_of, held.info.url)]
        for key in gone:
            self.store.drop(key)
        return len(gone)

    # --- rounds ---

    def round(self) -> None:
        """Decide, and evict what is wanted no more as soon as something else needs its place."""
        linked = {}
        for view in self.store.views.all():
            linked[view.tenant, view.part_of] = len(view.linked) / max(len(view.names), 1)
            self.grants.heard(view.tenant)  # what is read by links is not reported
        self.planner.round(self.held_by_set(), linked, self.store.usage().dying)
        surplus = []
        for digest, content in self.store.contents().items():
            if not any(self._keeps(key, number) for key, number in content.references):
                surplus.append(digest)
        with self._mutex:
            self._surplus = surplus
        self.inputs.prefetch()

    def _keeps(self, key: str, number: int) -> bool:
        held = self.store.find(key)
        found = None if held is None else self.planner.sets.get(held.info.part_of)
        return found is not None and bool(found.wants(key, number))

    def tick(self, seconds: float = 1.0) -> None:
        """Once a second: rights that end soon are asked for again, what was closed is freed, a disk is tried again."""
        due = self.grants.due(self.settings.recheck_s / 2, int(self.settings.rechecks_per_s * seconds))
        list(self._rechecks.map(lambda one: self.grants.renew(one[0], one[1], one[2], _IDLE_S), due))
        self.grants.expire()
        if self.broken:
            try:
                self.store.recover()
                self.broken = ""
            except (OSError, sqlite3.Error) as error:
                self.broken = f"the disk of the cache failed: {error}"
                return
        self.store.reap()
        self._shrink()

    def _shrink(self) -> None:
        """Down to a limit that was lowered: what no set wants goes first."""
        while self.store.usage().bytes - self.store.usage().dying > self.store.limits.bytes:
            with self._mutex:
                digest = self._surplus.pop() if self._surplus else next(iter(self.store.contents()), None)
            if digest is None:
                return
            self.store.evict(digest)

    # --- told ---

    def _account(self, tenant: str) -> Account:
        return self.accounts.setdefault(tenant, Account())

    def held_by_set(self) -> dict[str, int]:
        contents, found = self.store.contents(), dict[str, int]()
        for held in self.store.objects():
            count = sum(contents[digest].bytes for digest in held.chunks.values() if digest in contents)
            found[held.info.part_of] = found.get(held.info.part_of, 0) + count
        return found

    def held_by_tenant(self) -> dict[str, float]:
        """Bytes; what several use is divided between them."""
        users, contents, found = self.grants.by_key(), self.store.contents(), dict[str, float]()
        for content in contents.values():
            tenants = {tenant for key, _ in content.references for tenant in users.get(key, ())}
            for tenant in tenants:
                found[tenant] = found.get(tenant, 0.0) + content.bytes / len(tenants)
        return found

    def status(self) -> dict[str, Any]:
        usage, limits, held = self.store.usage(), self.store.limits, self.held_by_set()
        by_tenant, last = self.held_by_tenant(), self.planner.last
        with self.planner.mutex:
            sets = [
                {"set": one.url, "objects": len(one.objects), "bytes": sum(one.objects.values()),
                 "held_bytes": held.get(one.url, 0), "wanted": one.kept, "pinned": one.pinned}
                for one in self.planner.sets.values()
            ]  # fmt: skip
        return {
            "root": str(self.store.root), "broken": self.broken or None,
            "limits": {"bytes": limits.bytes, "files": limits.files, "keep_free": limits.keep_free},
            "used": {"bytes": usage.bytes, "files": usage.files, "dying": usage.dying, "filling": usage.filling},
            "tenants": [
                {"tenant": name, "held_bytes": by_tenant.get(name, 0.0), "read_bytes": account.read,
                 "saved_bytes": account.saved, "hit_ratio": account.hit / account.read if account.read else None,
                 "loads": account.loads, "refused": account.refused}
                for name, account in sorted(self.accounts.items())
            ],
            "sets": sorted(sets, key=lambda one: -float(str(one["held_bytes"]))),
            "views": [
                {"tenant": one.tenant, "view": one.name, "set": one.part_of, "objects": len(one.names),
                 "linked": len(one.linked), "mounted": one.mounted}
                for one in self.store.views.all()
            ],
            "waits": self.waits.told(),
            "source_bytes_per_s": self._fetched_bytes / self._fetched_s if self._fetched_s else None,
            "fills_waiting": self.fills.waiting, "evictions": self.store.evictions,
            "decision": {"at": last.at, "gap": last.gap, "seconds": last.seconds, "tenants": last.tenants},
        }  # fmt: skip

    def explain(self, url: str, tenant: str | None) -> dict[str, Any]:
        """With what this tenant, or any, may read no more. Raises NotFound for a set that is not known."""
        name = url.rstrip("/")
        with self.planner.mutex:
            found = self.planner.sets.get(name) or self.planner.sets.get(self.planner.set_of(name))
        if found is None:
            raise NotFound("the cache knows no such data set", where=url, hint="`shoal cache status` lists them")
        reason = self.planner.last.reasons.get(found.url)
        if found.pinned:
            text, code, facts = f"{found.url}: all kept, for it is pinned.", "pinned", dict[str, Any]()
        elif reason is None:
            text, code, facts = f"{found.url}: no round has decided on it yet.", "undecided", {}
        else:
            text, code, facts = reason.text, reason.code, dict(reason.facts)
        lost = self.grants.lost_of(found.url, tenant)
        if lost:
            one, why = next(iter(lost.items()))
            text += f" {len(lost)} of its objects may be read no more, such as {one}: {why}."
        return {
            "lost": lost,
            "set": found.url, "held_bytes": self.held_by_set().get(found.url, 0), "bytes": sum(found.objects.values()),
            "wanted": found.kept, "code": code, "text": text, "facts": facts, "gap": self.planner.last.gap,
        }  # fmt: skip


def _amount(given: object) -> float:
    """A number of bytes or epochs from a reader: an absurd one counts for no more than 1e15. Raises ValueError."""
    found = float(str(given))
    if math.isnan(found):
        raise ValueError("not a number")
    return min(max(found, 0.0), 1e15)
