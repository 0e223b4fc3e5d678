"""Takes: files of attempts that have ended, and those that running jobs ask for.

A job asks by a file in `FOLDER` of its directory, and finds the answer beside it. Nothing there is trusted.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from shoal.base import beneath
from shoal.base.loops import Turns
from shoal.contract.records import JobRecord, NewEvent
from shoal.extension import LiveJob, Server
from shoal.results.keeping.names import Parts, Wanted, check_name
from shoal.results.keeping.take import Stopped, Tree
from shoal.results.live.artifact_store import ArtifactStore, Outcome, Place
from shoal.results.live.events import ResultsEvent
from shoal.results.live.sections import section_of

log = structlog.get_logger("shoal.results")

FOLDER = ".artifacts"
"""In the job's directory. `KEY.json` asks, `KEY.answer` answers."""
_ASKED, _ANSWERED = ".json", ".answer"
_LOOK_S = 0.2
_PART_OF_TIME = 20
"""Looking takes this part of the time at most."""
_LARGEST = 16 << 10
_MOST_AT_ONCE = 100
_MOST_ENTRIES = 10_000
_NAMED = 20
"""Names and causes that an event tells at most."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Files of an attempt that has ended."""

    place: Place
    wanted: tuple[Wanted, ...]
    ran: bool


@dataclass(frozen=True, slots=True)
class Asked:
    """What a running job asks for. `root` is a directory of its own below the home."""

    place: Place
    key: str
    root: Parts
    wanted: Wanted


