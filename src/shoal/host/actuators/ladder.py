"""From a `Setting` to mechanisms: for each knob the strongest that works here, and works for this group now."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from shoal.core import Capability, ShoalError
from shoal.host.actuators.base import Actuator
from shoal.host.members import Found
from shoal.host.types import UNLIMITED, Group, Knob, Setting

COOL_DOWN_S = 10.0
"""How long a mechanism that failed for a group is left alone."""
PLACING = (Knob.CPUS, Knob.DOMAINS, Knob.CORES)
"""What decides where a group runs. It is turned first, for all: cores are paced only where no guaranteed work runs."""
LIMITING = tuple(knob for knob in Knob if knob not in PLACING)
ALL = (*PLACING, *LIMITING)
_FIELDS = {
    Knob.WEIGHT: "weight",
    Knob.CPUS: "cpus",
    Knob.DOMAINS: "domains",
    Knob.SHARE: "share",
    Knob.PREFETCHING: "prefetching",
    Knob.CORES: "cores",
    Knob.FREEZE: "frozen",
    Knob.EVICT: "evicted",
}


@dataclass(frozen=True, slots=True)
class Turned:
    """What is in force for a group, by which mechanism each knob is held, and what could not be done and why."""

    setting: Setting = UNLIMITED
    by: Mapping[Knob, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


class Ladder:
    """`actuators` are tried in their order within each knob; those that do not work here are left out."""

    def __init__(self, actuators: Sequence[Actuator]) -> None:
        self._all = tuple(actuators)
        self._holding: dict[str, dict[Knob, Actuator]] = {}
        self._cooling: dict[tuple[str, str], tuple[float, str]] = {}
        self.probe()

    def probe(self) -> None:
        """Find out again what works: a hypervisor may have moved CPUs to other memory domains."""
        self._capabilities = tuple(actuator.capability() for actuator in self._all)
        self._usable: dict[Knob, tuple[Actuator, ...]] = {
            knob: tuple(
                actuator
                for actuator, found in zip(self._all, self._capabilities, strict=True)
                if actuator.knob is knob and found.available
            )
            for knob in Knob
        }

    @property
    def knobs(self) -> frozenset[Knob]:
        """What can be turned here."""
        return frozenset(knob for knob, usable in self._usable.items() if usable)

    @property
    def least_share(self) -> float:
        """Of the mechanism that sets shares here; 1 without one."""
        usable = self._usable[Knob.SHARE]
        return usable[0].least_share if usable else 1.0

    def capabilities(self) -> tuple[Capability, ...]:
        """Of all mechanisms, strongest first."""
        return self._capabilities

    def apply(
        self, group: Group, found: Found, setting: Setting, now: float, *, knobs: Collection[Knob] = ALL
    ) -> Turned:
        """Bring a group to the part of a setting that these knobs turn, and say what of it is in force. Never raises
        what a mechanism says: it is in `problems`, and the knob is then turned by the next mechanism, or is not in
        force."""
        holding = self._holding.setdefault(group.name, {})
        in_force, problems = UNLIMITED, []
        for knob in knobs:
            name = _FIELDS[knob]
            limits = getattr(setting, name) != getattr(UNLIMITED, name)
            if not limits and knob not in holding:
                continue
            reached, refusals = self._turn(knob, group, found, setting, now)
            problems += refusals
            if reached is not None:
                in_force = replace(in_force, **{name: getattr(reached, name)})
            if not limits:
                holding.pop(knob, None)
        by = {knob: holding[knob].name for knob in knobs if knob in holding}
        return Turned(in_force, by, tuple(problems))

    def release(self, group: str) -> None:
        """Leave a group as it was found: it is gone, or nobody guards against it any more."""
        for actuator in self._all:
            actuator.restore(group)
        self._holding.pop(group, None)
        for key in [key for key in self._cooling if key[0] == group]:
            del self._cooling[key]

    def restore(self) -> None:
        """Leave all groups as they were found."""
        for actuator in self._all:
            actuator.restore()
        self._holding.clear()
        self._cooling.clear()

    def _turn(
        self, knob: Knob, group: Group, found: Found, setting: Setting, now: float
    ) -> tuple[Setting | None, list[str]]:
        holding, refusals = self._holding[group.name], []
        for actuator in self._usable[knob]:
            until, why = self._cooling.get((group.name, actuator.name), (now, ""))
            if now < until:
                refusals.append(why)
                continue
            try:
                reached = actuator.apply(group, found, setting)
            except (ShoalError, OSError) as problem:
                why = f"{actuator.name}: {problem}"
                refusals.append(why)
                self._cooling[group.name, actuator.name] = (now + COOL_DOWN_S, why)
                if holding.get(knob) is actuator:
                    del holding[knob]
                continue
            before = holding.get(knob)
            if before is not None and before is not actuator:
                before.restore(group.name)
            holding[knob] = actuator
            return reached, refusals
        before = holding.pop(knob, None)
        if before is not None:
            before.restore(group.name)
        return None, refusals or [f"{knob}: nothing on this machine turns it"]
