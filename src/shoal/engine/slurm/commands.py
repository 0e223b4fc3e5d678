"""Slurm's own commands, as a client runs them."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from shoal.core import ShoalError, Unavailable
from shoal.engine.batch.job import NotTaken

_LIMIT_S = 30.0
_SILENT = (
    "unable to contact slurm controller", "connection refused", "connection timed out", "socket timed out",
    "zero bytes were transmitted", "could not establish a configuration source", "connect failure",
    "backup controller in standby", "slurmctld controller", "slurm backup controller", "resource temporarily",
)  # fmt: skip
"""What a command says when no controller answered it: it may be said again."""


class Commands:
    """Runs a command and returns what it prints. `environ` names the cluster where it is not the machine's own."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        kept = ("PATH", "HOME", "LANG", "USER", "LOGNAME", "SLURM_CONF", "MUNGE_SOCKET")
        self._threads = ThreadPoolExecutor(8, thread_name_prefix="slurm")
        self._environ = {name: environ[name] for name in kept if name in environ}

    def missing(self) -> tuple[str, ...]:
        path = self._environ.get("PATH", os.defpath)
        wanted = ("sbatch", "squeue", "scontrol", "scancel", "srun")
        return tuple(name for name in wanted if shutil.which(name, path=path) is None)

    async def run(self, *command: str, stdin: str = "", extra: Mapping[str, str] | None = None) -> str:
        """Raises Unavailable where no controller answers, NotTaken where it says no."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._run, command, stdin, {**self._environ, **(extra or {})})

    def _run(self, command: Sequence[str], stdin: str, environ: Mapping[str, str]) -> str:
        try:
            done = subprocess.run(
                command, input=stdin.encode(), capture_output=True, env=environ, timeout=_LIMIT_S, check=False,
                start_new_session=True,
            )  # fmt: skip
        except FileNotFoundError as problem:
            raise Unavailable(
                f"{command[0]} is not installed here", where="slurm", hint="install Slurm's client commands"
            ) from problem
        except subprocess.TimeoutExpired as problem:
            raise Unavailable(f"{command[0]} gave no answer within {_LIMIT_S:g} s", where="slurmctld") from problem
        if done.returncode:
            raise failure(command[0], done.stderr.decode(errors="replace"))
        return done.stdout.decode(errors="replace")


def failure(command: str, said: str) -> ShoalError:
    """What a command's complaint means."""
    lines = [line.partition("error: ")[2] or line for line in said.strip().splitlines()]
    what = "; ".join(dict.fromkeys(line for line in lines if line)) or "it failed without a word"
    if any(sign in what.lower() for sign in _SILENT):
        hint = "is slurmctld running, and is SLURM_CONF right?"
        return Unavailable(f"Slurm's controller does not answer: {what}", where="slurmctld", hint=hint)
    return NotTaken(what, where=command)
