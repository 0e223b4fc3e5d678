"""A guard whose groups are in a file that another process writes anew as work comes and goes."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from shoal.core import Invalid, PriorityClass
from shoal.host.guard.config import FollowedConfig, GuardConfig, read_config
from shoal.host.guard.live import LiveHost
from shoal.host.guard.loop import aged
from shoal.host.types import Applied, Plan, Snapshot

_IDLE_SENSE_S = 0.5
"""How often is enough while there is nothing to protect, or nothing to protect from."""
_FOLLOW_S = 0.25
"""How old what the file says may be: to ask for it costs as much as to read a ring."""


class FollowedFile:
    """A configuration file. It is to be replaced whole, as by `rename`."""

    def __init__(self, path: Path) -> None:
        self.path, self._name = path, str(path)
        self._seen: tuple[int, int, int] | None = None

    def changed(self) -> GuardConfig | None:
        """What it says, if it was written since the last call. Raises Invalid once for each time that it is wrong or
        gone."""
        try:
            found = os.stat(self._name)  # noqa: PTH116 - at each tick
            seen = (found.st_ino, found.st_mtime_ns, found.st_size)
        except OSError:
            seen = (0, 0, 0)
        if seen == self._seen:
            return None
        self._seen = seen
        return read_config(self.path, kind=FollowedConfig)


class Following:
    """A host whose groups follow a file, looked at each _FOLLOW_S. What is wrong in it is told among the faults of a
    tick, and the groups stay what they were. Its other settings hold from the start of the guard. `note` gets what the
    guard's owner should know."""

    def __init__(self, host: LiveHost, file: FollowedFile, *, note: Callable[[str], None] = lambda _: None) -> None:
        self._host, self._file, self._note = host, file, note
        self._fault: str | None = None
        self._rest: dict[str, Any] | None = None
        self._idle = False
        self._last: Snapshot | None = None
        self._followed_at = float("-inf")

    def sense(self, now: float) -> Snapshot:
        if now - self._followed_at >= _FOLLOW_S:
            self._followed_at = now
            self._follow()
        if self._last is None or not self._idle or now - self._last.at >= _IDLE_SENSE_S:
            self._last = self._host.sense(now)
            return self._last
        return aged(self._last, now)

    def _follow(self) -> None:
        try:
            told = self._file.changed()
        except Invalid as problem:
            self._fault = f"{problem}: its groups stay what they were"
            self._note(self._fault)
        else:
            if told is not None:
                self._host.exchange(told.groups)
                self._idle = {one.priority_class for one in told.groups} != set(PriorityClass)
                self._last = None
                rest = told.model_dump(exclude={"groups"})
                if rest != (self._rest or rest):
                    self._note("of the changed configuration only the groups are followed: start the guard again")
                self._rest = rest

    def apply(self, plan: Plan) -> Applied:
        done = self._host.apply(plan)
        fault, self._fault = self._fault, None
        return done if fault is None else replace(done, errors=(fault, *done.errors))
