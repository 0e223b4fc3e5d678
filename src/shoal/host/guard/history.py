"""History from a journal: the last tick, and the changes of limits with their reasons."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from shoal.core import Invalid, NotFound, Reason
from shoal.host.guard.journal import Head, adapter, files_of, last_records, read_journal
from shoal.host.guard.loop import Record
from shoal.host.linux.fs import LINUX, Kernel, start_time
from shoal.host.policy.model import MEASURING
from shoal.host.types import UNLIMITED, Setting

STALE_TICKS_S = 5.0
RECENT_S = 60.0
"""A fault is shown for so long: one that was repaired at once is in a single tick."""


@dataclass(frozen=True, slots=True)
class Change:
    """A group's limit became `setting` at `at` (Unix time), because of `reason`; the mechanisms `by` hold it."""

    at: float
    group: str
    before: Setting
    setting: Setting
    reason: Reason | None
    dry_run: bool = False
    by: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "at": self.at, "group": self.group, "before": setting_json(self.before),
            "setting": setting_json(self.setting), "reason": self.reason.as_json() if self.reason else None,
            "dry_run": self.dry_run, "by": list(self.by),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fault:
    """What went wrong at `at` (Unix time): a sensor, a mechanism, the policy, or a limit that others took away. Of
    one group if it says so first."""

    at: float
    text: str

    def of(self, group: str | None) -> bool:
        return group is None or self.text.startswith(f"{group}: ")

    def as_json(self) -> dict[str, Any]:
        return {"at": self.at, "fault": self.text}


@dataclass(frozen=True, slots=True)
class Present:
    """The last tick of a journal, `age_s` old, and the guard that wrote it."""

    head: Head
    record: Record
    age_s: float
    running: bool
    faults: tuple[Fault, ...] = ()
    """Of the last minute."""

    def as_json(self) -> dict[str, Any]:
        return {
            "running": self.running, "pid": self.head.pid, "policy": self.head.policy, "age_s": self.age_s,
            "dry_run": self.record.dry_run,
            "tick": adapter(Record).dump_python(self.record, mode="json"),
            "faults": [one.as_json() for one in self.faults],
        }  # fmt: skip


def present(path: Path, *, kernel: Kernel = LINUX, now: float | None = None) -> Present:
    """Raises `Invalid` for what is no journal, NotFound if it has no tick yet."""
    found = last_records(path, 1)
    if found or path.stat().st_size:
        head, _ = read_journal(path)
    if not found:
        raise NotFound("the journal has no tick yet", where=str(path))
    age_s = max(0.0, (time.time() if now is None else now) - _unix(head, found[0].at))
    alive = head.started > 0 and start_time(kernel, head.pid) == head.started
    recent = tuple(one for one in faults(path) if one.at >= _unix(head, found[0].at) - RECENT_S)
    return Present(head, found[0], age_s, alive and age_s < STALE_TICKS_S, recent)


def faults(path: Path, *, group: str | None = None, last: int = 20) -> list[Fault]:
    """The newest in the journal's newest file, the newest last."""
    head, _ = read_journal(path)
    found = [
        Fault(_unix(head, record.at), text)
        for record in last_records(path, last, having=b'"faults":')
        for text in record.faults
    ]
    return [one for one in found if one.of(group)][-last:]


def changes(path: Path, *, group: str | None = None, last: int = 20) -> list[Change]:
    """The newest changes of limits, the newest last. Pauses to measure are none. Raises NotFound for a group that the
    journal never saw, `Invalid` for what is no journal."""
    kept: deque[Change] = deque(maxlen=last)
    seen: set[str] = set()
    for file in files_of(path):
        kept.extend(_changes(file, group, seen))
    if group is not None and group not in seen:
        hint = f"it saw {', '.join(sorted(seen))}" if seen else "it saw no group"
        raise NotFound(f"the journal knows no group {group!r}", where=str(path), hint=hint)
    return list(kept)


def setting_json(setting: Setting) -> dict[str, Any]:
    """Only what is limited."""
    plain, free = asdict(setting), asdict(UNLIMITED)
    return {
        name: sorted(value) if isinstance(value, frozenset) else value
        for name, value in plain.items() if value != free[name]
    }  # fmt: skip


def _changes(file: Path, group: str | None, seen: set[str]) -> Iterator[Change]:
    try:
        head, records = read_journal(file)
    except Invalid:
        if file.stat().st_size == 0:
            return
        raise
    before: Mapping[str, Setting] | None = None
    for record in records:
        seen.update(one.group.name for one in record.snapshot.groups)
        now = {
            name: replace(one, frozen=False) if _measures(record, name) else one
            for name, one in record.plan.settings.items()
        }
        now = {name: one for name, one in now.items() if one != UNLIMITED}
        for name in sorted({*now, *(before or {})}) if before is not None else sorted(now):
            old, new = (before or {}).get(name, UNLIMITED), now.get(name, UNLIMITED)
            if old != new and group in (None, name):
                yield Change(
                    _unix(head, record.at), name, old, new, record.plan.reasons.get(name), record.dry_run,
                    record.by.get(name, ()),
                )  # fmt: skip
        before = now


def _measures(record: Record, name: str) -> bool:
    reason = record.plan.reasons.get(name)
    return reason is not None and reason.code == MEASURING


def _unix(head: Head, at: float) -> float:
    return head.started_at + at - head.monotonic_at
