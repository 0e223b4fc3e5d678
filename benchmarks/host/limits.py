"""Limits of neighbours while a window of the rig lasts: a guard of its own process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.core import Unavailable
from shoal.host.linux.fs import LINUX

_START_S, _STOP_S = 30.0, 10.0
_LAST_WORDS = 500
_NICE = "-8"
"""With more, what a guard itself starts (its watchdog, the pacer) would starve: those have the usual weight."""

CpuSeconds = Callable[[], float]
"""What the limiting itself has cost so far."""
Limit = Callable[[Mapping[str, int]], AbstractContextManager[CpuSeconds | None]]
"""Called with the neighbours' pids by name; limits them inside the context."""


def prefer(pid: int) -> None:
    """Put a session's leader and its children before the machine's other work, seven to one. Where that is not
    configured, or there is no right to, other work takes more of the CPUs."""
    with suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(_NICE)


@dataclass(frozen=True, slots=True)
class Feed:
    """The guaranteed work that a guard is to protect, and where it tells its steps."""

    pid: int
    ring: Path


def guarded(
    feed: Feed,
    policy: str,
    *,
    allow: Sequence[str] | None = None,
    apart: bool = False,
    reported: bool = True,
    max_slowdown: float = 1.05,
    others: Sequence[Mapping[str, Any]] = (),
) -> Limit:
    """A guard of its own process, as the server starts it: the feed is guaranteed, the neighbours are one
    best-effort group, or, `apart`, one each; `others` are more groups, as its configuration has them. `allow` names the
    mechanisms that it may use; all of them without. Unless `reported`, the guard does not know of the feed's ring."""

    @contextmanager
    def limit(pids: Mapping[str, int]) -> Iterator[CpuSeconds]:
        neighbours = {name: [pid] for name, pid in pids.items()} if apart else {"neighbour": list(pids.values())}
        groups: list[dict[str, Any]] = [
            {"name": "feed", "class": "guaranteed", "pids": [feed.pid], "slo": {"max_slowdown": max_slowdown}}
            | ({"ring": str(feed.ring)} if reported else {}),
            *({"name": name, "class": "best-effort", "pids": members} for name, members in neighbours.items()),
            *map(dict, others),
        ]  # fmt: skip
        told: dict[str, Any] = {"groups": groups, "policy": policy}
        if allow is not None:
            told["actuators"] = {"allow": list(allow)}
        with guard_process(told) as guard:
            yield guard.cpu_s

    return limit


@dataclass(frozen=True, slots=True)
class StartedGuard:
    pid: int
    journal: Path

    def cpu_s(self) -> float:
        """CPU seconds of the guard's process so far. The companion threads that pace cores are another process: what
        they burn is taken from the paced cores."""
        return LINUX.cpu_s(self.pid)


@contextmanager
def guard_process(config: Mapping[str, Any]) -> Iterator[StartedGuard]:
    """`python -m shoal.host.guard` with this configuration, once it ticks; at the end everything is as it was found.
    Raises Unavailable when it does not start."""
    with tempfile.TemporaryDirectory(prefix="shoal-guard-") as folder:
        file, log = Path(folder, "guard.json"), Path(folder, "guard.log")
        file.write_text(json.dumps(config))
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "shoal.host.guard", str(file), "--parent", str(os.getpid())],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip
        prefer(process.pid)
        guard = StartedGuard(process.pid, Path(folder, "journal.jsonl"))
        try:
            until = time.monotonic() + _START_S
            while not (guard.journal.exists() and guard.journal.stat().st_size):
                if process.poll() is not None or time.monotonic() > until:
                    said = log.read_text(errors="replace").strip()[-_LAST_WORDS:]
                    raise Unavailable("the guard did not start", hint=said)
                time.sleep(0.01)
            yield guard
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
