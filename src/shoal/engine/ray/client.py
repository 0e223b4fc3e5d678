"""The server's side of the bridge to Ray: a process that is started when needed, and again when it was lost."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shoal.core import Unavailable
from shoal.engine.batch.job import NotTaken
from shoal.engine.ray import bridge

_FIRST_S = 90.0
"""Ray's first import on a busy machine takes long."""
_LIMIT_S = 30.0
_LINE_BYTES = 64 << 20
HINT = "is the head running, and is this machine one of the cluster's nodes? set ray.address, or run `ray start`"


class Bridge:
    """One request at a time. `prefix` runs the process somewhere else on this machine."""

    def __init__(
        self,
        address: str = "",
        *,
        python: str = "",
        prefix: Sequence[str] = (),
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.address = address
        self._python = python or sys.executable
        self._prefix = tuple(prefix)
        self._environ = {name: value for name, value in environ.items() if not name.startswith("SHOAL_")}
        self._namespace = ""
        self._log = Path(os.devnull)
        self._process: asyncio.subprocess.Process | None = None
        self._one = asyncio.Lock()

    def open(self, namespace: str, log: Path) -> None:
        self._namespace = namespace
        self._log = log

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def ask(self, do: str, **request: object) -> Any:
        """Raises Unavailable where no cluster answers, and NotTaken where Ray says no."""
        async with self._one:
            try:
                return await self._ask({"do": do, **request})
            except asyncio.CancelledError:
                await self.close()  # its answer would be taken for the next one's
                raise

    async def _ask(self, request: Mapping[str, object]) -> Any:
        limit_s = _LIMIT_S
        if self._process is None or self._process.returncode is not None:
            self._process = await self._start()
            limit_s = _FIRST_S
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            async with asyncio.timeout(limit_s):
                await self._process.stdin.drain()
                line = await self._process.stdout.readline()
        except TimeoutError:
            await self.close()
            raise Unavailable(f"Ray did not answer within {limit_s:g} s", where="ray", hint=HINT) from None
        except OSError:
            line = b""
        if not line:
            await self.close()
            raise Unavailable(f"Ray's process ended ({self._last_words()})", where="ray", hint=HINT)
        told = json.loads(line)
        if "unavailable" in told:
            await self.close()
            raise Unavailable(told["unavailable"], where="ray", hint=HINT)
        if "refused" in told:
            raise NotTaken(told["refused"], where=str(request["do"]))
        return told["answer"]

    async def _start(self) -> asyncio.subprocess.Process:
        command = [*self._prefix, self._python, "-P", bridge.__file__, self.address, self._namespace]
        try:
            with self._log.open("wb") as log:
                return await asyncio.create_subprocess_exec(
                    *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log,
                    env={"RAY_USAGE_STATS_ENABLED": "0", **self._environ}, limit=_LINE_BYTES,
                )  # fmt: skip
        except OSError as problem:
            raise Unavailable(f"{command[0]} cannot be run: {problem.strerror}", where="ray.python") from problem

    def _last_words(self) -> str:
        with contextlib.suppress(OSError):
            lines = [line for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
            if lines:
                return lines[-1].strip()[-300:]
        return "without a word"
