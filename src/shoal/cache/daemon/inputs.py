"""The inputs of jobs: shown as a folder of links, and fetched before and while they are read."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

from shoal.cache.daemon.fills import Fetch
from shoal.cache.daemon.mounts import start_mount
from shoal.cache.daemon.sets import order_of
from shoal.cache.sources import Source, Uncacheable, key_of, source_of
from shoal.cache.store import ObjectInfo
from shoal.core import Forbidden, NotFound, ShoalError

if TYPE_CHECKING:
    from shoal.cache.daemon.cache import Caller, SharedCache

LISTED = 1_000_000
"""Objects of a data set that are listed when it is declared, warmed or shown."""

_LISTED_S = 600.0
"""A set that is prefetched is listed again after this: it may have new objects."""

_THREADS = 8


class Inputs:
    """`show` gives a job its folder; `prefetch` brings what waiting jobs will read."""

    def __init__(self, cache: SharedCache) -> None:
        self._cache = cache
        self._wanted: dict[tuple[str, str], Source] = {}
        self._listed: dict[str, tuple[float, list[tuple[str, int]]]] = {}
        self._mutex = threading.Lock()
        self._closed = threading.Event()
        self._prefetching: threading.Thread | None = None

    def close(self) -> None:
        self._closed.set()

    # --- shown to a job ---

    def show(self, reader: Caller, url: str, options: Mapping[str, Any], view: str, token: str) -> dict[str, Any]:
        """Where the job finds the objects below the URL: those that are there are files of the fast disk, and what is
        wanted of the others is on its way. `files` is None where it has to copy: as the daemon's own user root it could
        change what is cached. Returns once the first part is there, or after `wait_s`."""
        if reader.uid == 0:
            return {"files": None}
        cache, source = self._cache, source_of(url, options, reader.uid)
        cache.check_reader(reader, source)
        name = source.url
        objects = self.listed(source)
        single = len(objects) == 1 and not objects[0][0]
        names = {key_of(child.url): below or name.rpartition("/")[2] for below, child, _ in objects}
        made = cache.store.views.make(reader.tenant, view, name, reader.uid, names)
        total = sum(size for _, _, size in objects)
        mounts = not made.mounted and not single and total >= cache.settings.mount_bytes
        if mounts and start_mount(made, cache.store.root, url, options, reader.uid, token):
            cache.store.views.mount(made)
        with self._mutex:
            self._wanted[reader.tenant, name] = source
        self._bring_first(reader.tenant, name, objects)
        return {"files": str(made.files), "names": str(made.folder / "names"), "single": single,
                "mounted": made.mounted}  # fmt: skip

    def _bring_first(self, tenant: str, name: str, objects: list[tuple[str, Source, int]]) -> None:
        """As much as the job reads until it would have waited `wait_s`, or all that is wanted; the rest follows."""
        cache = self._cache
        rate = cache.planner.declared(tenant, name)
        ends = time.monotonic() + cache.settings.wait_s
        pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="input")
        left: set[Future[int]] = {pool.submit(self._bring, tenant, name, child) for _, child, _ in objects}
        arrived = 0
        while left and arrived < (rate or float("inf")) * cache.settings.wait_s and not self._closed.is_set():
            done, left = wait(left, max(0.0, ends - time.monotonic()), return_when=FIRST_COMPLETED)
            if not done:
                break
            arrived += sum(one.result() for one in done)
        pool.shutdown(wait=False)

    def _bring(self, tenant: str, name: str, source: Source) -> int:
        """See that what is wanted of an object is there, and linked for the tenant: the bytes of it."""
        if self._closed.is_set():
            return 0
        try:
            return sum(future.result() or count for future, count in self.fetches(tenant, name, source))
        except (ShoalError, OSError, CancelledError):  # the reader is told, when it reads
            return 0

    # --- listed and fetched ---

    def listed(self, source: Source) -> list[tuple[str, Source, int]]:
        """(name below, object, bytes) of all objects of a set; from now on they are of this one. Raises NotFound."""
        name, planner = source.url, self._cache.planner
        found: list[tuple[str, Source, int]] = []
        for below, size in islice(_children(source), LISTED):
            if not found:  # now that the tenant's credentials were good for it
                planner.mark_declared(name)
            child = source.child(below) if below else source
            if not planner.see(name, key_of(child.url), size):
                break
            found.append((below, child, size))
        if not found:
            raise NotFound("there is nothing below this URL", where=name)
        return found

    def fetches(self, tenant: str, name: str, source: Source) -> Iterator[tuple[Future[None], int]]:
        """Of the wanted chunks of one object: those that are on their way, with their bytes, in their order. What is
        there already is linked. Raises what the source says to the tenant, and Overloaded."""
        cache = self._cache
        version = cache.grants.check(tenant, source)
        info = ObjectInfo(key_of(source.url), source.url, name, version.tag, version.size)
        held = cache.store.find(info.key)
        current = held is not None and (held.info.tag, held.info.size) == (info.tag, info.size)
        if current:
            cache.store.link(tenant, info.key)
        for number in range(max(1, -(-info.size // cache.store.chunk_bytes))):
            count = min(cache.store.chunk_bytes, info.size - number * cache.store.chunk_bytes)
            if current and held is not None and number in held.chunks:
                done = Future[None]()
                done.set_result(None)
                yield done, count
            elif cache.wanted(info, number):
                fetch = Fetch(info, number, source, version)
                yield cache.fills.fetch(fetch, cache.planner.order(name) + order_of(info.key, number)), count

    # --- before they are read ---

    def expect(self, wanted: Mapping[tuple[str, str], Source | None]) -> None:
        """The inputs, by tenant and set, of the jobs that wait and run; those of others are fetched no more. None: with
        the credentials that the tenant showed before."""
        with self._mutex:
            known = {pair: found for pair, given in wanted.items() if (found := given or self._wanted.get(pair))}
            self._wanted = known
            self._listed = {name: one for name, one in self._listed.items() if any(name == pair[1] for pair in known)}

    def prefetch(self) -> None:
        """After a round: start to fetch what it wants of these inputs, unless that is still under way."""
        if self._prefetching is None or not self._prefetching.is_alive():
            self._prefetching = threading.Thread(target=self._prefetch, daemon=True, name="prefetch")
            self._prefetching.start()

    def _prefetch(self) -> None:
        with self._mutex:
            wanted = list(self._wanted.items())
        for (tenant, name), source in wanted:
            with suppress(ShoalError, OSError):
                at, objects = self._listed.get(name, (float("-inf"), []))
                if time.monotonic() - at > _LISTED_S:
                    # How much of it is wanted is decided in the next round.
                    self._listed[name] = time.monotonic(), [(below, size) for below, _, size in self.listed(source)]
                    continue
                for below, _ in objects:
                    child = source.child(below) if below else source
                    if self._closed.is_set():
                        return
                    if self._cache.missing(key_of(child.url)):
                        with suppress(Forbidden, NotFound, Uncacheable):  # of this object alone
                            list(self.fetches(tenant, name, child))


def _children(source: Source) -> Iterator[tuple[str, int]]:
    """The objects below, or the source itself where it is one."""
    try:
        return iter([("", source.head().size)])
    except (ShoalError, OSError):
        return source.children()
