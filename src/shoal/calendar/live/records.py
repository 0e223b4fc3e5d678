"""Cron jobs as they are stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from shoal.calendar.schedule import Missed, Overlap, Schedule
from shoal.contract.manifest import JobManifest, parse_stored


@dataclass(frozen=True)
class CronRecord:
    """One row; see `tables.cron`."""

    id: str
    tenant: str
    name: str
    version: int
    expression: str
    zone: str
    overlap: Overlap
    missed: Missed
    suspended: bool
    manifest: str
    created_by: str
    created_at: float
    updated_at: float
    position: float
    last_job: str | None = None
    last_at: float | None = None
    replaces: str | None = None
    trouble: str = ""

    @property
    def schedule(self) -> Schedule:
        return Schedule(self.expression, self.zone)

    @cached_property
    def job(self) -> JobManifest:
        return parse_stored(self.manifest, source=self.name)

    @property
    def definition(self) -> tuple[object, ...]:
        """What a person says of it."""
        return self.expression, self.zone, self.overlap, self.missed, self.manifest


@dataclass(frozen=True, slots=True)
class Entry:
    """What a version of a cron job tells, as an event of this kind. `due_at` is the time that it was for, and `job` is
    what was submitted."""

    kind: str
    text: str
    at: float = 0.0
    job: str | None = None
    due_at: float | None = None


def values_of(record: CronRecord) -> dict[str, Any]:
    """As the table has it."""
    values = {one.name: getattr(record, one.name) for one in fields(record)}
    return values | {"overlap": record.overlap.value, "missed": record.missed.value, "suspended": int(record.suspended)}


def cron_of(row: Sequence[Any]) -> CronRecord:
    values = dict(zip([one.name for one in fields(CronRecord)], row, strict=True))
    values |= {
        "overlap": Overlap(values["overlap"]), "missed": Missed(values["missed"]),
        "suspended": bool(values["suspended"]),
    }  # fmt: skip
    return CronRecord(**values)
