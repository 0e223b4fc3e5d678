"""A plan carried out: first where groups run, for all of them, then how fast. Nothing is turned twice for the same."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from shoal.host import actuators
from shoal.host.actuators import LIMITING, PLACING, Ladder
from shoal.host.actuators.pace import Pace
from shoal.host.guard.loop import Applied
from shoal.host.members import Found
from shoal.host.types import UNLIMITED, Group, Knob, Setting

_NOTHING = actuators.Applied()


@dataclass(frozen=True, slots=True)
class _Done:
    """What was asked for, of which processes, and what came of it."""

    setting: Setting
    found: Found
    in_force: Setting
    by: tuple[str, ...]
    problems: tuple[str, ...]


class Acting:
    """`in_force` are the limits by group, of those that have processes."""

    def __init__(self, ladder: Ladder, pace: Pace) -> None:
        self.in_force: dict[str, Setting] = {}
        self._ladder, self._pace = ladder, pace
        self._done: dict[str, _Done] = {}
        self._last: Applied | None = None

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
        without guaranteed work are paced."""
        for gone in self.in_force.keys() - groups.keys():
            self._forget(gone)
        if not self._pace.works():
            self._done.clear()
        self._pace.renew()
        changed = {
            name: settings[name] for name in groups
            if (done := self._done.get(name)) is None
            or done.problems or done.setting != settings[name] or done.found is not found[name]
        }  # fmt: skip
        if not changed:
            return self._last or self._applied(())
        placed = {name: self._turn(groups[name], one, found[name], now, PLACING) for name, one in changed.items()}
        if any(place(one.setting) != place(self.in_force.get(name, UNLIMITED)) for name, one in placed.items()):
            found = look_again()
        errors: list[str] = []
        for name, setting in changed.items():
            if not found[name].processes:
                self._forget(name)
                continue
            limited = self._turn(groups[name], setting, found[name], now, LIMITING)
            where, problems = placed[name].setting, (*placed[name].problems, *limited.problems)
            known = self._done.get(name)
            errors += [f"{name}: {one}" for one in problems if known is None or one not in known.problems]
            self.in_force[name] = replace(limited.setting, cpus=where.cpus, domains=where.domains, cores=where.cores)
            by = (*placed[name].by.values(), *limited.by.values())
            self._done[name] = _Done(setting, found[name], self.in_force[name], by, problems)
        return self._applied(tuple(errors))

    def begin_anew(self) -> None:
        """Everything was taken back."""
        self.in_force.clear()
        self._done.clear()
        self._last = None

    def _applied(self, errors: tuple[str, ...]) -> Applied:
        by = {name: one.by for name, one in self._done.items() if one.by}
        self._last = Applied(dict(self.in_force), (), by)
        return replace(self._last, errors=errors) if errors else self._last

    def _turn(
        self, group: Group, setting: Setting, found: Found, now: float, knobs: Collection[Knob]
    ) -> actuators.Applied:
        return self._ladder.apply(group, found, setting, now, knobs=knobs) if found.processes else _NOTHING

    def _forget(self, name: str) -> None:
        self._last = None
        self._done.pop(name, None)
        if self.in_force.pop(name, None) is not None:
            self._ladder.release(name)


def place(setting: Setting) -> tuple[object, ...]:
    """The part of a setting that says where a group runs."""
    return setting.cpus, setting.domains, setting.cores
