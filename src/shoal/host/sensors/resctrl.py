"""Memory bandwidth and cache occupancy by resctrl's monitors: of each domain, and of each group.

They count what cores fetch, not what devices read and write by DMA. A group is counted where its control group is, or
in a monitoring group of our own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shoal.core import Capability, ShoalError
from shoal.host.linux.fs import LINUX, Kernel
from shoal.host.linux.members import Found
from shoal.host.sensors.base import FIRST, Key, Quantity, Rates, Readings, Scope, missing
from shoal.host.types import Domain, Missing, Reading
from shoal.host.undo.cgroups import own_name
from shoal.host.undo.resctrl import Resctrl, l3_of
from shoal.host.undo.write_ahead_log import WriteAheadLog

_TOTAL = "mbm_total_bytes"
_COSTS = "who takes how much memory bandwidth is not known; the latency probe stands in for how contended memory is"


class ResctrlMonitor:
    """With `wal`, groups that have no control group get a monitoring group."""

    name = "mbm"

    def __init__(self, domains: Sequence[Domain], *, kernel: Kernel = LINUX, wal: WriteAheadLog | None = None) -> None:
        self._domains = domains
        self._kernel = kernel
        self._wal = wal
        self._rates = Rates()
        self._summed: dict[object, tuple[str, ...]] = {}
        self._assigned: dict[str, tuple[str, Found]] = {}
        self._features: frozenset[str] = frozenset()
        self._why = "this machine does not count memory bandwidth by group"
        try:
            self._resctrl = Resctrl.find(kernel)
            self._features = self._resctrl.monitors()
        except (OSError, ShoalError) as problem:
            self._why = str(problem)

    def capability(self) -> Capability:
        if _TOTAL not in self._features:
            return Capability(self.name, False, self._why, _COSTS)
        return Capability(self.name, True, f"resctrl at {self._resctrl.root}: {', '.join(sorted(self._features))}")

    def read(self, now: float, found: Mapping[str, Found], since: float) -> Readings:  # noqa: ARG002
        if _TOTAL not in self._features:
            return {}
        readings: dict[Key, Reading] = {}
        for domain in self._domains:
            readings[Key(Quantity.BANDWIDTH, Scope.DOMAIN, domain.id)] = self._of_domain(domain, now)
        for name, members in found.items():
            readings[Key(Quantity.BANDWIDTH, Scope.GROUP, name)] = self._of_group(name, members, now)
        for gone in set(self._assigned) - set(found):
            self._leave(gone)
        return readings

    def close(self) -> None:
        for name in list(self._assigned):
            self._leave(name)

    def _of_domain(self, domain: Domain, now: float) -> Reading:
        """All control groups together: each counts its own tasks only."""
        cache = l3_of(self._kernel, min(domain.cpus))
        if cache is None:
            return missing("the id of its last-level cache is not known")
        try:
            groups = self._resctrl.groups()
        except OSError as problem:
            return missing(str(problem))
        sums = [self._sum(group, [self._directory(group, cache, domain)], _TOTAL) for group in groups]
        return self._rate(("domain", domain.id), groups, sums, now)

    def _of_group(self, name: str, members: Found, now: float) -> Reading:
        if not members.processes:
            self._leave(name)
            return missing("it has no processes")
        path = self._path(name) or self._enter(name, members)
        if isinstance(path, Missing):
            return Reading(path)
        self._assigned[name] = (path, members)
        return self._rate(("group", name), (path,), [self._sum(path, self._directories(path), _TOTAL)], now)

    def _path(self, name: str) -> str | None:
        """Of the group's control group, if it has one."""
        path = self._resctrl.path(name)
        return path if self._kernel.exists(path) else None

    def _enter(self, name: str, members: Found) -> str | Missing:
        """Have the group counted in a monitoring group; newcomers are added."""
        if self._wal is None:
            return Missing("it is counted only while it has a limit")
        path = f"{self._resctrl.root}/mon_groups/{own_name(name)}"
        before = self._assigned.get(name)
        same_place = before is not None and before[0] == path
        newcomers = members.processes - (before[1].processes if before is not None and same_place else frozenset())
        try:
            if newcomers:
                self._resctrl.make(self._wal, self._scope(name), path)
                self._resctrl.assign(path, newcomers)
        except (OSError, ShoalError) as problem:
            return Missing(str(problem))
        return path

    def _leave(self, name: str) -> None:
        if self._assigned.pop(name, None) is not None and self._wal is not None:
            self._wal.revert(self._scope(name))

    def _scope(self, name: str) -> str:
        return f"{name}/{self.name}"

    def _rate(self, key: object, of: tuple[str, ...], sums: Sequence[float | Missing], now: float) -> Reading:
        """One counter that cannot be read spoils the sum, and so does one that was not in it before."""
        known = [value for value in sums if not isinstance(value, Missing)]
        if len(known) < len(sums):
            self._rates.forget(key)
            return Reading(next(value for value in sums if isinstance(value, Missing)))
        if self._summed.get(key) != of:
            self._summed[key] = of
            self._rates.forget(key)
        rate = self._rates.rate(key, sum(known), now)
        return FIRST if rate is None else Reading(rate)

    def _directories(self, group: str) -> list[str]:
        try:
            return [f"{group}/mon_data/{name}" for name in self._kernel.names(f"{group}/mon_data") if "_L3_" in name]
        except OSError:
            return []

    def _directory(self, group: str, cache: int, domain: Domain) -> str:
        """With sub-NUMA clustering each half of a cache is counted for itself, by its node."""
        whole = f"{group}/mon_data/mon_L3_{cache:02d}"
        part = f"{whole}/mon_sub_L3_{min(domain.nodes):02d}"
        return part if self._kernel.exists(part) else whole

    def _sum(self, group: str, directories: Sequence[str], counter: str) -> float | Missing:
        if not directories:
            return Missing(f"{group} counts nothing")
        total, spoiled = 0, None
        for directory in directories:  # all of them: each may be Unavailable the first time only
            try:
                text = self._kernel.read(f"{directory}/{counter}").strip()
            except OSError as problem:
                spoiled = Missing(f"{directory}/{counter}: {problem.strerror}")
                continue
            if text.isdigit():
                total += int(text)
            else:  # Unavailable: not counted yet; Unassigned: no counter is free for it
                spoiled = Missing(f"{directory}/{counter} is {text}")
        if spoiled is not None:
            return spoiled
        return float(total)
