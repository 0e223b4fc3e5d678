"""From a `Setting` to mechanisms: for each control the strongest that works here, and works for this group now."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from shoal.core import Capability, ShoalError
from shoal.host.actuators.base import Actuator
from shoal.host.linux.members import Found
from shoal.host.types import UNLIMITED, Control, Group, Setting

COOL_DOWN_S = 10.0
"""How long a mechanism that failed for a group is left alone."""
PLACING = (Control.CPUS, Control.DOMAINS, Control.CORES)
"""What decides where a group runs. It is turned first, for all: cores are paced only where no guaranteed work runs."""
LIMITING = tuple(control for control in Control if control not in PLACING)
ALL = (*PLACING, *LIMITING)
_FIELDS = {
    Control.WEIGHT: "weight",
    Control.CPUS: "cpus",
    Control.DOMAINS: "domains",
    Control.SHARE: "share",
    Control.PREFETCHING: "prefetching",
    Control.CORES: "cores",
    Control.FREEZE: "frozen",
}


@dataclass(frozen=True, slots=True)
class Turned:
    """What is in force for a group, by which mechanism each control is held, and what could not be done and why."""

    setting: Setting = UNLIMITED
    by: Mapping[Control, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


class ActuatorChain:
    """`actuators` are tried in their order within each control; those that do not work here are left out."""

    def __init__(self, actuators: Sequence[Actuator]) -> None:
        self._all = tuple(actuators)
        self._holding: dict[str, dict[Control, Actuator]] = {}
        self._cooling: dict[tuple[str, str], tuple[float, str]] = {}
        self.probe()

    def probe(self) -> None:
        """Find out again what works: a hypervisor may have moved CPUs to other memory domains."""
        self._capabilities = tuple(actuator.capability() for actuator in self._all)
        self._usable: dict[Control, tuple[Actuator, ...]] = {
            control: tuple(
                actuator
                for actuator, found in zip(self._all, self._capabilities, strict=True)
                if actuator.control is control and found.available
            )
            for control in Control
        }

    @property
    def controls(self) -> frozenset[Control]:
        """What can be turned here."""
        return frozenset(control for control, usable in self._usable.items() if usable)

    @property
    def least_share(self) -> float:
        """Of the mechanism that sets shares here; 1 without one."""
        usable = self._usable[Control.SHARE]
        return usable[0].least_share if usable else 1.0

    def capabilities(self) -> tuple[Capability, ...]:
        """Of all mechanisms, strongest first."""
        return self._capabilities

    def apply(
        self, group: Group, found: Found, setting: Setting, now: float, *, controls: Collection[Control] = ALL
    ) -> Turned:
        """Bring a group to the part of a setting that these controls turn, and say what of it is in force. Never raises
        what a mechanism says: it is in `problems`, and the control is then turned by the next mechanism, or is not in
        force."""
        holding = self._holding.setdefault(group.name, {})
        in_force, problems = UNLIMITED, []
        for control in controls:
            name = _FIELDS[control]
            limits = getattr(setting, name) != getattr(UNLIMITED, name)
            if not limits and control not in holding:
                continue
            reached, refusals = self._turn(control, group, found, setting, now)
            problems += refusals
            if reached is not None:
                in_force = replace(in_force, **{name: getattr(reached, name)})
            if not limits:
                holding.pop(control, None)
        by = {control: holding[control].name for control in controls if control in holding}
        return Turned(in_force, by, tuple(problems))

    def release(self, group: str) -> None:
        """Leave a group as it was found: it is gone, or is guarded against no longer."""
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
        self, control: Control, group: Group, found: Found, setting: Setting, now: float
    ) -> tuple[Setting | None, list[str]]:
        holding, refusals = self._holding[group.name], []
        for actuator in self._usable[control]:
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
                if holding.get(control) is actuator:
                    del holding[control]
                continue
            before = holding.get(control)
            if before is not None and before is not actuator:
                before.restore(group.name)
            holding[control] = actuator
            return reached, refusals
        before = holding.pop(control, None)
        if before is not None:
            before.restore(group.name)
        return None, refusals or [f"{control}: nothing on this machine turns it"]
