"""Open sessions: what people started, by the events that say so, and how each was at the last look."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from shoal.contract.records import Event
from shoal.session.live.asking import State
from shoal.session.live.commands import MAIN
from shoal.session.live.events import SessionEvent

Key = tuple[str, int, str]
"""Job, rank, session."""


@dataclass(frozen=True, slots=True)
class Open:
    """A session. `who` started it, or attached to it last where it is the job's own terminal; `state` was so at
    `looked_at`."""

    job: str
    rank: int
    id: str
    tenant: str
    attempt: int
    who: str
    since: float
    program: str = ""
    state: State | None = None
    looked_at: float = 0.0

    @property
    def key(self) -> Key:
        return self.job, self.rank, self.id


class Book:
    """Kept in memory: the events are on disk, and a server that starts reads those of the jobs that run."""

    def __init__(self) -> None:
        self._open: dict[Key, Open] = {}

    def __iter__(self) -> Iterator[Open]:
        return iter(tuple(self._open.values()))

    def __len__(self) -> int:
        return len(self._open)

    def get(self, key: Key) -> Open | None:
        return self._open.get(key)

    def read(self, events: Iterable[Event]) -> None:
        for event in events:
            if event.kind not in (SessionEvent.EXEC, SessionEvent.ATTACHED) or event.job_id is None:
                continue
            rank, session = int(event.data.get("rank", 0)), str(event.data.get("session", ""))
            key = (event.job_id, rank, session)
            if event.kind == SessionEvent.EXEC:
                self._open[key] = Open(
                    event.job_id, rank, session, event.tenant or "", event.attempt or 0, event.actor, event.at,
                    str(event.data.get("program", "")),
                )  # fmt: skip
            elif session == MAIN:
                before = self._open.get(key)
                made = Open(event.job_id, rank, MAIN, event.tenant or "", event.attempt or 0, event.actor, event.at)
                self._open[key] = made if before is None else replace(before, who=event.actor)

    def looked(self, key: Key, state: State | None, at: float) -> None:
        """`state` None: it did not answer."""
        found = self._open.get(key)
        if found is not None:
            self._open[key] = replace(found, state=state, looked_at=at)

    def closed(self, key: Key) -> None:
        self._open.pop(key, None)

    def over(self, job: str) -> None:
        for key in [key for key in self._open if key[0] == job]:
            del self._open[key]
