"""The gateway as a process of its own: follows its configuration file, and says in a status file how it is.

It depends on no other process: it goes on serving while the control plane, which writes the configuration, is down.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path

from shoal.base.processes import start_ticks
from shoal.core import Invalid, ShoalError
from shoal.serve.contract import (
    CONFIG_FILE,
    STATUS_EVERY_S,
    Address,
    GatewayConfig,
    GatewayStatus,
    ReplicaKill,
    hold,
    read_config,
    read_status,
    write_status,
)
from shoal.serve.gateway import report
from shoal.serve.gateway.core import Gateway
from shoal.serve.gateway.http import HttpFront
from shoal.serve.gateway.meter import Meter
from shoal.serve.gateway.replicas.registry import ReplicaRegistry
from shoal.serve.gateway.shared_memory import SharedRegions
from shoal.serve.sockets import sandboxed

log = logging.getLogger("shoal.serve")

_LOOK_EVERY_S = 0.1
DRAIN_S = 10.0
USAGE_FILE, KEPT_FOLDER = "usage.jsonl", "kept"
_ASK_EVERY_S = 2.0
"""How old a runtime's figures may be."""
_KILLS = 200
"""The number that is kept in the status."""


class GatewayProcess:
    """Serves a directory until `stop` is called. One event loop; `start` returns once it listens."""

    def __init__(self, folder: Path, *, scheduler: str = "deadline") -> None:
        self.folder = folder
        self.gateway: Gateway
        self.http = self.grpc = Address()
        self._scheduler = scheduler
        self._drain_s = DRAIN_S
        self._reporting: asyncio.Task[None] | None = None
        self._ending = contextlib.AsyncExitStack()
        self._killed: deque[ReplicaKill] = deque(maxlen=_KILLS)

    async def start(self) -> None:
        """Raises Conflict if the directory has a gateway already, Invalid if there is no configuration or it makes no
        sense, Unavailable if a port is taken; then everything is as before."""
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(os.close, hold(self.folder))
            self._seen = _stamp(self.folder / CONFIG_FILE)
            config = read_config(self.folder)
            if config is None:
                raise Invalid("there is no configuration to follow", where=str(self.folder / CONFIG_FILE))
            stack.callback(self._tell_if_reporting)
            meter = Meter(config, self.folder / USAGE_FILE)
            stack.callback(meter.close)
            self.gateway = Gateway(
                slots=config.slots, scheduler=self._scheduler, meter=meter, kept=self.folder / KEPT_FOLDER
            )
            self.gateway.follow(config)
            self._config = config
            before = _last_status(self.folder)
            if before is not None:
                self._killed.extend(before.killed)
                self.gateway.replica_set.expect({service.id for service in before.services if service.ready})
            registry = ReplicaRegistry(self.gateway.admits, self.gateway.replica_set, before_kill=self._note_kill)
            beside = sandboxed(self.folder)
            await registry.start(Path(config.socket), sandboxed=beside if beside.parent.is_dir() else None)
            stack.push_async_callback(registry.stop)
            stack.push_async_callback(self.gateway.close)
            stack.push_async_callback(self._end_report)  # it goes on while calls are being answered
            await self._listen(config, before, stack)
            self._started = start_ticks(os.getpid()) or 0
            self._tell()
            self._reporting = asyncio.create_task(_repeat(self._report, STATUS_EVERY_S))
            asking = asyncio.create_task(_repeat(self.gateway.replica_set.ask_conditions, _ASK_EVERY_S))
            stack.push_async_callback(_end, asking)
            stack.push_async_callback(_end, asyncio.create_task(_repeat(self._follow, _LOOK_EVERY_S)))
            self._ending = stack.pop_all()

    async def stop(self, drain_s: float = DRAIN_S) -> None:
        """Answer what was asked, for at most so long; refuse what comes."""
        self._drain_s = drain_s
        await self._ending.aclose()

    # --- inside

    async def _listen(
        self, config: GatewayConfig, before: GatewayStatus | None, stack: contextlib.AsyncExitStack
    ) -> None:
        # Read when gRPC is loaded. Its handlers for forks only complain here: replicas are started by exec.
        os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
        from shoal.serve.gateway.grpc import GrpcFront

        shared = SharedRegions()
        metrics, limits = report.Metrics(self.gateway).render, config.http_limits
        http = HttpFront(self.gateway, shared=shared, metrics=metrics, limits=limits)
        rpc = GrpcFront(self.gateway, shared=shared, message=limits.body)

        async def stop() -> None:
            await asyncio.gather(http.stop(self._drain_s), rpc.stop(self._drain_s))
            shared.close()

        self._drain_s = 0.0
        stack.push_async_callback(stop)
        self.http = await _open(http.start, config.http, before.http if before is not None else None)
        self.grpc = await _open(rpc.start, config.grpc, before.grpc if before is not None else None)

    def _follow(self) -> None:
        stamp = _stamp(self.folder / CONFIG_FILE)
        if stamp == self._seen:
            return
        self._seen = stamp
        config = read_config(self.folder)
        if config is None:
            return
        self.gateway.follow(config)
        before, self._config = self._config, config
        log.info("follows generation %d of the configuration", config.generation)
        if _fixed(before) != _fixed(config):
            log.warning("a change of slots, socket, addresses or limits is followed when the gateway starts again")
        self._tell()

    def _report(self) -> None:
        self.gateway.meter.close_interval()
        self._tell()

    async def _end_report(self) -> None:
        if self._reporting is not None:
            await _end(self._reporting)

    def _note_kill(self, name: str, why: str) -> None:
        """Written down first: the end of the replica is looked into as soon as it has ended."""
        self._killed.append(ReplicaKill(name, time.time(), why))
        self._tell_if_reporting()

    def _tell_if_reporting(self) -> None:
        if self._reporting is not None:  # else it never began
            with contextlib.suppress(ShoalError):
                self._tell()

    def _tell(self) -> None:
        status = GatewayStatus(
            pid=os.getpid(),
            started=self._started,
            at=time.time(),
            generation=self._config.generation,
            http=self.http,
            grpc=self.grpc,
            services=report.services(self.gateway),
            usage=self.gateway.meter.totals(),
            killed=tuple(self._killed),
        )
        write_status(self.folder, status)


