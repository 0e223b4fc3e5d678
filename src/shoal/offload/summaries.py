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
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.offload.profile import PROFILE, REASONS, CallRecord, read_profiles

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


@dataclass(frozen=True, slots=True)
class Summary:
    """Seconds and calls by backend, those that stayed with the plain library by reason, and the seconds less than the
    plain library is estimated to take."""

    seconds: dict[str, float]
    calls: dict[str, int]
    stayed: dict[str, int]
    saved: float


def summary(records: Sequence[CallRecord]) -> Summary:
    seconds: dict[str, float] = defaultdict(float)
    calls: dict[str, int] = defaultdict(int)
    stayed: dict[str, int] = defaultdict(int)
    for each in records:
        seconds[each.backend] += each.seconds
        calls[each.backend] += each.calls
        if each.backend == "plain":
            stayed[each.reason] += each.calls
    return Summary(dict(seconds), dict(calls), dict(stayed), sum(each.saved for each in records))


def told(found: Summary) -> str:
    """One line: calls and seconds by backend, and the most frequent reason to stay. Empty without calls."""
    if not found.calls:
        return ""
    parts = [f"{found.calls[name]} calls in {name} {found.seconds[name]:.2f} s" for name in sorted(found.calls)]
    if found.saved > 0:
        parts.append(f"about {found.saved:.2f} s saved")
    if found.stayed:
        reason = max(found.stayed, key=lambda each: found.stayed[each])
        parts.append(f"most that stayed: {REASONS[reason]}")
    return ", ".join(parts)


def sentence(record: CallRecord) -> str:
    text = REASONS[record.reason]
    return f"{text}: {record.detail}" if record.detail else text


def annotated(path: Path, records: Sequence[CallRecord]) -> list[str]:
    """The source with seconds and backends before the lines that have any. Raises OSError."""
    by_line: dict[int, list[CallRecord]] = defaultdict(list)
    for each in records:
        if each.file == str(path):
            by_line[each.line].append(each)
    lines = []
    for number, text in enumerate(path.read_text(errors="replace").splitlines(), start=1):
        own = by_line.get(number, ())
        seconds = sum(each.seconds for each in own)
        backends = ",".join(sorted({each.backend for each in own}))
        before = f"{seconds * 1e3:9.2f} ms {backends:14.14}" if own else " " * 27
        lines.append(f"{before} {number:4} {text}".rstrip())
    return lines
