"""The demo's own server: a real `shoal up` in a fresh home, started, killed and stopped as a process."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from shoal.base.home import Home, stop_server
from shoal.control.server import READY_FD
from shoal.core import Unavailable
from shoal.demo.processes import Found, end_all, processes_of

_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 15.0

PRICE_PER_HOUR = "1.00"
"""What the demo's machine is taken to cost, in dollars: the services' ledger divides it."""


class Stage:
    """One server at a time on one home. `url` is where it answers. `slots` are declared where the machines of `where`
    have none of their own; `environ` is added to the server's environment."""

    def __init__(
        self, home: Path, *, slots: int | None, where: str = "one machine", environ: Mapping[str, str] | None = None
    ) -> None:
        self.home = home.resolve()
        self.url = ""
        self.where = where
        self._slots = slots
        self._environ = environ or {}
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def ledger(self) -> Path:
        """Where the workloads write down what they did."""
        return self.home / "witness.jsonl"

    @property
    def pid(self) -> int:
        return self._server.pid if self._server else 0

    def start(self) -> float:
        """Start the server; returns the monotonic time of its start once it answers."""
        # Whatever SHOAL_* the user has set is meant for another server.
        env = {name: value for name, value in os.environ.items() if not name.startswith("SHOAL_")}
        own = {"SHOAL_HOME": str(self.home), "SHOAL_SERVE__PRICE_PER_HOUR": PRICE_PER_HOUR, **self._environ}
        slots = [] if self._slots is None else ["--slots", str(self._slots)]
        readable, writable = os.pipe()
        with (self.home / "server.log").open("ab") as log, os.fdopen(readable, "rb") as pipe:
            began = time.monotonic()
            self._server = subprocess.Popen(
                [sys.executable, "-m", "shoal.cli", "up", "--home", str(self.home), "--port", "0", *slots],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, pass_fds=(writable,),
                env={**env, **own, READY_FD: str(writable)},
            )  # fmt: skip
            os.close(writable)
            answers, _, _ = select.select([pipe], [], [], _START_TIMEOUT_S)
            told = pipe.read() if answers else b""
        if not told:
            tail = (self.home / "server.log").read_text(errors="replace").strip()[-2000:]
            raise Unavailable("the demo's server did not start", where=str(self.home / "server.log"), hint=tail)
        self.url = json.loads(told)["url"]
        return began

    def kill(self) -> int:
        """End the server as a crash would: SIGKILL, no farewell. Returns the pid that was killed."""
        if self._server is None:
            raise AssertionError("only a started server can be killed")
        self._server.send_signal(signal.SIGKILL)
        self._server.wait()
        return self._server.pid

    def stop(self) -> None:
        """Stop the server as `shoal down` does."""
        stop_server(Home(self.home), timeout_s=_STOP_TIMEOUT_S)
        if self._server is not None:
            self._server.wait(_STOP_TIMEOUT_S)

    def processes(self) -> list[Found]:
        """Every process of this home that is alive, the server included."""
        return processes_of(self.home)

    def clear(self) -> list[Found]:
        """Kill whatever is left; returns what had to be killed."""
        left = end_all(self.home)
        if self._server is not None:
            self._server.wait()
        return left