class Takes:
    """Of each tenant one thing after the other, of several tenants at once."""

    def __init__(self, server: Server, artifact_store: ArtifactStore) -> None:
        self._server = server
        self._artifact_store = artifact_store
        self._queues: dict[str, deque[Ended | Asked]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._known: dict[tuple[str, int], set[str]] = {}
        """What is queued or was answered, by attempt, so that it is not taken again."""
        self._turns = Turns(log, "artifacts could not be taken", server.on_fatal)

    # --- attempts that have ended ---

    async def open(self) -> None:
        """Take what the server before this one has not."""
        for job, attempt in sorted(self._artifact_store.repository.pending):
            live = self._server.job(job)
            if live is not None and live.job.attempt == attempt and live.job.state.active:
                continue
            record = live.job if live is not None else await asyncio.to_thread(self._record, job)
            if record is None:
                await self._artifact_store.repository.done(job, attempt, ())
            else:
                self._end(record, attempt, ran=True)

    def _record(self, job: str) -> JobRecord | None:
        return self._server.store.job(job)

    def ended(self, job: LiveJob) -> None:
        attempt = job.attempt
        if attempt is None or attempt.ended_at is None:
            return
        place = (job.job.id, attempt.number)
        if place in self._artifact_store.repository.pending:
            self._end(job.job, attempt.number, ran=attempt.running_at is not None)
        else:
            self._known.pop(place, None)

    def _end(self, job: JobRecord, attempt: int, *, ran: bool) -> None:
        known = self._known.setdefault((job.id, attempt), set())
        if "" not in known:
            known.add("")
            self._put(Ended(Place(job.tenant, job.id, job.name, attempt), section_of(job).wanted, ran))

    def idle(self) -> bool:
        return not self._artifact_store.repository.pending and not self._tasks

    # --- what running jobs ask for ---

    async def look(self) -> None:
        """Find what running jobs ask for, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            with self._turns.turn() as turn:
                places = [
                    Place(one.job.tenant, one.job.id, one.job.name, one.job.attempt)
                    for one in self._server.active_jobs() if one.job.owner_id is None and one.attempt is not None
                ]  # fmt: skip
                for one in await asyncio.to_thread(self._look, places) if places else ():
                    known = self._known.setdefault((one.place.job, one.place.attempt), set())
                    if one.key not in known:
                        known.add(one.key)
                        self._put(one)
            if turn.over:
                return
            await asyncio.sleep(max(_LOOK_S, _PART_OF_TIME * (loop.time() - began)))

    def _look(self, places: Sequence[Place]) -> list[Asked]:
        found: list[Asked] = []
        for place in places:
            with contextlib.suppress(OSError):
                found += self._asked(place)
        return found

    def _asked(self, place: Place) -> list[Asked]:
        home, run = self._server.home, run_parts(place)
        with beneath.directory(home, (*run, FOLDER)) as folder, os.scandir(folder) as listed:
            names = {one.name for _, one in zip(range(_MOST_ENTRIES), listed, strict=False)}
        keys = [name.removesuffix(_ASKED) for name in sorted(names) if name.endswith(_ASKED)]
        waiting = [key for key in keys if f"{key}{_ANSWERED}" not in names and key.isalnum()]
        found = []
        for key in waiting[:_MOST_AT_ONCE]:
            try:
                with beneath.regular_file(home, (*run, FOLDER, f"{key}{_ASKED}")) as file:
                    found.append(_read(place, key, json.loads(os.pread(file, _LARGEST, 0))))
            except (OSError, ValueError, TypeError, KeyError, RecursionError):
                continue
        return found

    # --- one after the other ---

    def _put(self, one: Ended | Asked) -> None:
        tenant = one.place.tenant
        self._queues.setdefault(tenant, deque()).append(one)
        if tenant not in self._tasks:
            self._tasks[tenant] = asyncio.create_task(self._work(tenant), name=f"artifacts-{tenant}")

    async def _work(self, tenant: str) -> None:
        queue = self._queues[tenant]
        try:
            while queue:
                one = queue[0]
                with self._turns.turn(job=one.place.job) as turn:
                    try:
                        await (self._take(one) if isinstance(one, Ended) else self._answer(one))
                    except Stopped:
                        return
                    queue.popleft()
                    if isinstance(one, Ended):
                        self._known.pop((one.place.job, one.place.attempt), None)
                if turn.over:
                    return
                if turn.held_up:
                    await asyncio.sleep(1.0)
        finally:
            self._tasks.pop(tenant, None)

    async def _take(self, one: Ended) -> None:
        outcome, place = Outcome((), ()), one.place
        if one.ran:
            tree = Tree(self._server.home, run_parts(place))
            outcome = await self._artifact_store.keep(tree, place, one.wanted, "attempt")
        await self._artifact_store.repository.done(place.job, place.attempt, self._events(place, outcome))

    async def _answer(self, one: Asked) -> None:
        outcome = await self._artifact_store.keep(Tree(self._server.home, one.root), one.place, [one.wanted], "job")
        if events := self._events(one.place, outcome):
            await self._server.store.record(events)
        told = {"artifacts": {kept.name: f"sha256:{kept.digest}" for kept in outcome.kept}, "refused": outcome.refused}
        with contextlib.suppress(OSError):  # the job is gone, or has no room for an answer
            await asyncio.to_thread(self._tell, one, json.dumps(told).encode())

    def _tell(self, one: Asked, answer: bytes) -> None:
        with beneath.directory(self._server.home, (*run_parts(one.place), FOLDER)) as folder:
            draft = f".{one.key}"
            with contextlib.suppress(FileNotFoundError):
                os.unlink(draft, dir_fd=folder)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            file = os.open(draft, flags, 0o644, dir_fd=folder)
            with os.fdopen(file, "wb") as writer:
                os.fchmod(file, 0o644)
                writer.write(answer)
            os.rename(draft, f"{one.key}{_ANSWERED}", src_dir_fd=folder, dst_dir_fd=folder)

    def _events(self, place: Place, outcome: Outcome) -> list[NewEvent]:
        events = []
        if outcome.kept:
            size = sum(one.bytes for one in outcome.kept)
            names = [one.name for one in outcome.kept]
            data: dict[str, Any] = {"artifacts": len(names), "bytes": size, "names": names[:_NAMED]}
            events.append(self._event(place, ResultsEvent.KEPT, f"{_listed(names)}", data))
        if outcome.refused:
            data = {"refused": list(outcome.refused[:_NAMED]), "artifacts": len(outcome.refused)}
            events.append(self._event(place, ResultsEvent.REFUSED, f"not kept: {_listed(outcome.refused)}", data))
        return events

    def _event(self, place: Place, kind: ResultsEvent, cause: str, data: dict[str, Any]) -> NewEvent:
        now = self._server.clock.now()
        return NewEvent(now, kind, "results", cause[:1000], place.tenant, place.job, place.attempt, data=data)

    async def close(self) -> None:
        """Give up what is being taken: the next server takes it."""
        self._artifact_store.leave()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def run_parts(place: Place) -> Parts:
    """The directory of an attempt, below the home."""
    return ("runs", place.job, str(place.attempt))


def _read(place: Place, key: str, asked: dict[str, Any]) -> Asked:
    """Raises ValueError, TypeError and KeyError for what is no request."""
    roots: dict[str, Parts] = {"run": run_parts(place), "checkpoints": ("checkpoints", place.job)}
    name, path = asked["name"], asked["path"]
    if not isinstance(path, str) or not (name is None or isinstance(name, str)):
        raise TypeError("a path and a name are text")
    wanted = Wanted(path, None if name is None else check_name(name), literal=True)
    if not wanted.parts:
        raise ValueError("it is the directory itself")
    return Asked(place, key, roots[asked["root"]], wanted)


def _listed(texts: Sequence[str]) -> str:
    rest = f" and {len(texts) - 3} more" if len(texts) > 3 else ""
    return ", ".join(texts[:3]) + rest
