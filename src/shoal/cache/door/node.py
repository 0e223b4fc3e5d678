"""The cache of this node as a reader's process sees it: links, which need no daemon, and the daemon where it runs."""

from __future__ import annotations

import os
import pwd
import threading
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

from shoal.cache.daemon.protocol import ROOT_VARIABLE, TENANT_VARIABLE, TOKEN_VARIABLE, Connection
from shoal.cache.store import CHUNK_BYTES
from shoal.cache.store.links import folder_name
from shoal.core import Invalid, ShoalError, Unavailable

_REPORT_S = 1.0
_AGAIN_S = 10.0
"""A daemon that was not there is looked for again after this."""

DEFAULT_ROOT = "/var/cache/shoal"


class Node:
    """One for each root and tenant. Used from any thread, and after a fork."""

    def __init__(self, root: str | None = None, tenant: str | None = None, token: str | None = None) -> None:
        self.root = Path(root or os.environ.get(ROOT_VARIABLE) or DEFAULT_ROOT)
        self.tenant = tenant or os.environ.get(TENANT_VARIABLE) or pwd.getpwuid(os.geteuid()).pw_name
        self._token = token or os.environ.get(TOKEN_VARIABLE, "")
        self.links = f"{self.root}/links/{folder_name(self.tenant)}"
        self._local = threading.local()
        self._away_until = 0.0
        self._hits: list[str] = []
        self._parts = defaultdict[str, int](int)
        self._bytes = defaultdict[str, int](int)
        self._job = os.environ.get("SHOAL_JOB_ID", "")
        self._waited_s = 0.0
        self._report_at = 0.0
        self._warned = False
        self._chunk_bytes = CHUNK_BYTES

    def ask(self, do: str, **given: Any) -> Any:
        """None where there is no daemon: the reader goes to the source."""
        found = self._connection()
        if found is None:
            return None
        try:
            return found.ask(do, **given)
        except Unavailable as error:
            if error.where is not None:  # what the source says
                raise
            self._lose(error)
            return None

    @property
    def chunk_bytes(self) -> int:
        """Of the daemon that answered last."""
        return self._chunk_bytes

    def hit(self, key: str) -> None:
        """An object was opened by its link."""
        self._hits.append(key)
        if monotonic() > self._report_at:
            self.report()

    def hit_part(self, key: str, count: int) -> None:
        """Bytes of a large object came from the fast disk."""
        self._parts[key] += count
        if monotonic() > self._report_at:
            self.report()

    def came_through(self, url: str, count: int) -> None:
        """Bytes came from the source."""
        self._bytes[url] += count
        if monotonic() > self._report_at:
            self.report()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """What the reader waits for meanwhile is not on the fast disk."""
        began = monotonic()
        try:
            yield
        finally:
            self._waited_s += monotonic() - began

    def report(self) -> None:
        """What was read since the last report. What a daemon that is away misses is lost."""
        self._report_at = monotonic() + _REPORT_S
        hits, self._hits = Counter(self._hits), []
        parts, self._parts = self._parts, defaultdict(int)
        through, self._bytes = self._bytes, defaultdict(int)
        waited_s, self._waited_s = self._waited_s, 0.0
        if hits or parts or through or waited_s:
            try:
                self.ask("report", hits=hits, parts=parts, bytes=through, job=self._job, waited_s=waited_s)
            except ShoalError:
                return

    def _connection(self) -> Connection | None:
        found: Connection | None = getattr(self._local, "connection", None)
        if found is not None and found.mine:
            return found
        if monotonic() < self._away_until:
            return None
        try:
            self._local.connection = Connection(self.root, self.tenant, self._token)
        except Unavailable as error:
            self._lose(error)
            return None
        made: Connection = self._local.connection
        self._chunk_bytes = int(made.hello["chunk_bytes"])
        self._warned = False
        return made

    def _lose(self, why: Unavailable) -> None:
        """One warning for each time that the daemon goes away."""
        found: Connection | None = getattr(self._local, "connection", None)
        if found is not None:
            found.close()
        self._local.connection = None
        self._away_until = monotonic() + _AGAIN_S
        if not self._warned:
            self._warned = True
            warnings.warn(f"{why}: reading from the source itself", RuntimeWarning, stacklevel=5)


_nodes: dict[tuple[str | None, str | None, str | None, int], Node] = {}


def node(root: str | None, tenant: str | None, token: str | None) -> Node:
    """The same for the same arguments."""
    wanted = root, tenant, token, os.getpid()
    if wanted not in _nodes:
        _nodes[wanted] = Node(root, tenant, token)
    return _nodes[wanted]


def outcome(found: Mapping[str, Any] | None) -> str:
    """`held`, `chunks` or `through`."""
    if found is None:
        return "through"
    told = str(found.get("outcome"))
    if told not in ("held", "chunks", "through"):
        raise Invalid(f"the cache answers {told!r}")
    return told
