"""What is left to do to a group whose share is at its floor: frozen most of the
time, evicted. One level per cool-down, up and down."""

from __future__ import annotations

from dataclasses import dataclass, replace

from shoal.host.types import Control, GroupState, Setting, Snapshot

COOL_DOWN_S = 1.0
_PATIENCE = 10
"""Ticks for which less was not enough before a group is evicted."""
_FREEZE_EVERY = 20
"""A frozen group runs in one of so many ticks at least, so that its recovery can be seen."""


@dataclass(frozen=True, slots=True)
class Escalation:
    """`level` 0: none of this. `ticks` counts those since the level changed."""

    level: int = 0
    changed_at: float | None = None
    ticks: int = 0


@dataclass(frozen=True, slots=True)
class Level:
    text: str
    setting: Setting
    freeze: bool = False


def levels(snapshot: Snapshot) -> tuple[Level, ...]:
    """The settings above a plain share, mildest first, as far as this host can turn them."""
    steps: list[Level] = []
    if Control.FREEZE in snapshot.controls:
        steps.append(Level("frozen but for its least share", Setting(), freeze=True))
    if Control.EVICT in snapshot.controls:
        steps.append(Level("evicted: limits do not help", Setting(evicted=True)))
    return tuple(steps)


def climb(escalation: Escalation, steps: tuple[Level, ...], now: float, *, pressed: int) -> Escalation:
    """A level up, unless the last one is too fresh, or `pressed` too short to evict, or there is none."""
    if escalation.level >= len(steps) or not _cool(escalation, now):
        return escalation
    if steps[escalation.level].setting.evicted and pressed < _PATIENCE:
        return escalation
    return Escalation(escalation.level + 1, now)


def descend(escalation: Escalation, now: float) -> Escalation:
    return escalation if escalation.level == 0 or not _cool(escalation, now) else Escalation(escalation.level - 1, now)


def older(escalation: Escalation) -> Escalation:
    """By a tick."""
    return Escalation(escalation.level, escalation.changed_at, escalation.ticks + 1)


def limit(escalation: Escalation, steps: tuple[Level, ...], state: GroupState) -> Level | None:
    """What the level means at this tick. A frozen group is let go for one tick in so many that it keeps
    `min_share`."""
    if escalation.level == 0 or not steps:
        return None
    step = steps[min(escalation.level, len(steps)) - 1]
    if not step.freeze:
        return step
    period = min(_FREEZE_EVERY, int(1 / state.group.min_share)) if state.group.min_share > 0 else _FREEZE_EVERY
    frozen = escalation.ticks % max(1, period) != 0
    return replace(step, setting=replace(step.setting, frozen=frozen))


def _cool(escalation: Escalation, now: float) -> bool:
    return escalation.changed_at is None or now - escalation.changed_at >= COOL_DOWN_S
