"""Summaries of a program's calls, in one line as it ends; and among a job's metrics, while it runs."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shoal.offload.listing import Summary, summary, told
from shoal.offload.profile import PROFILE, REASONS, read_profiles

_PREFIX = "offload/"
_SECONDS, _CALLS, _STAYED, _SAVED = "seconds/", "calls/", "stayed/", "saved_s"
_WORD = re.compile(r"[a-z][a-z0-9_-]{0,31}")
"""A backend or a reason: these are shown to others than the tenant whose program wrote them."""

_EVERY_S = 10.0


def as_metrics(found: Summary) -> dict[str, float]:
    """By names that begin with `offload/`."""
    return {
        **{f"{_PREFIX}{_SECONDS}{backend}": round(value, 6) for backend, value in found.seconds.items()},
        **{f"{_PREFIX}{_CALLS}{backend}": value for backend, value in found.calls.items()},
        **{f"{_PREFIX}{_STAYED}{reason}": value for reason, value in found.stayed.items()},
        _PREFIX + _SAVED: round(found.saved, 6),
    }


def from_metrics(metrics: Mapping[str, Any]) -> Summary | None:
    """What a job's metrics say, which its program may have written itself; None where they say nothing of it."""
    parts: dict[str, dict[str, float]] = {_SECONDS: {}, _CALLS: {}, _STAYED: {}}
    for name, value in metrics.items():
        for part, values in parts.items():
            word = name.removeprefix(_PREFIX + part)
            if word != name and _WORD.fullmatch(word):
                values[word] = float(value)
    if not parts[_CALLS]:
        return None
    seconds = {name: parts[_SECONDS].get(name, 0.0) for name in parts[_CALLS]}
    calls = {name: int(value) for name, value in parts[_CALLS].items()}
    stayed = {name: int(value) for name, value in parts[_STAYED].items() if name in REASONS}
    return Summary(seconds, calls, stayed, float(metrics.get(_PREFIX + _SAVED, 0.0)))


class Summaries:
    """One line on stderr as this process ends; in a job, metrics of all its processes, now and then and at the end."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        run, file = environ.get("SHOAL_RUN", ""), environ.get("SHOAL_METRICS_FILE", "")
        self._metrics = Path(file) if run and file else None
        self._folder = Path(run) / "offload"
        self._over = threading.Event()
        self._last: dict[str, float] = {}

    def begin(self) -> None:
        atexit.register(self._print)
        if self._metrics is not None:
            atexit.register(self._tell)
            threading.Thread(target=self._loop, name="shoal-offload-summary", daemon=True).start()

    def end(self) -> None:
        self._over.set()
        atexit.unregister(self._print)
        atexit.unregister(self._tell)

    def _loop(self) -> None:
        while not self._over.wait(_EVERY_S):
            self._tell()

    def _print(self) -> None:
        text = told(summary(PROFILE.records()))
        if text:
            print(f"shoal offload: {text}", file=sys.stderr)

    def _tell(self) -> None:
        """What cannot be written is lost, and the program goes on."""
        assert self._metrics is not None
        with contextlib.suppress(OSError, ValueError):
            self._folder.mkdir(exist_ok=True)
            PROFILE.write(self._folder)
            metrics = as_metrics(summary(read_profiles(self._folder)[0]))
            if metrics == self._last or len(metrics) == 1:
                return
            line = json.dumps({"at": time.time(), "metrics": metrics}) + "\n"
            fd = os.open(self._metrics, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            try:
                os.write(fd, line.encode())
            finally:
                os.close(fd)
            self._last = metrics
