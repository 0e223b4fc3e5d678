"""The garbage collector: now and then it looks what is over and old, decides by `retention`, and removes it in batches.

Files go before records: a crash in between leaves a job without files, which the next turn removes, and no file that
nothing names.
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog

from shoal.base import trees
from shoal.base.loops import BackgroundLoop, Turns
from shoal.base.memory import give_back
from shoal.contract.events import EventKind
from shoal.contract.gangs import PHASES, gang_name
from shoal.contract.records import FinishedJob, NewEvent
from shoal.control.attempts.phases import Layout
from shoal.control.home.bundles import Bundles
from shoal.control.home.retention import Removal, Retention, plan
from shoal.control.jobs.repository import JobRepository
from shoal.engine import Engine

log = structlog.get_logger("shoal.garbage")

_BATCH = 100
"""The maximum number of jobs that one transaction removes: submissions wait no longer for it than for a group of
their own."""
_EVENTS = 5000
"""The maximum number of other events that one transaction removes."""
_LOOK_S, _MANY = 5.0, 2000
"""Memory is given back soon after most of many jobs are over: how often it is looked, and how many are many."""
_MOST = 100_000
"""The maximum number of finished jobs that one turn looks at, oldest first."""


@dataclass(frozen=True, slots=True)
class Removed:
    """What was removed, or would be. `left` tells what could not be, and why: it is tried again in the next turn."""

    jobs: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    bundles: tuple[str, ...] = ()
    events: int = 0
    freed_bytes: int = 0
    left: tuple[str, ...] = ()
    artifacts: tuple[str, ...] = ()


class GarbageCollector(BackgroundLoop):
    """`used` names the (tenant, digest) of bundles that others than jobs need."""

    def __init__(
        self, jobs: JobRepository, engine: Engine, layout: Layout, bundles: Bundles, *,
        used: Callable[[], Iterable[tuple[str, str]]],
        retention: Retention,
        on_fatal: Callable[[BaseException], None],
        every_s: float = 600.0,
    ) -> None:  # fmt: skip
        self._jobs = jobs
        self._store = jobs.store
        self._engine = engine
        self._layout = layout
        self._used = used
        self._bundles = bundles
        self._retention = retention
        self._turns = Turns(log, "garbage collection failed", on_fatal)
        self._every_s = every_s
        self._turn = asyncio.Lock()
        self._most = 0
        self.usage: Mapping[str, int] = {}
        """Bytes of each tenant's files as of the last turn: run directories, checkpoints, kept outputs, bundles."""

    async def _run(self) -> None:
        left_s = self._every_s
        while True:
            left_s -= (slept_s := min(left_s, _LOOK_S))
            await asyncio.sleep(slept_s)
            with self._turns.turn() as turn:
                if self._many_are_over() or left_s <= 0:
                    await asyncio.to_thread(self._give_back)
                if left_s <= 0:
                    left_s = self._every_s
                    await self.collect()
            if turn.over:
                return

    def _many_are_over(self) -> bool:
        """Whether less than half is left of many jobs; said once of each time that there were many."""
        live = len(self._jobs.cache)
        self._most = max(self._most, live)
        if self._most < _MANY or live > self._most // 2:
            return False
        self._most = live
        return True

    def _give_back(self) -> None:
        """Give memory back to the system that tens of thousands of jobs took, and their writing."""
        self._store.release_memory()
        gc.collect()
        give_back()

    async def collect(self, *, dry_run: bool = False) -> Removed:
        """Remove what may go by now; with `dry_run`, only tell what that is."""
        async with self._turn:
            removal = await self._decide()
            if dry_run:
                return await self._told(removal)
            removed = await self._remove(removal)
            if removed != Removed():
                log.info(
                    "removed", jobs=len(removed.jobs), runs=len(removed.runs), bundles=len(removed.bundles),
                    artifacts=len(removed.artifacts), events=removed.events, bytes=removed.freed_bytes,
                )  # fmt: skip
            for left in removed.left:
                log.warning("files cannot be removed", left=left)
            return removed

    # --- deciding ---

    async def _decide(self) -> Removal:
        waiting = (live for live in self._jobs.cache if '"bundle"' in live.job.manifest)  # most need not be read
        named = {(live.job.tenant, live.manifest.bundle) for live in waiting if live.manifest.bundle}
        named |= set(self._used())
        live = {live.job.id: live.job.tenant for live in self._jobs.cache}
        finished = await asyncio.to_thread(self._store.finished_jobs, _MOST)
        bundles = await asyncio.to_thread(self._store.bundles)
        runs = await asyncio.to_thread(_sizes, self._layout.home / "runs")
        kept = await asyncio.to_thread(_sizes, self._layout.home / "checkpoints")
        artifacts = await asyncio.to_thread(_sizes, self._layout.home / "artifacts")
        usage = Counter({one.tenant: 0 for one in bundles})
        for one in bundles:
            usage[one.tenant] += one.size_bytes
        for job_id, tenant in [*live.items(), *((job.id, job.tenant) for job in finished)]:
            usage[tenant] += runs.get(job_id, 0) + kept.get(job_id, 0) + artifacts.get(job_id, 0)
        self.usage = usage
        return plan(
            [job for job in finished if job.id not in live], runs, bundles, frozenset(named), self._retention,
            self._jobs.now(), lambda job: self._jobs.cache.held.holds(job.id, job.array_id), artifacts,
        )  # fmt: skip

    async def _told(self, removal: Removal) -> Removed:
        size = sum([await self._erase(job, dry_run=True) for job in removal.jobs])
        size += sum([await asyncio.to_thread(_size, self._run_dir(job)) for job in removal.runs])
        size += sum([await asyncio.to_thread(_size, self._layout.artifacts_dir(job.id)) for job in removal.artifacts])
        return Removed(
            tuple(job.id for job in removal.jobs),
            tuple(job.id for job in removal.runs),
            tuple(one.digest for one in removal.bundles),
            await asyncio.to_thread(self._store.count_events, removal.events_before, [job.id for job in removal.jobs]),
            size + sum(one.size_bytes for one in removal.bundles),
            artifacts=tuple(job.id for job in removal.artifacts),
        )

    # --- removing ---

    async def _remove(self, removal: Removal) -> Removed:
        size = events = 0
        gone: list[str] = []
        runs: list[str] = []
        artifacts: list[str] = []
        left: list[str] = []
        held = self._jobs.cache.held
        for start in range(0, len(removal.jobs), _BATCH):
            # A submission may have come to wait for one of them since it was decided.
            batch = [job for job in removal.jobs[start : start + _BATCH] if not held.holds(job.id, job.array_id)]
            with held.removing(ref for job in batch for ref in (job.id, job.array_id) if ref is not None):
                freed, ids = await self._each(batch, self._erase, left)
                size += freed
                if ids:
                    note = self._note(f"{len(ids)} finished jobs were removed", freed, jobs=ids)
                    events += await self._store.remove_jobs(ids, note)
                gone += ids
        for start in range(0, len(removal.runs), _BATCH):
            freed, ids = await self._each(removal.runs[start : start + _BATCH], self._erase_run, left)
            size += freed
            if ids:
                await self._store.record([self._note(f"the files of {len(ids)} runs were removed", freed, runs=ids)])
            runs += ids
        for start in range(0, len(removal.artifacts), _BATCH):
            freed, ids = await self._each(removal.artifacts[start : start + _BATCH], self._erase_artifacts, left)
            size += freed
            if ids:
                note = self._note(f"the outputs of {len(ids)} jobs were removed", freed, artifacts=ids)
                await self._store.record([note])
            artifacts += ids
        for one in removal.bundles:
            note = self._note("an unused bundle was removed", one.size_bytes, bundle=one.digest, tenant=one.tenant)
            size += await self._bundles.remove(one, note)
        await self._bundles.sweep()
        while (old := await self._store.remove_events(removal.events_before, _EVENTS)) > 0:
            events += old
        return Removed(
            tuple(gone), tuple(runs), tuple(one.digest for one in removal.bundles), events, size, tuple(left),
            tuple(artifacts),
        )  # fmt: skip

    @staticmethod
    async def _each(
        jobs: Iterable[FinishedJob], erase: Callable[[FinishedJob], Awaitable[int]], left: list[str]
    ) -> tuple[int, list[str]]:
        """The bytes that were freed, and the jobs whose files are gone. What is left of others is added to `left`: it
        keeps nobody else's, and the job stays for the next turn."""
        size, gone = 0, []
        for job in jobs:
            try:
                size += await erase(job)
                gone.append(job.id)
            except OSError as problem:
                left.append(str(problem))
        return size, gone

    async def _erase(self, job: FinishedJob, *, dry_run: bool = False) -> int:
        """All files of a job; how many bytes they took. Raises OSError for what is left of them."""
        act = _size if dry_run else _remove_tree
        size = 0
        for path in (
            self._run_dir(job), Path(self._layout.checkpoint_dir(job.id)), self._layout.artifacts_dir(job.id),
        ):  # fmt: skip
            size += await asyncio.to_thread(act, path)
        for number in range(1, job.attempts + 1):
            for phase in PHASES:
                size += await self._engine.erase(gang_name(job.id, number, phase), dry_run=dry_run)
        return size

    async def _erase_run(self, job: FinishedJob) -> int:
        return await asyncio.to_thread(_remove_tree, self._run_dir(job))

    async def _erase_artifacts(self, job: FinishedJob) -> int:
        return await asyncio.to_thread(_remove_tree, self._layout.artifacts_dir(job.id))

    def _run_dir(self, job: FinishedJob) -> Path:
        return self._layout.home / "runs" / job.id

    def _note(self, cause: str, freed_bytes: int, **data: object) -> NewEvent:
        found = {**data, "freed_bytes": freed_bytes}
        return NewEvent(self._jobs.now(), EventKind.GC_REMOVED, "garbage-collector", cause, data=found)


def _sizes(folder: Path) -> dict[str, int]:
    """The size of each directory in a folder. Blocks."""
    try:
        names = [path for path in folder.iterdir() if path.is_dir() and not path.is_symlink()]
    except FileNotFoundError:
        return {}
    return {path.name: _size(path) for path in names}


def _size(path: Path) -> int:
    """What a directory takes on disk. Blocks."""
    return trees.measure(str(path))[0]


def _remove_tree(path: Path) -> int:
    """How many bytes it took. Raises OSError for what is left of it. Blocks."""
    size = _size(path)
    left = trees.remove(str(path))
    if left is not None:
        raise OSError(left)
    return size
