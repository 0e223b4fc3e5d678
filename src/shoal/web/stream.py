"""The stream that keeps open pages live: committed events, batched once for all pages of a tenant.

A page that is open costs a submission nothing but an entry of a list. Batches are made at most every tenth of a
second, less often the more pages there are. Their text is made once for each tenant. Each page has a bounded queue: one
that reads too slowly is told to load everything anew. A page that comes back after a cut gets what it missed, as far as
that is still in memory.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from shoal.contract.records import Event
from shoal.core import Overloaded

REMEMBERED = 4096
"""Events that a page may have missed, and still goes on without loading everything anew."""
NAMED = 50
"""Events of one batch that are named; the others are counted."""
QUEUED = 16
"""Batches that a page may be behind."""
MOST = 4096
"""Open pages of all tokens."""
_RETRY_S = 5.0
_LEAST_S, _MOST_S, _OF_EACH_S = 0.1, 1.0, 0.005
HEARTBEAT = b": still here\n\n"


class Entry(NamedTuple):
    """What a page is told of one event."""

    seq: int
    at: float
    kind: str
    tenant: str | None
    job_id: str | None
    owner_id: str | None
    new_state: str | None


def batch_every_s(pages: int) -> float:
    """How often batches are made for this number of open pages."""
    return min(_MOST_S, max(_LEAST_S, pages * _OF_EACH_S))


def encode(name: str, seq: int | None, data: Mapping[str, Any]) -> bytes:
    """One server-sent event."""
    place = b"" if seq is None else b"id: %d\n" % seq
    return b"%bevent: %b\ndata: %b\n\n" % (place, name.encode(), orjson.dumps(data))


def changes(entries: Sequence[Entry], after: int, seq: int, now: float) -> bytes:
    """One batch, oldest event first."""
    named = entries[-NAMED:]
    return encode("changes", seq, {
        "after": after, "seq": seq, "now": now, "dropped": len(entries) - len(named),
        "kinds": Counter(str(one.kind) for one in entries), "events": [one._asdict() for one in named],
    })  # fmt: skip


class Tab:
    """One open page."""

    def __init__(self, tenant: str | None, token_id: str, session: str | None) -> None:
        self.tenant, self.token_id, self.session = tenant, token_id, session
        self.over = False
        self._waiting: deque[bytes] = deque()
        self._some = asyncio.Event()

    @property
    def idle(self) -> bool:
        return not self._waiting

    def put(self, text: bytes, instead: Callable[[], bytes]) -> None:
        """Give it a batch; one that is too far behind gets `instead` for all that it has not read."""
        if self.over:
            return
        if len(self._waiting) >= QUEUED:
            self._waiting.clear()
            text = instead()
        self._waiting.append(text)
        self._some.set()

    def end(self, last: bytes = b"") -> None:
        """Its stream ends with this."""
        if last and not self.over:
            self._waiting.append(last)
        self.over = True
        self._some.set()

    async def read(self) -> AsyncIterator[bytes]:
        while True:
            while self._waiting:
                text = b"".join(self._waiting)
                self._waiting.clear()
                yield text
            if self.over:
                return
            self._some.clear()
            await self._some.wait()


class Hub:
    """All open pages. On the event loop's thread."""

    def __init__(self, now: Callable[[], float], version: str, *, most_of_one: int) -> None:
        """`now` gives Unix seconds; `most_of_one` bounds the pages of one token."""
        self._now, self._version, self._most_of_one = now, version, most_of_one
        self._tabs: set[Tab] = set()
        self._of_token: Counter[str] = Counter()
        self._recent: deque[Entry] = deque(maxlen=REMEMBERED)
        self._floor = self._newest = self._sent = 0
        self._flushed_at = -_MOST_S
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._tabs)

    def begin(self, seq: int) -> None:
        """The newest event that there is, before the first is added."""
        self._floor = self._newest = self._sent = seq

    def add(self, events: Iterable[Event]) -> None:
        """These are committed."""
        for one in events:
            if len(self._recent) == REMEMBERED:
                self._floor = self._recent[0].seq
            self._recent.append(Entry(one.seq, one.at, one.kind, one.tenant, one.job_id, one.owner_id, one.new_state))
            self._newest = one.seq
        if self._tabs and self._timer is None:
            loop = asyncio.get_running_loop()
            due = self._flushed_at + batch_every_s(len(self._tabs))
            self._timer = loop.call_at(max(due, loop.time()), self._flush)

    def open(self, tenant: str | None, token_id: str, session: str | None, after: int | None) -> Tab:
        """A page that shows this tenant, or all (None). `after` is the last that it knows. Raises Overloaded."""
        if len(self._tabs) >= MOST or self._of_token[token_id] >= self._most_of_one:
            raise Overloaded(
                "too many pages are open", hint="close some; the admin can raise the setting web.streams",
                retry_after_s=_RETRY_S,
            )  # fmt: skip
        tab = Tab(tenant, token_id, session)
        if self._timer is None:  # no batch is due: while no page was open, there was none
            self._sent = self._newest
        # Where a batch is due, this page hears of it with the others.
        seq, now = self._sent, self._now()
        hello = encode("hello", seq, {"seq": seq, "server": self._version, "now": now})
        tab.put(b"retry: 1000\n" + hello, self._reset)
        if after is not None and not self._floor <= after <= self._newest:
            tab.put(self._reset("the server does not remember so far back"), self._reset)
        elif after is not None and (missed := self._between(tenant, after, seq)):
            tab.put(changes(missed, after, seq, now), self._reset)
        if self._closed:
            tab.end()
        self._tabs.add(tab)
        self._of_token[token_id] += 1
        return tab

    def leave(self, tab: Tab) -> None:
        """The page has gone."""
        if tab in self._tabs:
            self._tabs.remove(tab)
            self._of_token[tab.token_id] -= 1
            if not self._of_token[tab.token_id]:
                del self._of_token[tab.token_id]

    def end(self, concerned: Callable[[Tab], bool], why: str) -> None:
        """End the streams of these pages, for good: their browsers do not come back by themselves."""
        for tab in self._tabs:
            if concerned(tab):
                tab.end(encode("bye", None, {"why": why}))

    def beat(self) -> None:
        """Keep silent connections from being given up."""
        for tab in self._tabs:
            if tab.idle:
                tab.put(HEARTBEAT, self._reset)

    def close(self) -> None:
        """The server is about to leave: browsers come back by themselves."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for tab in self._tabs:
            tab.end()

    def _flush(self) -> None:
        self._timer = None
        self._flushed_at = asyncio.get_running_loop().time()
        after, self._sent = self._sent, self._newest
        if after < self._floor:  # more came at once than is remembered
            for tab in self._tabs:
                tab.put(self._reset(), self._reset)
            return
        texts: dict[str | None, bytes | None] = {}
        by_tenant: dict[str | None, list[Entry]] = {}
        every = self._between(None, after, self._sent)
        for one in every:
            by_tenant.setdefault(one.tenant, []).append(one)
        now = self._now()
        for tab in self._tabs:
            if tab.tenant not in texts:
                seen = every if tab.tenant is None else by_tenant.get(tab.tenant, ())
                texts[tab.tenant] = changes(seen, after, self._sent, now) if seen else None
            if (text := texts[tab.tenant]) is not None:
                tab.put(text, self._reset)

    def _between(self, tenant: str | None, after: int, seq: int) -> list[Entry]:
        """Those that this tenant's people may see, oldest first; None: all."""
        found = []
        for one in reversed(self._recent):
            if one.seq <= after:
                break
            if one.seq <= seq and tenant in (None, one.tenant):
                found.append(one)
        found.reverse()
        return found

    def _reset(self, why: str = "too much happened at once") -> bytes:
        return encode("reset", self._sent, {"seq": self._sent, "now": self._now(), "why": why})