async def serve(folder: Path, *, scheduler: str = "deadline") -> None:
    """Until SIGTERM or SIGINT; the second one ends it at once."""
    ended = asyncio.Event()
    end_on_signals(ended)
    process = GatewayProcess(folder, scheduler=scheduler)
    await process.start()
    log.info("listens for HTTP on port %d and for gRPC on port %d", process.http.port, process.grpc.port)
    await ended.wait()
    await process.stop()


def end_on_signals(ended: asyncio.Event) -> None:
    """Set the event at SIGTERM or SIGINT. A second signal has its default effect, so that the process can be ended
    without waiting."""
    loop = asyncio.get_running_loop()

    def end(number: signal.Signals) -> None:
        ended.set()
        loop.remove_signal_handler(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end, number)


async def _repeat(work: Callable[[], None], every_s: float) -> None:
    """For ever, whatever goes wrong with it."""
    complaint = ""
    while True:
        await asyncio.sleep(every_s)
        try:
            work()
            complaint = ""
        except Exception as error:
            if str(error) != complaint:  # once, not twice a second
                log.error("%s", error, exc_info=None if isinstance(error, ShoalError) else error)
            complaint = str(error)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _fixed(config: GatewayConfig) -> object:
    return config.slots, config.socket, config.http, config.grpc, config.http_limits


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


def _last_status(folder: Path) -> GatewayStatus | None:
    with contextlib.suppress(ShoalError):
        return read_status(folder)
    return None


async def _open(start: Callable[[str, int], Awaitable[int]], wanted: Address, before: Address | None) -> Address:
    """Where asked; where any port will do, the one that clients know from the last time, if it is free."""
    if not wanted.port and before is not None and before.port and before.host == wanted.host:
        with contextlib.suppress(OSError, ShoalError):
            return Address(wanted.host, await start(wanted.host, before.port))
    return Address(wanted.host, await start(wanted.host, wanted.port))
