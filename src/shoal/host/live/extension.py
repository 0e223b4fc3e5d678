"""The guard as an extension of the server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from shoal.contract.records import Event
from shoal.core import Capability
from shoal.extension import Extension, LiveJob, Section, Server
from shoal.host.live.settings import GuardSettings


class Guard(Extension):
    """Keeps guaranteed jobs and services at their speed beside best-effort ones."""

    name: ClassVar[str] = "guard"
    settings: ClassVar[type[Section]] = GuardSettings

    def __init__(self, server: Server, settings: GuardSettings) -> None:
        # Only with a guard is what it needs imported.
        from shoal.host.live.reconciler import GuardReconciler

        self.reconciler = GuardReconciler(server, settings)

    @classmethod
    def off(cls) -> Sequence[Capability]:
        consequence = "best-effort work may take memory bandwidth from guaranteed work"
        return (Capability("guard", False, "off: `shoal up --set guard.enabled=on`", consequence),)

    @classmethod
    def probe(cls, home: Path) -> Sequence[Capability]:
        from shoal.host.live.process import guard_capability

        return (guard_capability(home),)

    async def open(self) -> None:
        self.reconciler.open()

    async def close(self) -> None:
        await self.reconciler.close()

    def committed(self, events: Iterable[Event]) -> None:
        self.reconciler.committed(events)

    def sensed(self, job: LiveJob) -> Mapping[str, float]:
        return self.reconciler.sensed.of(job.job.owner_id or job.job.id)

    def capabilities(self) -> Sequence[Capability]:
        return (self.reconciler.capability(),)
