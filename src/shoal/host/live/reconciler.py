"""The loop that keeps a guard beside the server's workloads and tells it which there are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import structlog

from shoal.base.loops import BackgroundLoop, Defects
from shoal.contract.records import Event
from shoal.core import Capability, ShoalError, Telemetry, first
from shoal.extension import Server
from shoal.host.live.groups import groups
from shoal.host.live.process import JOURNAL_FILE, GuardProcess
from shoal.host.live.sensed import GuardReadings
from shoal.host.live.settings import GuardSettings

log = structlog.get_logger("shoal.guard")

_GATHER_S = 0.05
"""A burst of changes is told once, and only when all of them are seen."""
_TOLD = ("job.", "attempt.", "service.", "tenant.")


class GuardReconciler(BackgroundLoop):
    """Follows what is committed, and looks every `every_s` whether the guard lives. Nothing that goes wrong here is
    more than a line in the log."""

    def __init__(
        self, server: Server, settings: GuardSettings, *, process: GuardProcess | None = None, every_s: float = 1.0
    ) -> None:
        self._server = server
        self._settings = settings
        self._process = process or GuardProcess(server.home / "guard", settings, clock=server.clock)
        self._every_s = every_s
        self.sensed = GuardReadings(server.home / "guard" / JOURNAL_FILE, server.clock.monotonic)
        self._defects = Defects(log)
        self._wake = asyncio.Event()

    async def close(self) -> None:
        """The guard ends with the server, and all limits with it."""
        await super().close()
        await asyncio.to_thread(self._process.close)

    def capability(self) -> Capability:
        return self._process.capability()

    def groups(self) -> list[dict[str, Any]]:
        """What is to be guarded now."""
        return groups(
            self._server.active_jobs(),
            {name: tenant.weight for name, tenant in self._server.tenants().items()},
            self._server.home / "gangs",
            lambda job_id: first(self._server.ask_all(Telemetry), lambda one: one.telemetry(job_id)),
            max_slowdown=self._settings.max_slowdown,
        )

    def committed(self, events: Iterable[Event]) -> None:
        if any(event.kind.startswith(_TOLD) for event in events):
            self._wake.set()

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            try:
                if self.sensed.wanted:
                    await asyncio.to_thread(self.sensed.look)
                await asyncio.to_thread(self._process.tell, self.groups())
                self._process.tend()  # not in a thread: the guard ends with the thread that started it
            except ShoalError as error:
                log.warning("guard held up", error=str(error))
            except Exception as error:
                self._defects.note("guard held up by a defect", error)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._every_s):
                    await self._wake.wait()
                await asyncio.sleep(_GATHER_S)
