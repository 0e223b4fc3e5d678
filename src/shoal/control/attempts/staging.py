"""Stages of extensions, which bring data to a job's nodes before its launch. A stage may take minutes, is shown, can be
cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from shoal.base.loops import Defects
from shoal.control.jobs.cache import Live
from shoal.core import Fault, LeaseLost, Reason, ShoalError
from shoal.engine import LaunchFailed
from shoal.extension import Extension

log = structlog.get_logger("shoal.staging")

CODE = "staging"
_LOOK_S = 1.0
"""How often it is asked whether the attempt is to end: a deadline passes without a word."""


class Staging:
    """Asks the extensions in the order of their names, each once the one before is done."""

    def __init__(self, extensions: Callable[[], list[Extension]]) -> None:
        self._extensions = extensions
        self._defects = Defects(log)

    def needed(self) -> bool:
        """Whether any extension stages anything."""
        return bool(self._extensions())

    async def run(self, live: Live, ends: Callable[[], Awaitable[bool]]) -> bool:
        """Stage what the job needs; False where `ends` said first that the attempt is to end. Raises LaunchFailed."""
        task = asyncio.create_task(self._all(live), name=f"staging-{live.job.id}")
        try:
            while not task.done():
                live.wake.clear()
                if await ends():
                    return False
                woken = asyncio.ensure_future(live.wake.wait())
                try:
                    await asyncio.wait({task, woken}, timeout=_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    woken.cancel()
            await task
            return True
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            live.staging = None

    async def _all(self, live: Live) -> None:
        for one in self._extensions():
            live.staging = Reason(CODE, f"{one.name} prepares what the job needs", {"extension": one.name})
            try:
                await one.stage(live, lambda text, part=None, name=one.name: _show(live, name, text, part))
            except (LaunchFailed, LeaseLost):
                raise
            except ShoalError as error:
                raise LaunchFailed(error.what, fault=Fault.PLATFORM, where=one.name, hint=error.hint) from error
            except Exception as error:
                self._defects.note("staging failed by a defect", error, extension=one.name, job=live.job.id)
                what = f"{type(error).__name__}: {error}"
                raise LaunchFailed(what, fault=Fault.PLATFORM, where=one.name) from error


def _show(live: Live, extension: str, text: str, part: float | None) -> None:
    shown = text if part is None else f"{text}, {part:.0%}"
    facts = {"extension": extension} | ({} if part is None else {"part": part})
    live.staging = Reason(CODE, f"{extension}: {shown}", facts)
