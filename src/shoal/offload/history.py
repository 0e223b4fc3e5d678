"""Seconds that could have been saved, by what would have saved them, over the runs of this machine: what takes long to
load or to compile is made ready for the next run."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from shoal.base.files import write_whole

_MOST = 500
"""Entries that are kept: those with the most seconds."""


class History:
    """What the runs before noted, and what this one adds. A folder that cannot be written keeps nothing."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "history.json"
        self._before = self._read()
        self._now: dict[str, float] = {}
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._now = {}

    def _read(self) -> dict[str, float]:
        try:
            told = json.loads(self._file.read_text())
            return {str(key): float(value) for key, value in told.items()}
        except (OSError, ValueError, AttributeError, TypeError):
            return {}

    def add(self, key: str, seconds: float) -> float:
        """Note seconds; answers all that are known, of this run and those before."""
        if len(self._now) > _MOST:
            self._now = dict(_largest(self._now, _MOST // 2))
        self._now[key] = self._now.get(key, 0.0) + seconds
        return self._now[key] + self._before.get(key, 0.0)

    def save(self) -> None:
        if sum(self._now.values()) < 0.1:
            return
        found = self._read()
        for key, seconds in self._now.items():
            found[key] = found.get(key, 0.0) + seconds
        kept = dict(_largest(found, _MOST))
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._file, json.dumps(kept), durable=False)
        except OSError:
            return  # a read-only home: every run starts anew


def _largest(entries: Mapping[str, float], count: int) -> list[tuple[str, float]]:
    return sorted(entries.items(), key=lambda each: -each[1])[:count]
