"""The guard's process: the loop on the clock, with journal and metrics beside it. It ends on request, and whatever way
it ends, limits end with it.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIServer

from prometheus_client import start_http_server

from shoal.base.files import write_whole
from shoal.core import Invalid
from shoal.host.guard.config import GuardConfig
from shoal.host.guard.follow import FollowedFile, Following
from shoal.host.guard.journal import Head, Journal
from shoal.host.guard.live import LiveHost
from shoal.host.guard.loop import Loop, Machine, Tick
from shoal.host.guard.metrics import Metrics
from shoal.host.linux.fs import LINUX, start_time
from shoal.host.types import TICK_S

METRICS_EVERY_S = 1.0
GATHER_S = 0.95
"""Ticks are in the journal a second late at most."""
_LOOPBACK = "127.0.0.1"
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class GuardDaemon:
    """Runs `machine` under the configured policy. `on_tick` sees every tick, after the journal."""

    def __init__(
        self,
        config: GuardConfig,
        machine: Machine,
        journal: Path | None,
        *,
        dry_run: bool = False,
        on_tick: Callable[[Tick], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], bool] | None = None,
    ) -> None:
        """`wait(seconds)` sleeps and says whether to stop; the default does until `stop` is called. Raises `Invalid`
        for a journal or port that cannot be had."""
        self._config, self._on_tick, self._clock = config, on_tick, clock
        self._ended = threading.Event()
        self._wait = wait or self._rest
        self._metrics_at = float("-inf")
        policy = config.policy.make()
        self._policy = policy.name
        self._metrics = Metrics(policy.name)
        self._loop = Loop(
            policy, machine.sense, None if dry_run else machine,
            changes_per_minute=config.limits.changes_per_minute, tick_s=config.tick_s, record=self._record,
        )  # fmt: skip
        self._journal: Journal | None = None
        if journal is not None:
            limits = config.journal
            self._journal = Journal(
                journal, self._head(), max_bytes=limits.max_bytes, files=limits.files, gather_s=GATHER_S
            )
        self.metrics_port: int | None = None
        self._server = self._listen(config.metrics.port)

    def run(self, *, ticks: int | None = None) -> None:
        """Run until `stop` (from a signal handler or another thread), or for `ticks` ticks."""
        due = self._clock()
        done = 0
        while not self._ended.is_set() and (ticks is None or done < ticks):
            tick = self._loop.tick(self._clock())
            done += 1
            now = self._clock()
            due = max(now, due + tick.plan.next_in_s)  # a tick that was late is not made up for
            if due > now and self._wait(due - now):
                break
        if self._journal is not None:
            self._journal.flush()

    def stop(self) -> None:
        self._ended.set()

    def _rest(self, seconds: float) -> bool:
        """A tick is slept through at a tenth of what waiting for an event costs; it is short enough to be asked to stop
        after it."""
        if seconds <= TICK_S:
            time.sleep(seconds)
            return self._ended.is_set()
        return self._ended.wait(seconds)

    def close(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
        if self._journal is not None:
            self._journal.close()

    def _record(self, tick: Tick) -> None:
        counters = self._metrics.counters
        counters.count(tick)
        counters.cpu_s = time.process_time()
        if self._journal is not None:
            self._journal.write(tick)
            counters.journal_lost = self._journal.lost
        self._metrics.tick = tick
        if self._config.metrics.file is not None and tick.at - self._metrics_at >= METRICS_EVERY_S:
            self._metrics_at = tick.at
            with contextlib.suppress(OSError):
                # Whole or not at all, as the node exporter wants it.
                write_whole(self._config.metrics.file, self._metrics.text(), mode=0o644, durable=False)
        if self._on_tick is not None:
            self._on_tick(tick)

    def _head(self) -> Head:
        pid = os.getpid()
        settings: dict[str, Any] = self._config.policy.model_extra or {}
        return Head(
            self._policy, None, settings, pid=pid, started=start_time(LINUX, pid) or 0, started_at=time.time(),
            monotonic_at=self._clock(),
        )  # fmt: skip

    def _listen(self, port: int | None) -> WSGIServer | None:
        if port is None:
            return None
        try:
            server, _ = start_http_server(port, _LOOPBACK, self._metrics.registry)
        except OSError as error:
            raise Invalid(f"metrics cannot be served: {error.strerror}", where=f"{_LOOPBACK}:{port}") from None
        self.metrics_port = server.server_port
        return server


def spare_the_collector() -> None:
    """For a process that is a guard and nothing else, once everything is loaded: that stays, and to look through it
    again and again for garbage would cost more than a tick does."""
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)


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
    """Guard this machine until a signal asks for the end, or for `ticks` ticks; then everything is as it was found. The
    groups follow the `file`. `note` gets what the guard's owner should know; `started` is called before the first
    tick."""
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
