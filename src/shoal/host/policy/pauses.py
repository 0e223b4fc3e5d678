"""When best-effort work is paused for some 50 ms to measure: all of it, to see guaranteed work undisturbed; or one
group, to see what part of the disturbance is its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
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
_FAR = 2.5
"""A strain that the machine seldom has by itself: whether it is that of groups elsewhere is looked at soon."""
_MOST_FRUITLESS = 4
"""Each fruitless pause makes the next one wait twice as long, so many times at most."""
FRESH_S = 1.0
ATTRIBUTION_S, LEARNING_S = 1.5, 0.3
"""How often one of several groups is paused: and while one of them was paused fewer than LESSONS times."""
LESSONS = 4
_SELDOM = 0.2
"""How much less often than others one that is unlimited is paused: it costs it more, and teaches less."""
_LOW_SHARE, _LOW_S = 0.25, 0.1
"""To pause a group of so low a share for longer costs it next to nothing, and shows a quota's whole period."""
WORTH = 0.3
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
    fruitless: int = 0
    """How many pauses in a row of groups in memory domains of their own have brought guaranteed work nothing."""
    lessons: Mapping[str, int] = field(default_factory=dict)
    """How often each group was paused alone, up to LESSONS."""


NO_PAUSE = Pause()


def next_pause(
    snapshot: Snapshot,
    last: Pause,
    *,
    limited: bool,
    floored: bool,
    apart: bool,
    seen: Seen,
    strain: float | None,
    known: Set[str],
) -> Pause:
    """What to freeze now; no groups if nothing. `limited`: somebody is; `floored`: nobody can be limited more; `apart`:
    nobody shares a memory domain with guaranteed work. `known` are the groups that were seen at work."""
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
    if apart and not limited:
        patience = CALM_BASELINE_S if (strain or 0.0) <= 1 else FRESH_S if (strain or 0.0) > _FAR else BASELINE_S
        patience *= 2 ** min(last.fruitless, _MOST_FRUITLESS)
    else:
        patience = BASELINE_S if limited or (strain or 0.0) > 0.7 else CALM_BASELINE_S
    unexplained = floored and strain is not None and strain > 1
    wanted = bool(seen.baseless) or unexplained
    if age is None or age >= patience or (wanted and age >= FRESH_S):
        return replace(last, groups=everyone, why="to see guaranteed work undisturbed")
    if limited and len(active) > 1 and known >= set(active) and strain is not None and strain > WORTH:
        shares = {one.group.name: one.applied.share for one in snapshot.groups}
        learning = [name for name in active if last.lessons.get(name, 0) < LESSONS]
        patience, among = (LEARNING_S, learning) if learning else (ATTRIBUTION_S, active)
        since = {name: snapshot.at - at for name, at in last.attributed_at.items()}
        name = max(among, key=lambda one: since.get(one, float("inf")) * (1.0 if shares[one] < 1 else _SELDOM))
        if min(since.values(), default=patience) >= patience:
            why = "to see what part of the disturbance is its own"
            return replace(last, groups=(name,), length_s=_LOW_S if shares[name] <= _LOW_SHARE else SHORT_S, why=why)
    return last


def finished(pause: Pause, snapshot: Snapshot, *, heard: bool, fruitless: bool = False) -> Pause:
    """The pause is over. `heard`: something was measured in it; `fruitless`: it was no relief."""
    best_effort = {one.group.name for one in snapshot.of(PriorityClass.BEST_EFFORT)}
    attributed = {name: at for name, at in pause.attributed_at.items() if name in best_effort}
    if set(pause.groups) >= best_effort:
        length_s = SHORT_S if heard else min(LONG_S, 2 * pause.length_s)
        times = pause.fruitless + 1 if fruitless else 0
        return Pause((), False, length_s, "", snapshot.at, attributed, times, pause.lessons)
    name = pause.groups[0]
    lessons = {one: count for one, count in pause.lessons.items() if one in best_effort}
    lessons[name] = min(LESSONS, lessons.get(name, 0) + 1)
    return replace(pause, groups=(), attributed_at={**attributed, name: snapshot.at}, lessons=lessons)


def fresh(pause: Pause, snapshot: Snapshot) -> bool:
    """Whether what undisturbed means was measured just now, or cannot be measured."""
    if Knob.FREEZE not in snapshot.knobs:
        return True
    return pause.undisturbed_at is not None and snapshot.at - pause.undisturbed_at < 2 * FRESH_S


def _can_be_measured(snapshot: Snapshot) -> bool:
    return any(one.step_s.known() is not None for one in snapshot.of(PriorityClass.GUARANTEED)) or any(
        one.latency_ns.known() is not None for one in snapshot.domains
    )
