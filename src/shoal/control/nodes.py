"""The node watch: admission follows the nodes that the engine has, and what ran on those that are gone ends as lost.

An attempt whose node or device is gone is asked to stop first, in the store, so that a server started meanwhile goes
on with it. It is over when the engine says that it ended. Of a node that is gone, with all that could answer, the
engine may never say so: then it is over by itself after a while.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator

import structlog

from shoal.base.loops import Turns
from shoal.contract.events import EventKind
from shoal.contract.gangs import PHASES, gang_name
from shoal.contract.lifecycle import Stop
from shoal.contract.records import AttemptRecord, Change, JobRecord, NewEvent
from shoal.control.attempts.runner import AttemptRunner
from shoal.control.jobs import transitions
from shoal.control.jobs.cache import Live
from shoal.control.jobs.repository import JobRepository
from shoal.core import Node
from shoal.engine import Engine, Inventory

log = structlog.get_logger("shoal.nodes")


class NodeWatch:
    """`silent_s`: how long, beyond a job's grace, an engine may say nothing of what ran on a node that is gone."""

    def __init__(
        self, jobs: JobRepository, engine: Engine, runner: AttemptRunner, *,
        on_fatal: Callable[[BaseException], None],
        silent_s: float = 30.0, retry_s: float = 1.0,
    ) -> None:  # fmt: skip
        self._jobs = jobs
        self._engine = engine
        self._runner = runner
        self._turns = Turns(log, "node watch failed", on_fatal)
        self._silent_s = silent_s
        self._retry_s = retry_s
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def open(self) -> None:
        self._changed.set()  # while no server was there, nodes may have gone
        self._tasks = [
            asyncio.create_task(self._follow(), name="node-watch"),
            asyncio.create_task(self._end_lost(), name="node-watch-ends"),
        ]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _follow(self) -> None:
        """Until the engine is closed."""
        while True:
            with self._turns.turn() as turn:
                async for inventory in self._engine.nodes():
                    await self._see(inventory)
                return
            if turn.over:
                return
            await asyncio.sleep(self._retry_s)

    async def _see(self, inventory: Inventory) -> None:
        cache, now = self._jobs.cache, self._jobs.now()
        told = [
            NewEvent(now, kind, f"engine:{self._engine.name}", cause, data={"node": node})
            for kind, node, cause in differences(cache.inventory, inventory)
        ]
        if inventory == cache.inventory:
            return
        cache.see_nodes(inventory)
        self._changed.set()
        if told:
            await self._jobs.store.record(told)

    async def _end_lost(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            with self._turns.turn() as turn:
                if await self._end_those_lost():
                    self._changed.set()  # look again until all of them have ended
            if turn.over:
                return
            if turn.held_up:
                self._changed.set()
            await asyncio.sleep(self._retry_s)

    async def _end_those_lost(self) -> bool:
        """Whether any attempt holds what is gone."""
        cache = self._jobs.cache
        lost = [(live, missing) for live in cache.active() if (missing := cache.missing(live)) is not None]
        for live, missing in lost:
            cause = missing.text

            def stop(job: JobRecord, attempt: AttemptRecord | None, cause: str = cause) -> Change | None:
                if attempt is None:
                    return None
                return transitions.request_stop(
                    job, attempt, Stop.NODE_LOST, now=self._jobs.now(), actor="node-watch", cause=cause
                )

            with contextlib.suppress(transitions.JobOver):
                await self._jobs.change(live.job.id, stop)
            if missing.whole_node and self._silent_for_long(live):
                for phase in PHASES:
                    name = gang_name(live.job.id, live.job.attempt, phase)
                    self._runner.lose(live.job.id, name, f"{cause}, and nothing was heard of it")
        return bool(lost)

    def _silent_for_long(self, live: Live) -> bool:
        asked_at = live.attempt.stop_at if live.attempt is not None else None
        return asked_at is not None and self._jobs.now() >= asked_at + live.manifest.grace_s + self._silent_s


def differences(old: Inventory, new: Inventory) -> Iterator[tuple[str, str, str]]:
    """(event, node, cause) for each node that differs."""
    before = {node.name: node for node in old.nodes}
    after = {node.name: node for node in new.nodes}
    for name in sorted(before.keys() | after.keys()):
        if name not in before:
            yield EventKind.NODE_JOINED, name, f"node {name} is there"
        elif name not in after:
            yield EventKind.NODE_LEFT, name, f"node {name} is gone"
        elif before[name] != after[name]:
            yield EventKind.NODE_CHANGED, name, f"node {name} changed: {_change(before[name], after[name])}"
        if name not in after:
            continue
        was, now = old.closed.get(name), new.closed.get(name)
        if now is not None and now != was:
            yield EventKind.NODE_CLOSED, name, f"node {name} takes no new work: {now}"
        elif was is not None and now is None:
            yield EventKind.NODE_OPENED, name, f"node {name} takes new work again"


def _change(before: Node, after: Node) -> str:
    was, now = {device.id for device in before.devices}, {device.id for device in after.devices}
    parts = [f"device {device} is gone" for device in sorted(was - now)]
    parts += [f"device {device} is there" for device in sorted(now - was)]
    return ", ".join(parts) or "its resources or labels"
