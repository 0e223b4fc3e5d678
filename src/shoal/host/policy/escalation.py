"""Escalation for a group whose share is at its floor: it is frozen most of the time, until work recovers."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.host.types import Control, GroupState, Snapshot

COOL_DOWN_S = 1.0
_FREEZE_EVERY = 20
"""A frozen group runs in at least one of this number of ticks, so that its recovery can be seen."""


@dataclass(frozen=True, slots=True)
class Escalation:
    """Whether a group is frozen but for its least share. `ticks` counts those since that changed."""

    frozen: bool = False
    changed_at: float | None = None
    ticks: int = 0


def can_escalate(snapshot: Snapshot) -> bool:
    return Control.FREEZE in snapshot.controls


def cool(escalation: Escalation, now: float) -> bool:
    """Whether the last change was long enough ago for another."""
    return escalation.changed_at is None or now - escalation.changed_at >= COOL_DOWN_S


def older(escalation: Escalation) -> Escalation:
    """By a tick."""
    return Escalation(escalation.frozen, escalation.changed_at, escalation.ticks + 1)


def holds(escalation: Escalation, state: GroupState) -> bool:
    """Whether the group is held at this tick. It is let go for one tick of each period, to keep its `min_share`."""
    if not escalation.frozen:
        return False
    period = min(_FREEZE_EVERY, int(1 / state.group.min_share)) if state.group.min_share > 0 else _FREEZE_EVERY
    return escalation.ticks % max(1, period) != 0
