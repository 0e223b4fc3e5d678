"""What is left to do to a group whose share is at its floor: prefetchers off by halves, fewer cores by halves, frozen
most of the time, evicted. One rung per cool-down, up and down.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from shoal.host.types import GroupState, Knob, Setting, Snapshot

COOL_DOWN_S = 1.0
_PATIENCE, _LONG_PATIENCE = 10, 30
"""Ticks for which shares were not enough before a rung is taken; the second before work is stopped altogether."""
_FREEZE_EVERY = 20
"""A frozen group runs in one of so many ticks at least, so that its recovery can be seen."""


@dataclass(frozen=True, slots=True)
class Rung:
    """`level` 0: none of this. `ticks` counts those since the level changed."""

    level: int = 0
    changed_at: float | None = None
    ticks: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    text: str
    setting: Setting
    freeze: bool = False


def ladder(state: GroupState, snapshot: Snapshot) -> tuple[Step, ...]:
    """The settings above a plain share, mildest first, as far as this host can turn them."""
    steps: list[Step] = []
    setting = Setting()
    if Knob.PREFETCHING in snapshot.knobs:
        on = state.cores
        while on > 0:
            on //= 2
            setting = replace(setting, prefetching=on)
            steps.append(Step(f"prefetchers on for {on} of {state.cores} cores", setting))
    if Knob.CORES in snapshot.knobs:
        cores = state.cores
        while cores > 1:
            cores = (cores + 1) // 2
            setting = replace(setting, cores=cores)
            steps.append(Step(f"{cores} of {state.cores} cores", setting))
    if Knob.FREEZE in snapshot.knobs:
        steps.append(Step("frozen but for its least share", setting, freeze=True))
    if Knob.EVICT in snapshot.knobs:
        steps.append(Step("evicted: limits do not help", replace(setting, evicted=True)))
    return tuple(steps)


def climb(rung: Rung, steps: tuple[Step, ...], now: float, *, pressed: int) -> Rung:
    """A rung up, unless the last one is too fresh, or `pressed` too short, or there is none."""
    if rung.level >= len(steps) or not _cool(rung, now):
        return rung
    step = steps[rung.level]
    patience = _LONG_PATIENCE if step.freeze or step.setting.evicted else _PATIENCE
    return rung if pressed < patience else Rung(rung.level + 1, now)


def descend(rung: Rung, now: float) -> Rung:
    return rung if rung.level == 0 or not _cool(rung, now) else Rung(rung.level - 1, now)


def older(rung: Rung) -> Rung:
    """By a tick."""
    return Rung(rung.level, rung.changed_at, rung.ticks + 1)


def limit(rung: Rung, steps: tuple[Step, ...], state: GroupState) -> Step | None:
    """What the rung means at this tick. A frozen group is let go for one tick in so many that it keeps `min_share`."""
    if rung.level == 0 or not steps:
        return None
    step = steps[min(rung.level, len(steps)) - 1]
    if not step.freeze:
        return step
    period = min(_FREEZE_EVERY, int(1 / state.group.min_share)) if state.group.min_share > 0 else _FREEZE_EVERY
    frozen = rung.ticks % max(1, period) != 0
    return replace(step, setting=replace(step.setting, frozen=frozen))


def _cool(rung: Rung, now: float) -> bool:
    return rung.changed_at is None or now - rung.changed_at >= COOL_DOWN_S
