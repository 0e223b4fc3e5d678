"""This machine as the guard's loop sees it: sensors put together to a snapshot, a plan carried out by the chain of
actuators, every change in a write-ahead log, and a watchdog that takes them back if the guard is gone.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from shoal.core import Capability, LeaseLost, PriorityClass
from shoal.host import actuators, sensors
from shoal.host.actuators.pace import Pace
from shoal.host.actuators.reconcile import Reconciler, place
from shoal.host.guard.affinity import CpuAffinity
from shoal.host.guard.config import GroupConfig, GuardConfig
from shoal.host.guard.hostlock import HostLock
from shoal.host.guard.reporting import Reporting
from shoal.host.linux import native, topology
from shoal.host.linux.fs import LINUX, Kernel
from shoal.host.linux.members import NONE_FOUND, Found, Members, Membership
from shoal.host.linux.topology import Topology
from shoal.host.sensors import Work
from shoal.host.sensors.latency import pinned
from shoal.host.sensors.senses import Senses
from shoal.host.types import UNLIMITED, Applied, Group, Missing, Plan, Setting, Snapshot
from shoal.host.undo.watchdog import Watchdog
from shoal.host.undo.write_ahead_log import WriteAheadLog

_RENEW_S = 1.0
"""A fifth of the watchdog's lease."""
RECHECK_S = 5.0
"""A hypervisor that moves CPUs does so within seconds."""
_UNBOUND_S = 2.0
"""After a binding was lifted, until where the group's threads run is surely known again."""


