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

LONGEST_PAUSE_S = 30.0
_SETTLED_S = 30.0
"""One that dies within this time of its start died quickly."""


@dataclass(frozen=True, slots=True)
class ReplicaProcess:
    """How replicas are started. `threads` is what libraries outside of the runtimes' control may use (OpenMP, BLAS);
    `python_path` is where callables are imported from. Output goes to `NAME.log` in `log_directory`. The kernel kills
    them with this process, however it ends."""

    socket: Path
    token: str = field(repr=False)
    log_directory: Path
    threads: int = 1
    python_path: Sequence[Path] = ()
    memory_bytes: int = 0

    def command(self, name: str, token_fd: int) -> list[str]:
        """What runs the replica, which reads its token from the file descriptor: an environment can be read, by the
        models as well."""
        # -P: nothing is imported from wherever the gateway happens to have been started.
        command = [sys.executable, "-P", "-m", "shoal.serve.replica", "--connect", str(self.socket), "--name", name]
        command += ["--token-fd", str(token_fd), "--die-with-parent", str(os.getpid())]
        return [*command, "--memory", str(self.memory_bytes)]

    def environ(self, own: Mapping[str, str]) -> dict[str, str]:
        """The replica's environment, given the gateway's own."""
        environ = {
            name: value for name, value in own.items() if name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES)
        }
        environ |= dict.fromkeys(_THREAD_VARIABLES, str(self.threads))
        if self.python_path:
            own_path = (environ["PYTHONPATH"],) if "PYTHONPATH" in environ else ()
            environ["PYTHONPATH"] = os.pathsep.join((*map(str, self.python_path), *own_path))
        return environ

    def log_file(self, name: str) -> Path:
        return self.log_directory / f"{name}.log"

    async def start(self, name: str) -> Process:
        with contextlib.ExitStack() as stack:
            output = stack.enter_context(self.log_file(name).open("ab"))
            token_fd = os.memfd_create("shoal-token", os.MFD_CLOEXEC)
            stack.callback(os.close, token_fd)
            os.pwrite(token_fd, self.token.encode(), 0)
            return await asyncio.create_subprocess_exec(
                *self.command(name, token_fd), env=self.environ(os.environ), pass_fds=(token_fd,),
                stdin=DEVNULL, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip


class SpawnedReplica:
    """A replica that runs from now on until `close`. `starts` says how often its process was started.

    One that died is started again at once; one that dies again soon after `first_pause_s`, and then after twice as
    long each time.
    """

    def __init__(self, name: str, how: ReplicaProcess, *, first_pause_s: float = 0.25, grace_s: float = 10.0) -> None:
        self.name = name
        self.starts = 0
        self._how = how
        self._first_pause_s = first_pause_s
        self._grace_s = grace_s
        self._stopping = asyncio.Event()
        self._process: Process | None = None
        self._task = asyncio.get_running_loop().create_task(self._keep())

    @property
    def pid(self) -> int | None:
        """Of its process group; None while it does not run."""
        return self._process.pid if self._process is not None else None

    async def close(self) -> None:
        """Stop the replica: it may finish what it is at, for the grace period."""
        self._stopping.set()
        await self._task

    async def _keep(self) -> None:
        quick_deaths = 0
        while not self._stopping.is_set():
            lived_s, how = await self._live()
            quick_deaths = quick_deaths + 1 if lived_s < _SETTLED_S else 1
            wait_s = pause_s(quick_deaths, self._first_pause_s)
            if not self._stopping.is_set():
                log.error("replica %s %s (after %.1f s; it starts again in %.2f s)", self.name, how, lived_s, wait_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._stopping.wait()

    async def _live(self) -> tuple[float, str]:
        """One life of the process: its seconds, and how it ended."""
        log_file = self._how.log_file(self.name)
        said_before = log_file.stat().st_size if log_file.exists() else 0
        started = time.monotonic()
        try:
            self._process = process = await self._how.start(self.name)
        except OSError as error:
            return 0.0, f"could not be started: {error}"
        self.starts += 1
        ended, told = asyncio.ensure_future(process.wait()), asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait((ended, told), return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        if not ended.done():
            await self._stop(process)
        code = await ended
        self._process = None
        said = last_line(log_file, said_before)
        how = f"ended with {describe_end(code)}"
        return time.monotonic() - started, f"{how}, and last said: {said}" if said else how

    async def _stop(self, process: Process) -> None:
        """Only a process that was not waited for yet has its id still for itself."""
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(self._grace_s):
                await process.wait()
        except TimeoutError:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


def pause_s(quick_deaths: int, first_s: float) -> float:
    """How long to wait before a replica is started again that died quickly this number of times in a row."""
    return min(first_s * 2 ** min(quick_deaths - 2, 30), LONGEST_PAUSE_S) if quick_deaths > 1 else 0.0
