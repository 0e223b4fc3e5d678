"""Groups brought to their settings at every tick: first where all of them run, then how fast.

Nothing here remembers what is in force. Each mechanism reads it from the kernel, changes what differs, and says what
holds. So a limit that others took away is set again and told, or is not among what is in force.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from shoal.host.actuators.chain import LIMITING, PLACING, ActuatorChain, Turned
from shoal.host.actuators.pace import Pace
from shoal.host.linux.members import NONE_FOUND, Found
from shoal.host.types import UNLIMITED, Applied, Control, Group, Setting
from shoal.host.undo.write_ahead_log import WriteAheadLog

_NOTHING = Turned()


class Reconciler:
    """`last` is what the last call found to be in force."""

    def __init__(self, chain: ActuatorChain, wal: WriteAheadLog, pace: Pace | None = None) -> None:
        self.last = Applied()
        self._chain, self._wal, self._pace = chain, wal, pace
        self._told: dict[str, tuple[str, ...]] = {}

    def apply(
        self,
        groups: Mapping[str, Group],
        settings: Mapping[str, Setting],
        found: Mapping[str, Found],
        now: float,
        *,
        look_again: Callable[[], Mapping[str, Found]],
    ) -> Applied:
        """Bring all groups to their settings. `look_again` finds their processes anew once some were moved: only cores
        without guaranteed work are paced. A problem is told once, until it is another."""
        before = self.last.settings
        errors: list[str] = []
        if self._pace is not None:
            if not self._pace.works():
                errors.append("pace: the process that paces cores has ended: started again")
            self._pace.renew()
        for gone in before.keys() - groups.keys():
            self._chain.release(gone)
        placed = {name: self._turn(group, settings, found, now, PLACING) for name, group in groups.items()}
        if any(place(one.setting) != place(before.get(name, UNLIMITED)) for name, one in placed.items()):
            found = look_again()
        in_force: dict[str, Setting] = {}
        by: dict[str, tuple[str, ...]] = {}
        told: dict[str, tuple[str, ...]] = {}
        for name, group in groups.items():
            if not found.get(name, NONE_FOUND).processes:
                if name in before:
                    self._chain.release(name)
                continue
            limited, where = self._turn(group, settings, found, now, LIMITING), placed[name].setting
            in_force[name] = replace(limited.setting, cpus=where.cpus, domains=where.domains, cores=where.cores)
            by[name] = (*placed[name].by.values(), *limited.by.values())
            told[name] = (*placed[name].problems, *limited.problems)
            errors += [f"{name}: {one}" for one in told[name] if one not in self._told.get(name, ())]
        self._told = told
        self.last = Applied(
            in_force, (*errors, *self._wal.take_repairs()), {name: one for name, one in by.items() if one}
        )
        return self.last

    def begin_anew(self) -> None:
        """Everything was taken back."""
        self.last = Applied()
        self._told.clear()
        self._wal.take_repairs()

    def _turn(
        self,
        group: Group,
        settings: Mapping[str, Setting],
        found: Mapping[str, Found],
        now: float,
        controls: Collection[Control],
    ) -> Turned:
        members = found.get(group.name, NONE_FOUND)
        if not members.processes:
            return _NOTHING
        return self._chain.apply(group, members, settings.get(group.name, UNLIMITED), now, controls=controls)


def place(setting: Setting) -> tuple[object, ...]:
    """The part of a setting that says where a group runs."""
    return setting.cpus, setting.domains, setting.cores
