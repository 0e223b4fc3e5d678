"""Plan of what this Shoal would do to a home when it starts there. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from shoal.contract.lifecycle import ACTIVE, JobState

_ROOM = 2.0
"""A backup is written beside a copy of the database."""
_LEAST_BYTES = 64 << 20


class Set(Protocol):
    """A set of tables as it stands; see `shoal.store.Standing`."""

    @property
    def name(self) -> str: ...
    @property
    def revision(self) -> str | None: ...
    @property
    def head(self) -> str: ...
    @property
    def steps(self) -> tuple[str, ...] | None: ...


@dataclass(frozen=True, slots=True)
class Step:
    """What happens to one component's tables: `does` is `nothing`, `made`, `migrated` or `refused`."""

    tables: str
    has: str | None
    will_have: str
    does: str


def step_of(one: Set) -> Step:
    if one.steps is None:
        does = "refused"
    elif one.revision is None:
        does = "made"
    else:
        does = "migrated" if one.steps else "nothing"
    return Step(one.name or "store", one.revision, one.head, does)


@dataclass(frozen=True, slots=True)
class LiveWork:
    """A job or service that is not over, and what becomes of it."""

    kind: str
    id: str
    tenant: str
    name: str
    state: str
    then: str


def then_of(kind: str, state: str) -> str:
    """What becomes of it over the upgrade."""
    if kind == "service":
        return "its replicas serve on"
    if kind == "plane":
        return "its jobs run on; its own tables are brought up when it wakes"
    if state in (JobState.RUNNING, JobState.CHECKPOINTING):
        return "its processes run on, and are adopted"
    return "is gone on with" if state in ACTIVE else "waits on"


@dataclass(frozen=True, slots=True)
class Disk:
    """Of the folder that backups go to."""

    folder: str
    database_bytes: int
    free_bytes: int

    @property
    def needed_bytes(self) -> int:
        return max(_LEAST_BYTES, round(self.database_bytes * _ROOM))

    @property
    def fits(self) -> bool:
        return self.free_bytes >= self.needed_bytes


def obstacles(steps: Sequence[Step], disk: Disk | None, damaged: str | None) -> list[str]:
    """What has to be done before; empty where nothing stands in the way."""
    found = []
    if damaged is not None:
        found.append(f"the database is damaged: {damaged}. Restore a backup before anything else")
    for one in steps:
        if one.does == "refused":
            found.append(
                f"the tables of {one.tables} have revision {one.has!r}, which this Shoal does not know: a newer one "
                "made it. Use that one, or restore a backup from before its upgrade"
            )
    if disk is not None and not disk.fits and any(one.does == "migrated" for one in steps):
        found.append(
            f"{disk.folder} has {disk.free_bytes >> 20} MiB free, and the backup before the upgrade needs "
            f"{disk.needed_bytes >> 20} MiB"
        )
    return found


def counts(kept: Sequence[LiveWork]) -> Mapping[str, int]:
    """How many there are of each kind and fate, most first."""
    found: dict[str, int] = {}
    for one in kept:
        what = f"{one.kind}: {one.then}"
        found[what] = found.get(what, 0) + 1
    return dict(sorted(found.items(), key=lambda item: -item[1]))
