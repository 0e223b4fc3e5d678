"""Grants to read, with an end: a tenant's own credentials are tried on the source, and tried again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from shoal.cache.sources import Source, Uncacheable, Version, key_of
from shoal.core import Forbidden, NotFound, Unavailable

_MOST_LOST = 1000


@dataclass(slots=True)
class Grant:
    """The source with the tenant's credentials, and the version that they could read until `until` (monotonic)."""

    source: Source
    version: Version
    until: float


class Grants:
    """Thread-safe. `withdrawn(tenant, key)` is called when a tenant may read an object no more."""

    def __init__(
        self, recheck_s: float, clock: Callable[[], float], withdrawn: Callable[[str, str], None],
        changed: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.refused = 0
        self.lost: dict[tuple[str, str], str] = {}
        """What the source said, by tenant and URL, of objects that the tenant may read no more: the newest of them."""
        self._recheck_s = recheck_s
        self._clock = clock
        self._withdrawn = withdrawn
        self._changed = changed
        self._grants: dict[tuple[str, str], Grant] = {}
        self._seen: dict[str, float] = {}
        self._mutex = threading.Lock()

    def check(self, tenant: str, source: Source) -> Version:
        """What the tenant may read there now, asked anew unless it was just before. Raises what the source says."""
        key, now = key_of(source.url), self._clock()
        with self._mutex:
            self._seen[tenant] = now
            found = self._grants.get((tenant, key))
            if found is not None and found.until > now and found.source.rights == source.rights:
                return found.version
        return self._ask(tenant, key, source)

    def _ask(self, tenant: str, key: str, source: Source) -> Version:
        now = self._clock()  # before the question: the answer may be as old as that
        try:
            version = source.head()
        except (NotFound, Forbidden, Uncacheable) as error:
            with self._mutex:
                self.refused += isinstance(error, Forbidden)
                known = self._grants.pop((tenant, key), None)
                if known is not None:
                    self._lose(tenant, source.url, error.what)
            if known is not None:
                self._withdrawn(tenant, key)
            raise
        with self._mutex:
            known = self._grants.get((tenant, key))
            self._grants[tenant, key] = Grant(source, version, now + self._recheck_s)
            self.lost.pop((tenant, source.url), None)
        if known is not None and known.version != version:
            self._changed(key)
        return version

    def _lose(self, tenant: str, url: str, why: str) -> None:
        self.lost[tenant, url] = why
        while len(self.lost) > _MOST_LOST:
            del self.lost[next(iter(self.lost))]

    def lost_of(self, part_of: str, tenant: str | None) -> dict[str, str]:
        """Of one tenant or of all, below a set: what the source said, by URL."""
        with self._mutex:
            return {
                url: why for (one, url), why in self.lost.items()
                if tenant in (None, one) and f"{url}/".startswith(f"{part_of}/")
            }  # fmt: skip

    def holders(self, key: str, version: Version) -> list[str]:
        """Tenants that may read this version now."""
        now = self._clock()
        with self._mutex:
            return [
                tenant for (tenant, one), grant in self._grants.items()
                if one == key and grant.version == version and grant.until > now
            ]  # fmt: skip

    def by_key(self) -> dict[str, list[str]]:
        """Tenants by object."""
        found: dict[str, list[str]] = {}
        with self._mutex:
            for tenant, key in self._grants:
                found.setdefault(key, []).append(tenant)
        return found

    def source(self, key: str) -> Source | None:
        """Any tenant's that may read it."""
        with self._mutex:
            return next((grant.source for (_, one), grant in self._grants.items() if one == key), None)

    def due(self, ahead_s: float, most: int) -> list[tuple[str, str, Source]]:
        """Those that end soonest, to be asked again."""
        limit = self._clock() + ahead_s
        with self._mutex:
            soon = [(grant.until, pair, grant.source) for pair, grant in self._grants.items() if grant.until < limit]
        soon.sort(key=lambda one: one[0])
        return [(*pair, source) for _, pair, source in soon[:most]]

    def renew(self, tenant: str, key: str, source: Source, idle_s: float) -> None:
        """Ask again for one; the grant of a tenant that has not been heard of for so long ends. A source that is away
        withdraws nothing: what it would say is not known."""
        with self._mutex:
            idle = self._clock() - self._seen.get(tenant, float("-inf")) > idle_s
        if idle:
            self._end(tenant, key)
            return
        try:
            self._ask(tenant, key, source)
        except (NotFound, Forbidden, Uncacheable):
            return
        except Unavailable:
            with self._mutex:
                if (found := self._grants.get((tenant, key))) is not None:
                    found.until = self._clock() + self._recheck_s

    def expire(self) -> None:
        """What could not be asked again in time ends."""
        now = self._clock()
        with self._mutex:
            over = [pair for pair, grant in self._grants.items() if grant.until <= now]
        for tenant, key in over:
            self._end(tenant, key)

    def heard(self, tenant: str) -> None:
        with self._mutex:
            self._seen[tenant] = self._clock()

    def forget(self, tenant: str) -> None:
        """All that the tenant may read ends."""
        with self._mutex:
            keys = [key for one, key in self._grants if one == tenant]
        for key in keys:
            self._end(tenant, key)

    def _end(self, tenant: str, key: str) -> None:
        with self._mutex:
            found = self._grants.pop((tenant, key), None)
        if found is not None:
            self._withdrawn(tenant, key)
