"""A guard of this machine, from its start to its end: asked by a signal, it leaves everything as it was found."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

from shoal.host.guard.config import GuardConfig
from shoal.host.guard.daemon import GuardDaemon
from shoal.host.guard.follow import FollowedFile, Following
from shoal.host.guard.live import LiveHost
from shoal.host.guard.loop import Tick

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def guard_here(
    config: GuardConfig,
    file: FollowedFile,
    folder: Path,
    journal: Path | None,
    *,
    note: Callable[[str], None],
    dry_run: bool = False,
    on_tick: Callable[[Tick], None] | None = None,
    ticks: int | None = None,
    started: Callable[[GuardDaemon, LiveHost], None] = lambda _guard, _host: None,
) -> None:
    """Run until a signal asks for the end, or for `ticks` ticks. The groups follow the `file`. `note` gets what the
    guard's owner should know; `started` is called before the first tick."""
    host = LiveHost(config, folder, look_only=dry_run)
    try:
        for problem in host.left:
            note(f"left by an earlier guard: {problem}")
        guard = GuardDaemon(config, Following(host, file, note=note), journal, dry_run=dry_run, on_tick=on_tick)
        started(guard, host)
        before = {one: signal.signal(one, lambda *_: guard.stop()) for one in _SIGNALS}
        try:
            guard.run(ticks=ticks)
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)
            guard.close()
    finally:
        for problem in host.close():
            note(f"could not be taken back: {problem}")
