"""Readings of the guard about jobs, for other components: its last tick, as its journal has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.core import ShoalError
from shoal.host.types import UNLIMITED, DomainState, GroupState, Setting

if TYPE_CHECKING:
    from shoal.host.guard.loop import Record

_OLD_S = 5.0
"""The journal is a second late; a tick that is much older tells nothing of now."""
_READ_S = 10.0
"""The probe of the memory's latency is fired every few seconds. That is too seldom to limit anybody by, and often
enough to tell a minute from the one before."""


class GuardReadings:
    """By group. The journal is read only where somebody asked since it was read last."""

    def __init__(self, journal: Path, monotonic: Callable[[], float]) -> None:
        self._journal, self._monotonic = journal, monotonic
        self._known: Mapping[str, Mapping[str, float]] = {}
        self.wanted = False

    def of(self, group: str) -> Mapping[str, float]:
        self.wanted = True
        return self._known.get(group, {})

    def all(self) -> Mapping[str, Mapping[str, float]]:
        """What is known of each group, which is read again after this."""
        self.wanted = True
        return self._known

    def look(self) -> None:
        """Read the last tick."""
        from shoal.host.guard.journal import last_records

        self.wanted = False
        try:
            records = last_records(self._journal, 1)
        except ShoalError:
            records = []
        now = self._monotonic()
        self._known = by_group(records[0]) if records and now - records[0].at < _OLD_S else {}


def by_group(record: Record) -> dict[str, dict[str, float]]:
    """What the guard's tick says of each group. Pure. Of several domains, the one where it is worst; what is not known
    is left out."""
    domains = {one.domain.id: one for one in record.snapshot.domains}
    steal = record.snapshot.steal.known()
    found: dict[str, dict[str, float]] = {}
    for state in record.snapshot.groups:
        near = [domains[one] for one in state.domains if one in domains]
        setting = record.applied.get(state.group.name, UNLIMITED)
        told = {**dict(_of_domains(near)), **dict(_of_group(state, setting))}
        found[state.group.name] = told if steal is None else {**told, "steal": steal}
    return found


def _of_domains(near: list[DomainState]) -> Iterator[tuple[str, float]]:
    readings = {
        "memory_stall": [one.saturation for one in near],
        "memory_latency_ns": [one.latency_ns for one in near],
        "memory_bytes_per_s": [one.bandwidth for one in near],
    }
    for name, of in readings.items():
        known = [value for one in of if (value := one.known(stale_s=_READ_S)) is not None]
        if known:
            yield name, max(known)


def _of_group(state: GroupState, setting: Setting) -> Iterator[tuple[str, float]]:
    if (waiting := state.waiting) is not None:
        yield "cpu_wait", waiting
    if (throttled := state.throttled.known()) is not None:
        yield "cpu_throttled", throttled
    yield "guard_share", 0.0 if setting.frozen else setting.share
