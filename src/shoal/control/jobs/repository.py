"""The only way a live job changes: a pure step, committed by the store, then followed by the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from shoal.contract.lifecycle import JobState
from shoal.contract.records import AttemptRecord, Change, JobRecord, ReadPosition
from shoal.control.jobs.cache import JobCache, Live
from shoal.control.jobs.transitions import JobOver
from shoal.core import Clock, NotFound, Unavailable
from shoal.store import Store

Step = Callable[[JobRecord, AttemptRecord | None], Change | None]


class Writing:
    """Around whatever is written. `trouble` is why the last write failed; None once another one did not."""

    trouble: Unavailable | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None:
            self.trouble = None
        elif isinstance(error, Unavailable):
            self.trouble = error


class JobRepository:
    """`fault` is called with the name of the place before and after each commit; the deterministic simulation
    crashes there."""

    def __init__(self, store: Store, cache: JobCache, clock: Clock, fault: Callable[[str], None] | None = None) -> None:
        self.store = store
        self.cache = cache
        self.clock = clock
        self.fault = fault or (lambda _: None)
        self.writing = Writing()

    def now(self) -> float:
        return self.clock.now()

    async def change(self, job_id: str, step: Step) -> JobRecord:
        """Apply a step to the newest rows of a live job, again when another change came first.

        Returns the row as it is then; a step that returns None leaves it as it was. Raises JobOver, also for a job that
        ended meanwhile, NotFound for one that never was, and whatever the step raises.
        """
        while True:
            live = self.cache.get(job_id) or self._raise_gone(job_id)
            change = step(live.job, live.attempt)
            if change is None:
                return live.job
            self.fault("before-commit")
            with self.writing, _writing([live]):
                applied = await self.store.apply(_whole(live, change))
            if applied:
                self.cache.applied(change)
                self.fault("after-commit")
                return change.after
            self._refresh(live, change)
            if live.job.state.terminal:
                return live.job

    async def put_off(self, job_id: str, step: Step) -> JobRecord:
        """As `change`, but the step is written with the next one: until then it is in memory alone, and a server that
        starts anew finds the job as it was before."""
        live = self.cache.get(job_id) or self._raise_gone(job_id)
        if live.writes:
            return await self.change(job_id, step)
        if (change := step(live.job, live.attempt)) is not None:
            self.follow(change)
        return live.job

    def follow(self, change: Change) -> bool:
        """In memory alone, as `put_off`; False where what is on its way to the store would take this step back."""
        live = self.cache[change.before.id]
        if not live.writes:
            self.cache.applied(change, unwritten=_whole(live, change))
        return not live.writes

    async def apply_all(self, changes: Sequence[Change]) -> list[Change]:
        """Commit many independent changes together; returns those that were not stale."""
        self.fault("before-commit")
        lives = [self.cache[change.before.id] for change in changes]
        with self.writing, _writing(lives):
            applied = await self.store.apply_all(list(map(_whole, lives, changes)))
        done: list[Change] = []
        for change, ok in zip(changes, applied, strict=True):
            if ok:
                self.cache.applied(change)
                done.append(change)
            elif change.before.version == 0 and (live := self.cache.get(change.before.id)) is not None:
                self._refresh(live, change)
        self.fault("after-commit")
        return done

    async def progress(self, job_id: str, progress: Mapping[str, Any], position: ReadPosition) -> None:
        """Keep what a job reported up to this position; no event, no new version."""
        await self.store.update_progress(job_id, progress, position)
        self.cache.progressed(job_id, progress, position, self.now())

    def _raise_gone(self, job_id: str) -> NoReturn:
        job = self.store.job(job_id)
        if job is None:
            raise NotFound(f"no job {job_id}", where=job_id, hint="`shoal jobs` lists them")
        raise JobOver(job)

    def _refresh(self, live: Live, stale: Change) -> None:
        """A change lost its race. The winner is ours and the cache follows it at once, unless the row was changed
        behind our back: then read it."""
        if live.job.version != stale.before.version:
            return
        stored = self.store.job(live.job.id)
        unwritten = live.unwritten
        if stored is None and unwritten is not None and unwritten.before.version == 0:
            # Another job is stored with its key: this one never was, and never will be.
            over = live.job.evolve(state=JobState.CANCELLED, ended_at=self.now())
            self.cache.applied(Change(live.job, over))
        elif stored is not None and (unwritten is not None or stored.version != live.job.version):
            attempt = self.store.current_attempts([stored.id]).get(stored.id)
            self.cache.applied(Change(live.job, stored, attempt=attempt))


def _whole(live: Live, change: Change) -> Change:
    """With what was not written before."""
    first = live.unwritten
    if first is None:
        return change
    return Change(first.before, change.after, (*first.events, *change.events), change.attempt or first.attempt)


@contextmanager
def _writing(lives: Sequence[Live]) -> Iterator[None]:
    for live in lives:
        live.writes += 1
    try:
        yield
    finally:
        for live in lives:
            live.writes -= 1
