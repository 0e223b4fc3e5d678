"""Replica processes for a gateway that stands alone: started, started again when they die, and stopped.

Each is a process group of its own, with just the environment that it needs: what the gateway's own environment holds
(keys, tokens) is not for models to read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from shoal.base.ends import describe_end, last_line

log = logging.getLogger("shoal.serve.spawner")

_PASSED_ON = ("PATH", "HOME", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH")
_PASSED_ON_PREFIXES = ("LC_", "CUDA_", "NVIDIA_")
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class Restarts:
    """A replica that died is started again at once; one that dies again within `settled_s` of its start after
    `first_s`, and then after twice as long each time, up to `longest_s`."""

    first_s: float = 0.25
    longest_s: float = 30.0
    settled_s: float = 30.0

    def pause_s(self, quick_deaths: int) -> float:
        """How long to wait when it died `quick_deaths` times in a row before it had settled."""
        return min(self.first_s * 2 ** min(quick_deaths - 2, 30), self.longest_s) if quick_deaths > 1 else 0.0


@dataclass(frozen=True, slots=True)
class ReplicaProcess:
    """How replicas are started. `threads` is what libraries outside of the runtimes' control may use (OpenMP, BLAS);
    `python_path` is where callables are imported from, and `environment` what they get beyond the least. Output goes
    to `NAME.log` in `log_directory`, or with the gateway's own. Unless `outlives_gateway`, the kernel kills them with
    this process, however it ends."""

    socket: Path
    token: str = field(repr=False)
    threads: int = 1
    python_path: Sequence[Path] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    log_directory: Path | None = None
    outlives_gateway: bool = False

    def command(self, name: str, token_fd: int) -> list[str]:
        """What runs the replica, which reads its token from the file descriptor: an environment can be read, by the
        models as well."""
        # -P: nothing is imported from wherever the gateway happens to have been started.
        command = [sys.executable, "-P", "-m", "shoal.serve.replica", "--connect", str(self.socket), "--name", name]
        command += ["--token-fd", str(token_fd)]
        return command if self.outlives_gateway else [*command, "--die-with-parent", str(os.getpid())]

    def environ(self, own: Mapping[str, str]) -> dict[str, str]:
        """The replica's environment, given the gateway's own."""
        environ = {
            name: value for name, value in own.items() if name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES)
        }
        environ |= dict.fromkeys(_THREAD_VARIABLES, str(self.threads))
        if self.python_path:
            own_path = (environ["PYTHONPATH"],) if "PYTHONPATH" in environ else ()
            environ["PYTHONPATH"] = os.pathsep.join((*map(str, self.python_path), *own_path))
        return environ | dict(self.environment)

    def log_file(self, name: str) -> Path | None:
        return self.log_directory / f"{name}.log" if self.log_directory is not None else None

    async def start(self, name: str) -> Process:
        with contextlib.ExitStack() as stack:
            output = None
            log_file = self.log_file(name)
            if log_file is not None:
                output = stack.enter_context(log_file.open("ab"))
            token_fd = os.memfd_create("shoal-token", os.MFD_CLOEXEC)
            stack.callback(os.close, token_fd)
            os.pwrite(token_fd, self.token.encode(), 0)
            return await asyncio.create_subprocess_exec(
                *self.command(name, token_fd), env=self.environ(os.environ), pass_fds=(token_fd,),
                stdin=DEVNULL, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip


@dataclass(slots=True)
class _Kept:
    """One replica that is to run until `stopping`; `process` is None between two of its lives."""

    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    process: Process | None = None
    starts: int = 0
    task: asyncio.Task[None] | None = None


class Spawner:
    """Keeps replicas running, by name."""

    def __init__(self, how: ReplicaProcess, restarts: Restarts | None = None, *, grace_s: float = 10.0) -> None:
        self._how = how
        self._restarts = restarts or Restarts()
        self._grace_s = grace_s
        self._kept: dict[str, _Kept] = {}

    def add(self, name: str) -> None:
        """Start a replica of this name, and again whenever it ends. Nothing if there is one."""
        if name not in self._kept:
            self._kept[name] = kept = _Kept()
            kept.task = asyncio.get_running_loop().create_task(self._keep(name, kept))

    def pid(self, name: str) -> int | None:
        """None while it does not run."""
        kept = self._kept.get(name)
        return kept.process.pid if kept is not None and kept.process is not None else None

    def starts(self, name: str) -> int:
        """How often it was started."""
        return self._kept[name].starts

    def kill(self, name: str) -> None:
        """End one that hangs, at once, with all that it started; it is then started again."""
        kept = self._kept.get(name)
        if kept is not None and kept.process is not None:
            _kill_group(kept.process)

    async def remove(self, name: str) -> None:
        """Stop the replica: it may finish what it is at, for the grace period."""
        kept = self._kept.pop(name, None)
        if kept is not None and kept.task is not None:
            kept.stopping.set()
            await kept.task

    async def close(self) -> None:
        """Stop all, together."""
        await asyncio.gather(*(self.remove(name) for name in [*self._kept]))

    async def _keep(self, name: str, kept: _Kept) -> None:
        quick_deaths = 0
        while True:
            lived_s, how = await self._live(name, kept)
            quick_deaths = quick_deaths + 1 if lived_s < self._restarts.settled_s else 1
            pause_s = self._restarts.pause_s(quick_deaths)
            if not kept.stopping.is_set():
                log.error("replica %s %s (after %.1f s; it starts again in %.2f s)", name, how, lived_s, pause_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await kept.stopping.wait()
            if kept.stopping.is_set():
                return

    async def _live(self, name: str, kept: _Kept) -> tuple[float, str]:
        """One life of the process: its seconds, and how it ended."""
        log_file = self._how.log_file(name)
        said_before = log_file.stat().st_size if log_file is not None and log_file.exists() else 0
        started = time.monotonic()
        try:
            kept.process = process = await self._how.start(name)
        except OSError as error:
            return 0.0, f"could not be started: {error}"
        kept.starts += 1
        ended, told = asyncio.ensure_future(process.wait()), asyncio.ensure_future(kept.stopping.wait())
        await asyncio.wait((ended, told), return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        if not ended.done():
            await self._stop(process)
        code = await ended
        kept.process = None
        said = last_line(log_file, said_before) if log_file is not None else ""
        how = f"ended with {describe_end(code)}"
        return time.monotonic() - started, f"{how}, and last said: {said}" if said else how

    async def _stop(self, process: Process) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(self._grace_s):
                await process.wait()
        except TimeoutError:
            _kill_group(process)


def _kill_group(process: Process) -> None:
    """Only of a process that was not waited for yet, whose id so is still its own."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
