"""Simulated outcome of a policy in a scenario."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from host.simulate.host import Flowed
from host.simulate.workloads import Placed, Scenario
from shoal.base.statistics import weighted_quantile
from shoal.host.types import UNLIMITED, Plan, Setting

_STEADY_S = 0.5
"""Contention is settled when the promise is kept for so long."""
_TOLERANCE = 0.1
"""Of the slowdown that is allowed: 1.055 for 1.05 is still within it, as no controller on noisy readings is exact."""
_SWING = 0.2
"""A change of what a group may use by less than this part is no swing."""


@dataclass(frozen=True, slots=True)
class GuaranteedOutcome:
    """`speed` against undisturbed, over time; `p50` and `p99` of a unit's slowdown; `violated` the part of its time in
    which it was slower than promised; `settle_s` the longest time from the beginning of contention until the promise
    held (None: never held again, or there was no contention)."""

    group: str
    speed: float
    p50: float
    p99: float
    violated: float
    settle_s: float | None
    unsettled: int


@dataclass(frozen=True, slots=True)
class BestEffortOutcome:
    """`work` against what it does unhindered on its cores alone; `oscillations_per_min` changes of direction."""

    group: str
    work: float
    bytes_per_s: float
    oscillations_per_min: float


@dataclass(frozen=True, slots=True)
class Outcome:
    scenario: str
    policy: str
    guaranteed: tuple[GuaranteedOutcome, ...]
    best_effort: tuple[BestEffortOutcome, ...]

    @property
    def speed(self) -> float:
        """Mean over guaranteed groups."""
        return sum(one.speed for one in self.guaranteed) / len(self.guaranteed) if self.guaranteed else 1.0

    @property
    def work(self) -> float:
        """Mean over best-effort groups."""
        return sum(one.work for one in self.best_effort) / len(self.best_effort) if self.best_effort else 0.0


def judge(scenario: Scenario, policy: str, history: Sequence[Flowed], plans: Sequence[Plan]) -> Outcome:
    minutes = scenario.duration_s / 60
    best_effort = []
    for one in scenario.best_effort():
        name = one.group.name
        busy = sum(flowed.busy.get(name, 0.0) for flowed in history)
        done = sum(flowed.speed.get(name, 0.0) for flowed in history)
        moved = sum(flowed.moved.get(name, 0.0) for flowed in history)
        swings = oscillations([_allowance(plan.settings.get(name, UNLIMITED), one.cores) for plan in plans])
        work = done / (busy * one.cores) if busy else 0.0
        best_effort.append(BestEffortOutcome(name, work, moved / busy if busy else 0.0, swings / minutes))
    guaranteed = tuple(_guaranteed(scenario, one, history) for one in scenario.guaranteed())
    return Outcome(scenario.name, policy, guaranteed, tuple(best_effort))


def oscillations(allowances: Sequence[float]) -> int:
    """How often what was being taken began to be given back, or the other way round; small steps left out."""
    turns, direction = 0, 0
    mark = allowances[0] if allowances else 1.0
    for value in allowances:
        if abs(value - mark) < _SWING * max(value, mark):
            continue
        now = 1 if value > mark else -1
        turns += direction not in (0, now)
        direction, mark = now, value
    return turns


def _allowance(setting: Setting, cores: int) -> float:
    """What a setting leaves of a group, roughly; a short pause to measure is no change."""
    part = 1.0 if setting.cores is None else min(1.0, setting.cores / cores)
    prefetching = 1.0 if setting.prefetching is None else 0.7 + 0.3 * min(1.0, setting.prefetching / cores)
    return setting.share * part * prefetching


def _guaranteed(scenario: Scenario, one: Placed, history: Sequence[Flowed]) -> GuaranteedOutcome:
    name, allowed = one.group.name, 1 + (one.group.max_slowdown - 1) * (1 + _TOLERANCE)
    steps = [step for flowed in history for step in flowed.steps.get(name, ())]
    units = sum(count for _, count in steps)
    undisturbed = sum(value * count for value, count in steps)
    late = busy = 0.0
    for flowed in history:
        slow = flowed.slowdown(name)
        if slow is not None:
            busy += flowed.length
            late += flowed.length if slow > allowed else 0.0
    settles = [_settle(history, name, allowed, at) for at in _onsets(scenario)]
    known = [found for found in settles if found is not None]
    return GuaranteedOutcome(
        name,
        units / undisturbed if undisturbed else 1.0,
        weighted_quantile(steps, 0.5) if steps else 1.0,
        weighted_quantile(steps, 0.99) if steps else 1.0,
        late / busy if busy else 0.0,
        max(known) if known else None,
        len(settles) - len(known),
    )


def _onsets(scenario: Scenario) -> list[float]:
    """When best-effort work began, or began again."""
    found = []
    for one in scenario.best_effort():
        at = one.from_s
        while at < min(scenario.duration_s - 2 * _STEADY_S, one.until_s):
            found.append(at)
            if one.off_s <= 0:
                break
            at += one.on_s + one.off_s
    return sorted(set(found))


def _settle(history: Sequence[Flowed], name: str, allowed: float, onset: float) -> float | None:
    """From the onset until the promise is kept for `_STEADY_S` on the whole; None if it never is."""
    after = [flowed for flowed in history if flowed.ended > onset + 1e-9]
    for position, first in enumerate(after):
        units = slow = 0.0
        for flowed in after[position:]:
            for value, count in flowed.steps.get(name, ()):
                units += count
                slow += value * count
            if flowed.ended - first.began >= _STEADY_S - 1e-9:
                break
        tick = first.slowdown(name)
        if units and slow / units <= allowed and (tick is None or tick <= allowed):
            return max(0.0, first.began - onset)
    return None
