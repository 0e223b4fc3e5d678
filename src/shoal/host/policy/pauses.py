"""When best-effort work is paused for some 50 ms to measure: all of it, to see guaranteed work undisturbed; or one
group, to see what part of the disturbance is its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from shoal.core import PriorityClass
from shoal.host.policy.strain import Seen, is_idle
from shoal.host.types import Knob, Snapshot

SETTLE_S = 0.015
"""What a freeze takes to hold, and work that was under way to end, before anything is measured."""
SHORT_S, FIRST_S, LONG_S = 0.05, 0.2, 0.4
"""The first pause is longer, as nothing else is known. One in which guaranteed work finished no unit is tried twice as
long, up to the last of these."""
BASELINE_S, CALM_BASELINE_S = 3.0, 20.0
"""How long a baseline is believed: under limits, and while nobody is limited."""
FRESH_S = 1.0
ATTRIBUTION_S = 1.5
_WORTH = 0.3
"""A strain below this is not worth attributing."""


@dataclass(frozen=True, slots=True)
class Pause:
    """`groups` are those that the plan given last has frozen to measure. `undisturbed_at` is when all were paused last,
    `attributed_at` when each group was paused alone. Until it is `settled` nothing is measured."""

    groups: tuple[str, ...] = ()
    settled: bool = False
    length_s: float = FIRST_S
    why: str = ""
    undisturbed_at: float | None = None
    attributed_at: Mapping[str, float] = field(default_factory=dict)


NO_PAUSE = Pause()


def next_pause(
    snapshot: Snapshot, last: Pause, *, limited: bool, floored: bool, seen: Seen, strain: float | None
) -> Pause:
    """What to freeze now; no groups if nothing. `limited`: somebody is; `floored`: nobody can be limited more."""
    if last.groups or last.settled:
        last = replace(last, groups=(), settled=False)
    if Knob.FREEZE not in snapshot.knobs or not _can_be_measured(snapshot):
        return last
    active = [
        one.group.name for one in snapshot.of(PriorityClass.BEST_EFFORT)
        if not (is_idle(one) or one.applied.frozen or one.applied.evicted)
    ]  # fmt: skip
    if not active:
        return last
    everyone = tuple(one.group.name for one in snapshot.of(PriorityClass.BEST_EFFORT))
    age = None if last.undisturbed_at is None else snapshot.at - last.undisturbed_at
    patience = BASELINE_S if limited or (strain or 0.0) > 0.7 else CALM_BASELINE_S
    unexplained = floored and strain is not None and strain > 1
    wanted = bool(seen.baseless) or unexplained
    if age is None or age >= patience or (wanted and age >= FRESH_S):
        return replace(last, groups=everyone, why="to see guaranteed work undisturbed")
    if limited and len(active) > 1 and strain is not None and strain > _WORTH:
        recent = max(last.attributed_at.values(), default=None)
        if recent is None or snapshot.at - recent >= ATTRIBUTION_S:
            name = min(active, key=lambda one: last.attributed_at.get(one, float("-inf")))
            why = "to see what part of the disturbance is its own"
            return replace(last, groups=(name,), length_s=SHORT_S, why=why)
    return last


def finished(pause: Pause, snapshot: Snapshot, *, heard: bool) -> Pause:
    """The pause is over. `heard`: something was measured in it."""
    best_effort = {one.group.name for one in snapshot.of(PriorityClass.BEST_EFFORT)}
    attributed = {name: at for name, at in pause.attributed_at.items() if name in best_effort}
    if set(pause.groups) >= best_effort:
        length_s = SHORT_S if heard else min(LONG_S, 2 * pause.length_s)
        return Pause((), False, length_s, "", snapshot.at, attributed)
    return replace(pause, groups=(), attributed_at={**attributed, pause.groups[0]: snapshot.at})


def fresh(pause: Pause, snapshot: Snapshot) -> bool:
    """Whether what undisturbed means was measured just now, or cannot be measured."""
    if Knob.FREEZE not in snapshot.knobs:
        return True
    return pause.undisturbed_at is not None and snapshot.at - pause.undisturbed_at < 2 * FRESH_S


def _can_be_measured(snapshot: Snapshot) -> bool:
    return any(one.step_s.known() is not None for one in snapshot.of(PriorityClass.GUARANTEED)) or any(
        one.latency_ns.known() is not None for one in snapshot.domains
    )
