"""The guard's process as the server sees it: what it follows, how it is started, and whether it lives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from shoal.base.ends import last_line
from shoal.base.files import write_whole
from shoal.base.processes import start_detached
from shoal.core import Capability, Clock, SystemClock, Unavailable
from shoal.host.live.settings import GuardSettings
from shoal.host.types import Control

log = structlog.get_logger("shoal.guard")

CONFIG_FILE, LOG_FILE, JOURNAL_FILE = "server.json", "guard.log", "journal.jsonl"
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 30.0
_STEADY_S = 30.0
"""A guard that lived so long is started again at once."""
_END_S = 5.0
"""What it gets to take its limits back; its watchdog does it where it hangs."""
_WITHOUT = "best-effort work may take memory bandwidth from guaranteed work beside it"

_CONTROLS = [control.value for control in Control if control is not Control.WEIGHT]
"""No weight: the server and its gateway are in no group, and guaranteed jobs are not to go twenty times before them."""

Start = Callable[[Sequence[str], Path], "subprocess.Popen[bytes]"]


class GuardProcess:
    """The guard of one home. To be used from one thread, which outlives it: the kernel ends a guard whose starter is
    gone. `start` starts a process, its output appended to a file."""

    def __init__(
        self, folder: Path, settings: GuardSettings, *, clock: Clock | None = None, start: Start | None = None
    ) -> None:
        self._folder = folder
        self._settings = settings
        self._clock = clock or SystemClock()
        self._start = start or partial(start_detached, what="guard")
        self._child: subprocess.Popen[bytes] | None = None
        self._told: str | None = None
        self._started_at = 0.0
        self._start_at = float("-inf")
        self._wait_s = 0.0
        self._why = "it was not started yet"
        self.groups = 0

    def tell(self, groups: Sequence[Mapping[str, Any]]) -> None:
        """Write what is to be guarded, if it changed. Raises Unavailable."""
        told = {"groups": groups, "policy": self._settings.policy, "actuators": {"allow": _CONTROLS}}
        text = json.dumps(told, indent=1, sort_keys=True)
        self.groups = len(groups)
        if text == self._told:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_whole(self._folder / CONFIG_FILE, text + "\n")
        except OSError as error:
            where = str(self._folder / CONFIG_FILE)
            raise Unavailable(f"the guard cannot be told its groups: {error.strerror}", where=where) from error
        self._told = text

    def tend(self) -> None:
        """See that it runs. Raises Unavailable where it cannot be started; then it is tried again later."""
        now = self._clock.monotonic()
        if self._child is not None:
            if self._child.poll() is None:
                return
            self._mourn(self._child, now)
        if now < self._start_at or self._told is None:
            return
        self._started_at = now
        try:
            self._child = self._start(self._command(), self._folder / LOG_FILE)
        except Unavailable as error:
            self._why = str(error)
            self._wait(now)
            raise
        log.info("guard started", pid=self._child.pid, policy=self._settings.policy)

    @property
    def pid(self) -> int | None:
        """Of the guard that lives."""
        return self._child.pid if self._child is not None and self._child.poll() is None else None

    def capability(self) -> Capability:
        """For `shoal status`."""
        if self.pid is None:
            return Capability("guard", False, self._why, _WITHOUT)
        detail = f"{self._settings.policy}, {self.groups} groups (pid {self.pid}); see `shoal guard status`"
        return Capability("guard", True, detail)

    def close(self) -> None:
        """End it; it takes its limits back. Blocks until it has."""
        child, self._child = self._child, None
        if child is None:
            return
        child.terminate()
        try:
            child.wait(_END_S)
        except subprocess.TimeoutExpired:
            log.warning("the guard hangs: its watchdog takes its limits back", pid=child.pid)
            child.kill()
            child.wait()

    def _command(self) -> tuple[str, ...]:
        path = str(self._folder / CONFIG_FILE)
        return (sys.executable, "-m", "shoal.host.guard", path, "--parent", str(os.getpid()))

    def _mourn(self, child: subprocess.Popen[bytes], now: float) -> None:
        """It ended: wait before the next start, longer each time unless it had lived long."""
        self._child = None
        if now - self._started_at > _STEADY_S:
            self._wait_s, self._start_at = 0.0, now
        else:
            self._wait(now)
        said = last_line(self._folder / LOG_FILE)
        self._why = f"it ended with code {child.returncode}{': ' + said if said else ''}"
        log.warning("guard ended", code=child.returncode, said=said, wait_s=self._wait_s)

    def _wait(self, now: float) -> None:
        self._wait_s = min(_LONGEST_WAIT_S, self._wait_s * 2 or _FIRST_WAIT_S)
        self._start_at = now + self._wait_s


def guard_capability(home: Path) -> Capability:
    """Whether a guard works in this home, for `shoal doctor`: found by its journal, whatever started it."""
    from shoal.core import ShoalError
    from shoal.host.guard.history import present

    try:
        found = present(home / "guard" / JOURNAL_FILE)
    except (ShoalError, OSError):
        found = None
    if found is None or not found.running:
        how = "none works here: `shoal up --set guard.enabled=on`, or `shoal guard run`; see `shoal guard doctor`"
        return Capability("guard", False, how, _WITHOUT)
    return Capability("guard", True, f"{found.head.policy} (pid {found.head.pid}); see `shoal guard status`")