class LiveHost:
    """Opened once; `close` leaves the machine as it was found. With `look_only` nothing is ever changed: for dry runs
    and for finding out what works here.

    `measure` finds the domains of a virtual machine again.
    Raises Conflict when another guard works on this host.
    """

    def __init__(
        self,
        config: GuardConfig,
        folder: Path,
        *,
        look_only: bool = False,
        measure: Callable[[Topology], Topology] = topology.again,
        kernel: Kernel = LINUX,
    ) -> None:
        self._lock = None if look_only else HostLock(folder)
        self._groups = _members(config.groups)
        self._look_only = look_only
        self._probing = True
        self._scratch = tempfile.TemporaryDirectory(prefix="shoal-guard-") if look_only else None
        log = Path(self._scratch.name) if self._scratch else folder
        self._wal = WriteAheadLog(log / "write-ahead.jsonl", kernel=kernel)
        self.left = self._wal.left
        self.topology = topology.here()
        self._domains = {one.id: one for one in self.topology.domains}
        self._moves = TopologyWatch(self.topology, measure)
        self._membership = Membership(self._groups, kernel=kernel)
        self._found: Mapping[str, Found] = {}
        self._probe = _probe()
        self._steps = sensors.StepTimes(_rings(config.groups))
        self._reporting = Reporting(config.groups)
        self._senses = Senses(
            self.topology.domains,
            self._membership,
            sensors.standard(
                self.topology.domains, steps=self._steps, reports=self._reported,
                shoot=self._shooter(kernel), probing=lambda: self._probing,
                wal=None if look_only else self._wal, kernel=kernel,
            ),
            capacity=config.capacity,
            kernel=kernel,
        )  # fmt: skip
        self._pace = Pace()
        self._chain = actuators.standard(
            self._wal, self._domains, unhindered=self._senses.unhindered, pace=self._pace,
            kernel=kernel, allow=config.actuators.mechanisms,
        )  # fmt: skip
        self._controls, self._least_share = self._chain.controls, self._chain.least_share
        self._watchdog = None if look_only else Watchdog(self._wal, keep=self._lock.fds if self._lock else ())
        if not look_only and any(one.name == Pace.name and one.available for one in self._chain.capabilities()):
            self._pace.prepare(max(os.sched_getaffinity(0)))
        self._reconciler = Reconciler(self._chain, self._wal, self._pace)
        self._at = 0.0
        self._renewed_at = 0.0
        self._free: dict[str, frozenset[int]] = {}
        self._bound_at: dict[str, float] = {}
        self._affinity = CpuAffinity() if not look_only else None

    @property
    def _best_effort(self) -> list[Group]:
        return [group for group, _ in self._groups.values() if group.priority_class is PriorityClass.BEST_EFFORT]

    def exchange(self, groups: Sequence[GroupConfig]) -> None:
        """Guard these groups from the next tick on. What was learned of those that stay is kept; those that are gone
        are left as they were found."""
        self._groups = _members(groups)
        self._membership.groups = self._groups
        self._steps.exchange(_rings(groups))
        self._reporting.exchange(groups)
        for name in (self._free.keys() | self._bound_at.keys()) - self._groups.keys():
            self._free.pop(name, None)
            self._bound_at.pop(name, None)

    def sense(self, now: float) -> Snapshot:
        self._at = now
        self._follow_cpus(now)
        sensed = self._senses.read(
            now,
            self._reconciler.last.settings,
            controls=self._controls,
            least_share=self._least_share,
            free=self._free_cpus,
        )
        if sensed.found is not self._found:
            self._found = sensed.found
            if self._affinity is not None:
                self._affinity.move(self._slowed())
        self._probing = any(
            one.step_s.known() is None or isinstance(one.alone_s.value, Missing)
            for one in sensed.snapshot.of(PriorityClass.GUARANTEED)
        )
        return sensed.snapshot

    def apply(self, plan: Plan) -> Applied:
        """Raises LeaseLost when the watchdog took everything back; the next call begins anew."""
        self._renew()
        return self._reconciler.apply(
            {name: group for name, (group, _) in self._groups.items()},
            {name: self._possible(plan.settings.get(name, UNLIMITED)) for name in self._groups},
            {name: self._found.get(name, NONE_FOUND) for name in self._groups},
            self._at,
            look_again=self._look_again,
        )

    def _look_again(self) -> Mapping[str, Found]:
        self._membership.look_again()
        self._found = self._membership.refresh(self._at)
        return self._found

    def capabilities(self) -> dict[str, tuple[Capability, ...]]:
        """What works here, by what it is for."""
        return {
            "sensors": (native.capability(), *self._senses.capabilities()),
            "actuators": self._chain.capabilities(),
        }

    def unmatched(self, now: float) -> dict[str, str]:
        """What of groups' definitions matches no process at `now` (monotonic seconds), by group."""
        found = self._membership.refresh(now)
        return {name: one.unmatched for name, one in found.items() if one.unmatched}

    def close(self) -> tuple[str, ...]:
        """Leave everything as it was found; returns what could not be, in sentences."""
        with suppress(OSError):
            self._chain.restore()
        self._pace.close()
        self._senses.close()
        self._reporting.close()
        self._moves.close()
        if self._probe is not None:
            self._probe.close()
        problems = self._wal.close()
        if self._watchdog is not None:
            self._watchdog.close()
        if self._scratch is not None:
            self._scratch.cleanup()
        if self._affinity is not None:
            self._affinity.leave()
        if self._lock is not None:
            self._lock.close()
        return problems

    def _renew(self) -> None:
        """No limit without a watchdog that lives."""
        if self._watchdog is None:
            if not self._look_only:
                self._watchdog = Watchdog(self._wal, keep=self._lock.fds if self._lock else ())
            return
        if self._at - self._renewed_at < _RENEW_S:
            return
        self._renewed_at = self._at
        try:
            self._watchdog.renew()
        except LeaseLost:
            lost, self._watchdog = self._watchdog, None
            lost.close()
            self._chain.restore()
            self._wal.revert()
            self._reconciler.begin_anew()
            raise

    def _shooter(self, kernel: Kernel) -> Callable[[int], float] | None:
        """The probe, fired where guaranteed work runs: on a paced core it would measure the pacing."""
        if self._probe is None:
            return None
        fire = pinned(self._probe.shot, kernel=kernel)

        def shoot(cpu: int) -> float:
            home = self.topology.domain_of(cpu)
            guaranteed = [name for name, (group, _) in self._groups.items() if group not in self._best_effort]
            cpus = frozenset[int]().union(*(self._found.get(name, NONE_FOUND).cpus for name in guaranteed))
            near = cpus & home.cpus if home is not None else cpus
            if not near and cpu in self._slowed():
                raise OSError("all that runs there may be slowed down, and the probe with it")
            return fire(min(near, default=cpu))

        return shoot

    def _reported(self, now: float) -> Mapping[str, Work]:
        return self._reporting.work(now, self._found)

    def _follow_cpus(self, now: float) -> None:
        """A hypervisor moves virtual CPUs between memory domains as it likes."""
        moved = self._moves.look(now)
        if moved is None:
            return
        self.topology = moved
        self._domains.clear()
        self._domains.update({one.id: one for one in moved.domains})
        self._senses.move(moved.domains)
        self._chain.probe()
        self._controls, self._least_share = self._chain.controls, self._chain.least_share

    def _possible(self, setting: Setting) -> Setting:
        """Without domains that a moment ago there still were."""
        if setting.domains is None:
            return setting
        return replace(setting, domains=setting.domains & self._domains.keys() or None)

    def _free_cpus(self, name: str, found: Found) -> frozenset[int]:
        """Where a group runs when no limit of ours binds it, as it was seen last; none if it has no processes."""
        if not found.processes:
            self._free.pop(name, None)
            return frozenset()
        limit = self._reconciler.last.settings.get(name, UNLIMITED)
        if place(limit) != place(UNLIMITED):
            self._bound_at[name] = self._at
        unbound = self._at - self._bound_at.get(name, float("-inf")) > _UNBOUND_S
        if unbound or found.cpus > self._free.get(name, frozenset()):
            self._free[name] = found.cpus
        return self._free[name]

    def _slowed(self) -> frozenset[int]:
        return frozenset[int]().union(*(self._found.get(one.name, NONE_FOUND).exclusive for one in self._best_effort))


class TopologyWatch:
    """Measures a virtual machine's domains anew every few seconds, in a thread: with many CPUs it takes longer than a
    tick. `measure` is `shoal.host.linux.topology.again`."""

    def __init__(self, known: Topology, measure: Callable[[Topology], Topology] = topology.again) -> None:
        self._known, self._measure = known, measure
        self._at = float("-inf")  # at the start everything was busy, and what was found may be sysfs's word
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="guard-topology")
        self._asked: Future[Topology] | None = None

    def look(self, now: float) -> Topology | None:
        """The topology, if it is another one than when it was asked for last."""
        if not self._known.virtual:
            return None
        if self._asked is not None and self._asked.done():
            asked, self._asked = self._asked, None
            found = asked.result()
            if found.domains != self._known.domains:
                self._known = found
                return found
        elif self._asked is None and now - self._at >= RECHECK_S:
            self._at = now
            self._asked = self._thread.submit(self._measure, self._known)
        return None

    def close(self) -> None:
        self._thread.shutdown()


def _members(groups: Iterable[GroupConfig]) -> dict[str, tuple[Group, Members]]:
    return {one.name: (one.group, one.members) for one in groups}


def _rings(groups: Iterable[GroupConfig]) -> dict[str, Path]:
    return {one.name: one.ring for one in groups if one.ring is not None}


def _probe() -> native.LatencyProbe | None:
    found = native.load()
    return None if isinstance(found, Missing) else native.LatencyProbe(found)
