"""The requests that the demo's services get, and the process that sends them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shoal.core import ShoalError
from shoal.demo.services import Handwriting, Tumours

TENANT = "search"
SLO_MS = 100.0
_WARMUP_S = 0.5


@dataclass(frozen=True, slots=True)
class DemoService:
    """`model` is the class that it serves; `rate_per_s` is the load it gets."""

    name: str
    model: type
    rate_per_s: float
    about: str


SERVICES = (
    DemoService("handwriting", Handwriting, 30.0, "which digit is it? the nearest of examples"),
    DemoService("tumours", Tumours, 10.0, "is it benign? fifty trees"),
)


class Load:
    """One load at a time, sent by a process of its own. `measured` has the facts by column and model; `after` has
    something done when the demo is over."""

    def __init__(self, url: str, token: str, *, after: Callable[[Callable[[], object]], None]) -> None:
        self._after = after
        self._url = url
        self._token = token
        self._running: tuple[str, subprocess.Popen[str]] | None = None
        self.measured: dict[str, dict[str, dict[str, Any]]] = {}

    def start(self, column: str, duration_s: float) -> None:
        command = [sys.executable, "-m", "shoal.demo.drive"]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._after(process.kill)
        asked = {
            "url": self._url, "token": self._token, "tenant": TENANT, "duration_s": duration_s,
            "warmup_s": _WARMUP_S, "seed": 7,
            "targets": [
                {"model": one.name, "rate_per_s": one.rate_per_s, "slo_s": SLO_MS / 1e3}
                for one in SERVICES
            ],
        }  # fmt: skip
        assert process.stdin is not None
        process.stdin.write(json.dumps(asked))
        process.stdin.close()
        process.stdin = None
        self._running = column, process

    def finish(self) -> None:
        """Wait for the load's end. Raises ShoalError if it could not be sent."""
        if self._running is None:
            return
        column, process = self._running
        self._running = None
        out, err = process.communicate(timeout=120.0)
        if process.returncode:
            raise ShoalError(f"the load could not be sent: {err.strip().splitlines()[-1:] or 'no reason given'}")
        self.measured[column] = json.loads(out)
