"""Pauses of best-effort work for some 50 ms to measure: all of it, to see guaranteed work undisturbed; and right
after that one group at a time goes on alone (a *probe*), to see what it does by itself.

Two looks a moment apart, without any group and at one group with all of its share, tell what it does from the machine's
own drift, which lasts longer. Pauses of a group that is limited to a tenth tell less.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from shoal.core import PriorityClass
from shoal.host.policy.violation import is_idle
from shoal.host.types import Control, Snapshot

SETTLE_S = 0.015
"""What a freeze takes to hold, and work that was under way to end, before anything is measured."""
SHORT_S, LONG_S = 0.05, 0.4
"""A pause in which guaranteed work finished no unit is tried again twice as long, up to the last of these."""
PROBE_S = 0.04
BASELINE_S, CALM_BASELINE_S = 3.0, 20.0
"""How long a baseline is believed: under limits, and while none is limited."""
FRESH_S = 1.0
"""Groups are tried so long after a pause or a probe that told nothing, at the earliest."""
PROBE_SHARE = 0.98
"""Of a group being probed: no limit to speak of. What is not limited at all teaches how many CPUs a group keeps busy,
and a probe is too short for that."""
LOOK_SHARE = 0.1
"""Of groups of which nothing is known, together: one that floods shows at this share already, and costs little."""
_AT_ONCE = 4
"""The maximum number of probes in a row: meanwhile all others stand still."""


@dataclass(frozen=True, slots=True)
class Probed:
    """When a group was being probed last, and whether any probe has `told` what the group costs: not while it did
    nothing. It has `passed` if it was no flood with a small share: more is due."""

    at: float
    told: bool = False
    passed: bool = False


@dataclass(frozen=True, slots=True)
class Pause:
    """`groups` are those that the plan given last has frozen to measure; those on `probe` go on alone, each with this
    `share`. Until it is `settled` nothing is measured. `undisturbed_at` is when all were paused last."""

    groups: tuple[str, ...] = ()
    probe: tuple[str, ...] = ()
    share: float = PROBE_SHARE
    settled: bool = False
    length_s: float = SHORT_S
    why: str = ""
    undisturbed_at: float | None = None
    probes: int = 0
    """In a row."""
    failed: tuple[str, ...] = ()
    """Cost too much when they were being probed together."""
    probed: Mapping[str, Probed] = field(default_factory=dict)


NO_PAUSE = Pause()


def next_pause(
    snapshot: Snapshot,
    last: Pause,
    *,
    limited: bool,
    doubtful: Collection[str],
) -> Pause:
    """What to freeze now; no groups if nothing. `limited`: a group is; `doubtful` are to be tried."""
    if last.groups or last.settled:
        last = replace(last, groups=(), probe=(), settled=False)
    if Control.FREEZE not in snapshot.controls or not _can_be_measured(snapshot):
        return last
    best_effort = snapshot.of(PriorityClass.BEST_EFFORT)
    if all(is_idle(one) or one.applied.frozen for one in best_effort):
        return last
    age = None if last.undisturbed_at is None else snapshot.at - last.undisturbed_at
    patience = FRESH_S if doubtful else BASELINE_S if limited else CALM_BASELINE_S
    if age is None or age >= patience:
        everyone = tuple(one.group.name for one in best_effort)
        return replace(last, groups=everyone, why="to see guaranteed work undisturbed", probes=0)
    return last


def next_probe(pause: Pause, snapshot: Snapshot, probe: Collection[str], share: float) -> Pause:
    """These go on alone; with none, or after `_AT_ONCE` probes in a row, the pause is over."""
    in_a_row = pause.probes if pause.groups or pause.probe else 0
    if not probe or in_a_row >= _AT_ONCE:
        return replace(pause, groups=(), probe=())
    others = tuple(
        one.group.name for one in snapshot.of(PriorityClass.BEST_EFFORT)
        if one.group.name not in probe and not is_idle(one)
    )  # fmt: skip
    if others and Control.FREEZE not in snapshot.controls:
        return replace(pause, groups=(), probe=())
    settled = set(others) <= set(pause.groups)
    why = f"to see what {' and '.join(probe)} do{'es' if len(probe) == 1 else ''} alone"
    return replace(
        pause, groups=others, probe=tuple(probe), share=share, settled=settled, probes=in_a_row + 1, why=why
    )  # fmt: skip


def undisturbed(pause: Pause, snapshot: Snapshot, *, heard: bool) -> Pause:
    """All groups were paused. `heard`: something was measured in it; else a probe would be against nothing."""
    length_s = SHORT_S if heard else min(LONG_S, 2 * pause.length_s)
    present = {one.group.name for one in snapshot.of(PriorityClass.BEST_EFFORT)}
    tried = {name: one for name, one in pause.probed.items() if name in present}
    groups = pause.groups if heard else ()
    return replace(pause, groups=groups, undisturbed_at=snapshot.at, length_s=length_s, probed=tried)


def probed(pause: Pause, now: float, *, told: bool) -> Pause:
    """The probe is over."""
    found = {name: Probed(now, told or (name in pause.probed and pause.probed[name].told)) for name in pause.probe}
    return replace(pause, probed={**pause.probed, **found})


def passed(pause: Pause, now: float) -> Pause:
    return replace(pause, probed={**pause.probed, **dict.fromkeys(pause.probe, Probed(now, passed=True))})


def fresh(pause: Pause, snapshot: Snapshot) -> bool:
    """Whether what undisturbed means was measured just now, or cannot be measured."""
    if Control.FREEZE not in snapshot.controls:
        return True
    return pause.undisturbed_at is not None and snapshot.at - pause.undisturbed_at < 2 * FRESH_S


def _can_be_measured(snapshot: Snapshot) -> bool:
    return any(one.step_s.known() is not None for one in snapshot.of(PriorityClass.GUARANTEED)) or any(
        one.latency_ns.known() is not None for one in snapshot.domains
    )
