"""Minimum run: how long a job keeps its place if it would lose its work by leaving it.

A job that saves its work when it is asked to leave loses a restart. Any other starts from nothing, or from its last
checkpoint, and by time slices of equal length would do so for ever. So it keeps its place while no other waits for its
type, and then for the longest of three times: `FIRST` times what a saving job is left, as long as it had worked before
any other waited, and `LONGER` times as long as all that it has lost before. So time slices that save nothing grow by
threes: a job that needs T seconds in one go is turned out at most logarithmically often and loses less than 1.5 T, and
one without end is turned out again and again. What it had beyond its share is remembered (`shoal.schedule.loop`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from shoal.core import Reason
from shoal.schedule.types import Array

FIRST = 10.0
"""The first time slice of a job that saves nothing, in time slices of one that does: it stands to lose more than a
restart."""

LONGER = 2.0
"""The next time slice, in all that those before it have lost."""

BEHIND = "behind-unsaved"
"""Code of the wait of a job that waits for such a time slice to end."""

_NAMED = 3
"""The most jobs that are named to one that waits for any of them."""

_MINUTE, _HOUR = 60.0, 3600.0


class Saving(Protocol):
    """What is known of how a job saves its work: whether it does so at all, the last time, and the run time of earlier
    attempts that was lost."""

    @property
    def saves(self) -> bool: ...

    @property
    def saved_at(self) -> float | None: ...

    @property
    def lost_s(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Unsaved:
    """A running job that would lose `lose_s` of work by leaving its place on `type` now. It keeps it until it ends, or
    for `keeps_s` more (zero: its time slice is over) if a job goes on to wait for the type, as is so (`wanted`) or
    not. `ever` says whether it has saved anything at all."""

    type: str
    lose_s: float
    keeps_s: float
    wanted: bool = True
    ever: bool = False

    @property
    def kept(self) -> bool:
        return self.keeps_s > 0.0

    @property
    def slice_s(self) -> float:
        """How long it has worked at the end of its time slice."""
        return self.lose_s + self.keeps_s

    @property
    def why(self) -> str:
        before = "it did not save its work when it was stopped before" if self.ever else "it has saved nothing yet"
        return f"{before}, so stopping it would lose {span(self.lose_s)} of work"

    @property
    def until(self) -> str:
        if not self.wanted:
            return f"for as long as no other job waits for {self.type}"
        return f"until it ends, or for {span(self.keeps_s)} more"

    def reason(self) -> Reason:
        """Of the job itself."""
        facts = {"lose_s": round(self.lose_s, 1), "keeps_s": round(self.keeps_s, 1), "wanted": self.wanted}
        if not self.kept:
            return Reason("unsaved", f"its time slice may end in any round; {self.why}", facts)
        return Reason("unsaved", f"keeps its place {self.until}: {self.why}", facts)


class Kept(NamedTuple):
    """By job (m,): for how much longer it keeps its place because it would lose its work, and how long its time slices
    are if it does not save it (zero: it does)."""

    keeps_s: Array
    slice_s: Array


def saves(facts: Saving, time_slice_s: float) -> bool:
    """Whether the job takes its work along when it is asked to leave: it uses the hooks or has reported a checkpoint,
    and stops before have not cost it more than a time slice."""
    return facts.saves and facts.lost_s <= time_slice_s


def unsaved(
    facts: Saving, kind: str, since: float, now: float, *, waited_since: float | None, time_slice_s: float
) -> Unsaved | None:
    """What a job stands to lose that runs on `kind` since then; None for one that saves. `waited_since`: since when
    some job has been waiting for the type, None if none is. `time_slice_s` is for how long a job that saves
    keeps its place."""
    if saves(facts, time_slice_s):
        return None
    lose_s = max(0.0, now - max(since, facts.saved_at or since))
    keeps = keeps_s(lose_s, since, facts.lost_s, now, waited_since, time_slice_s)
    return Unsaved(kind, lose_s, keeps, waited_since is not None, facts.saved_at is not None)


def keeps_s(
    lose_s: float, since: float, lost_s: float, now: float, waited_since: float | None, time_slice_s: float
) -> float:
    """For how much longer a job keeps its place that would lose `lose_s` of work and has lost `lost_s` before."""
    slice_s = 0.0 if waited_since is None else max(0.0, now - max(since, waited_since))
    least_s = max(FIRST * time_slice_s, lose_s - slice_s, LONGER * lost_s)
    return max(0.0, least_s - slice_s)


def waited_for(
    waiting: Iterable[tuple[Iterable[str], float]], before: Mapping[str, float], now: float
) -> dict[str, float]:
    """Since when some job has been waiting for each type, of the types that one waits for now. `waiting`
    has the types that each could use and for how long it has waited, `before` is what this was in the last round."""
    found: dict[str, float] = {}
    for kinds, waited_s in waiting:
        for kind in kinds:
            found[kind] = min(found.get(kind, now), now - waited_s, before.get(kind, now))
    return found


def behind(others: Mapping[str, Unsaved], deficit_s: float) -> Reason:
    """Of a job that waits for these to end their time slices."""
    soonest = sorted(others.items(), key=lambda item: item[1].keeps_s)[:_NAMED]
    job, first = soonest[0]
    facts: dict[str, Any] = {
        "behind": {job: round(each.lose_s, 1) for job, each in soonest},
        "behind_count": len(others),
        "keeps_s": round(first.keeps_s, 1),
    }
    waits = f", with a deficit of {span(deficit_s)}," if deficit_s >= 1.0 else ""
    if len(others) == 1:
        return Reason(BEHIND, f"waits{waits} for {job}, which keeps its place {first.until}: {first.why}", facts)
    named = ", ".join(f"{job} {span(each.lose_s)}" for job, each in soonest) + ", ..." * (len(others) > len(soonest))
    return Reason(
        BEHIND,
        f"waits{waits} for one of {len(others)} jobs that have not saved their work, and would lose it by stopping "
        f"({named}); they keep their places until they end, the first for at most {span(first.keeps_s)} more",
        facts,
    )


def span(seconds: float) -> str:
    """As people say it: 34 s, 12 min, 3.5 h."""
    if seconds < 2 * _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < 2 * _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    return f"{seconds / _HOUR:.1f} h"
