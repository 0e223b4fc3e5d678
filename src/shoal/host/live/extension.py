"""The guard as an extension of the server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from shoal.base.loops import BackgroundLoop
from shoal.contract.pages import Column, Figure, Mood, Page, Table, Unit, Value
from shoal.contract.records import Event
from shoal.core import Capability, Sensors
from shoal.extension import Extension, Section, Server
from shoal.host.live.settings import GuardSettings


class Guard(Extension):
    """Keeps guaranteed jobs and services at their speed beside best-effort ones."""

    name: ClassVar[str] = "guard"
    settings: ClassVar[type[Section]] = GuardSettings

    def __init__(self, server: Server, settings: GuardSettings) -> None:
        # Only with a guard is what it needs imported.
        from shoal.host.live.reconciler import GuardReconciler

        self._server = server
        self.reconciler = GuardReconciler(server, settings)

    @classmethod
    def off(cls) -> Sequence[Capability]:
        consequence = "best-effort work may take memory bandwidth from guaranteed work"
        return (Capability("guard", False, "off: `shoal up --set guard.enabled=on`", consequence),)

    @classmethod
    def probe(cls, home: Path) -> Sequence[Capability]:
        from shoal.host.live.process import guard_capability

        return (guard_capability(home),)

    def loops(self) -> Sequence[BackgroundLoop]:
        return (self.reconciler,)

    def committed(self, events: Iterable[Event]) -> None:
        self.reconciler.committed(events)

    def answers(self) -> Mapping[type, object]:
        return {Sensors: self}

    def sensed(self, job_id: str) -> Mapping[str, float]:
        job = self._server.job(job_id)
        return {} if job is None else self.reconciler.sensed.of(job.job.owner_id or job_id)

    def page(self, tenant: str | None) -> Page:
        """A job or service is shown to its tenant's people, as the guard saw it when somebody asked last."""
        state = self.reconciler.capability()
        rows: list[list[Value]] = []
        for group, seen in sorted(self.reconciler.sensed.all().items()):
            job = self._server.job(group) or next(iter(self._server.owned(group)), None)
            if job is None or tenant not in (None, job.job.tenant):
                continue
            latency = seen.get("memory_latency_ns")
            rows.append([
                job.job.name, job.job.tenant, seen.get("guard_share"), seen.get("cpu_wait"),
                None if latency is None else round(latency),
            ])  # fmt: skip
        columns = [
            Column(name="job"), Column(name="tenant"), Column(name="share of its CPUs", unit=Unit.SHARE),
            Column(name="waits for a CPU", unit=Unit.SHARE), Column(name="memory latency (ns)"),
        ]  # fmt: skip
        figures = [
            Figure(name="works", value=state.available, mood=Mood.GOOD if state.available else Mood.BAD),
            Figure(name="how", value=state.detail),
        ]
        table = Table(title="Guarded work", columns=columns, rows=rows, empty="nothing was sensed in the last seconds")
        return Page(title="Guard", figures=figures, parts=[table])

    def capabilities(self) -> Sequence[Capability]:
        return (self.reconciler.capability(),)
