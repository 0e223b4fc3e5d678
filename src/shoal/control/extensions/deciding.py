"""One decision out of what the extensions say: what is held, who decides, what is added; and why a job waits by all of
them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

import structlog

from shoal.admission import (
    Additions,
    Blocker,
    Decision,
    Dropped,
    Explanation,
    Preemption,
    Snapshot,
    Start,
    decide,
    kept_off,
    unite,
    without,
)
from shoal.base.loops import Defects
from shoal.control.jobs.cache import Live
from shoal.core import OWN_PREFIX, Affinity, Capability, Invalid, Reason
from shoal.extension import Decider, Extension, LiveJob

log = structlog.get_logger("shoal.extensions")

Held = Mapping[str, Mapping[str, Reason]]
"""By waiting job the extensions that hold it, in the order of their names, and why."""


class Decisions:
    """Asks these extensions, in their order; `find` gives a live job by its id. Raises Invalid where two of them bring
    a decider."""

    def __init__(self, extensions: Sequence[Extension], find: Callable[[str], LiveJob | None]) -> None:
        self._find = find
        self._placing = [one for one in extensions if type(one).affinity is not Extension.affinity]
        self._preferring = [one for one in extensions if type(one).prefers is not Extension.prefers]
        self._holding = [one for one in extensions if type(one).holds is not Extension.holds]
        self._keeping = [one for one in extensions if type(one).keeps_off is not Extension.keeps_off]
        self._adding = [one for one in extensions if type(one).adjust is not Extension.adjust]
        self._explaining = [one for one in extensions if type(one).explain is not Extension.explain]
        self._decider_name, self._decider = _only_decider(extensions)
        self._failures: dict[tuple[str, str], str] = {}
        self._defects = Defects(log)
        self._last: dict[str, Mapping[str, Reason]] = {}
        self._off: dict[str, Mapping[str, frozenset[str]]] = {}
        self._dropped: frozenset[Dropped] = frozenset()

    def decide(self, snapshot: Snapshot) -> Decision:
        held = self.held(snapshot)
        decision = self._decide(self.visible(snapshot, held))
        if held:
            reasons = {job_id: next(iter(why.values())) for job_id, why in held.items()}
            decision = replace(decision, waits={**decision.waits, **reasons})
        added: dict[str, Additions] = {}
        for one in self._adding:
            with self._guarded(one.name, "adjust"):
                if more := one.adjust(snapshot, decision):
                    starts = tuple(_checked(each, Start) for each in more.starts)
                    added[one.name] = Additions(starts, tuple(_checked(each, Preemption) for each in more.preemptions))
        if not added:
            return decision
        decision, dropped = unite(snapshot, decision, added, held)
        for each in set(dropped) - self._dropped:
            log.warning("an addition to a decision was dropped", extension=each.source, job=each.job_id, why=each.why)
        self._dropped = frozenset(dropped)
        return decision

    def _decide(self, snapshot: Snapshot) -> Decision:
        prefers = self.prefers if self._preferring else None
        if self._decider is not None:
            with self._guarded(self._decider_name, "decider"):
                return self._decider(snapshot, prefers)
        return decide(snapshot, prefers=prefers)

    def prefers(self, job_id: str) -> Mapping[str, float]:
        """What nodes are worth to a job, by what all extensions say: seconds saved, by name."""
        job = self._find(job_id)
        if job is None:
            return {}
        saved: dict[str, float] = {}
        for one in self._preferring:
            with self._guarded(one.name, "prefers"):
                for node, seconds in one.prefers(job).items():
                    saved[node] = saved.get(node, 0.0) + seconds
        return saved

    def affinity(self, job: Live) -> Affinity:
        """On which nodes a job may be, by its manifest and by all extensions. Where one cannot say it, on none."""
        found = job.asked.affinity
        for one in self._placing:
            more = _NOWHERE
            with self._guarded(one.name, "affinity"):
                more = one.affinity(job)
            found = found.plus(more)
        return found

    def held(self, snapshot: Snapshot) -> Held:
        """Which waiting jobs are held. What an extension held before stays so while its hook raises."""
        found: dict[str, dict[str, Reason]] = {}
        for one in self._holding:
            with self._guarded(one.name, "holds"):
                self._last[one.name] = {job_id: _checked(why, Reason) for job_id, why in one.holds(snapshot).items()}
            for job_id, reason in self._last.get(one.name, {}).items():
                if job_id in snapshot.pending.by_id:
                    found.setdefault(job_id, {})[one.name] = reason
        return found

    def visible(self, snapshot: Snapshot, held: Collection[str]) -> Snapshot:
        """The snapshot as a decider sees it: without those that are held, each off the nodes that it is kept off."""
        seen = without(snapshot, held)
        if not self._keeping:
            return seen
        off: dict[str, frozenset[str]] = {}
        for one in self._keeping:
            with self._guarded(one.name, "keeps_off"):
                self._off[one.name] = one.keeps_off(snapshot)
            for job_id, names in self._off.get(one.name, {}).items():
                off[job_id] = off.get(job_id, frozenset()) | names
        return kept_off(seen, off) if off else seen

    async def explain(
        self, snapshot: Snapshot, job: Live, usual: Callable[[], Awaitable[Explanation]], where: str
    ) -> Explanation:
        """Why a job waits, or runs where it does: what holds it, else what the decider says, else what is `usual`; and
        the causes that the extensions add."""
        held = self.held(snapshot).get(job.job.id, {})
        own = _held(job.job.id, held) if held else await self._explain(snapshot, job, where) or await usual()
        added: dict[str, Sequence[Blocker]] = {}
        for one in self._explaining:
            with self._guarded(one.name, "explain"):
                added[one.name] = tuple(_checked(each, Blocker) for each in await one.explain(snapshot, job))
        return summed(own, held, added)

    async def _explain(self, snapshot: Snapshot, job: Live, where: str) -> Explanation | None:
        if self._decider is not None:
            with self._guarded(self._decider_name, "decider.explain"):
                return await self._decider.explain(snapshot, job, where)
        return None

    def capabilities(self) -> Iterator[Capability]:
        """The hooks that fail, each with what that costs."""
        for (name, hook), error in self._failures.items():
            yield Capability(f"{name}.{hook}", False, error, _COSTS[hook])

    @contextmanager
    def _guarded(self, name: str, hook: str) -> Iterator[None]:
        """Around one call: an error of an extension costs its own part only."""
        key = (name, hook)
        try:
            yield
        except Exception as error:
            told = f"{type(error).__name__}: {error}"
            if self._failures.get(key) != told:
                self._failures[key] = told
                self._defects.note("a hook of an extension failed", error, extension=name, hook=hook)
        else:
            if self._failures and self._failures.pop(key, None) is not None:
                log.info("a hook of an extension works again", extension=name, hook=hook)


T = TypeVar("T")

_NOWHERE = Affinity(require=((f"{OWN_PREFIX}unknown", ("unknown",)),))
"""No node has this label."""

_COSTS = {
    "decider": "admission decides in its place",
    "decider.explain": "admission's causes are shown in its place",
    "affinity": "jobs that came since start nowhere before the server does so anew",
    "prefers": "it prefers no nodes",
    "holds": "what it held stays held, and jobs that came since are not",
    "keeps_off": "what it kept off nodes stays off, and jobs that came since are not",
    "adjust": "it adds no starts and preemptions",
    "explain": "its causes are left out",
}


def _checked(value: object, kind: type[T]) -> T:
    """A value that an extension gave, if it is of its kind. Raises TypeError otherwise, in the hook's own guard."""
    if not isinstance(value, kind):
        raise TypeError(f"must be {kind.__name__}, not {type(value).__name__}")
    return value


def _only_decider(extensions: Iterable[Extension]) -> tuple[str, Decider | None]:
    found = [(one.name, decider) for one in extensions if (decider := one.decider()) is not None]
    if len(found) > 1:
        names = [name for name, _ in found]
        raise Invalid(
            f"{' and '.join(names)} both decide which jobs start: only one can", where="extensions",
            hint=f"turn off all but one: {' or '.join(f'--set {name}.enabled=false' for name in names)}",
        )  # fmt: skip
    return found[0] if found else ("", None)


def _held(job_id: str, held: Mapping[str, Reason]) -> Explanation:
    """Of a job that is held: it starts when the last of those that hold it lets it go."""
    ends = [reason.facts.get("starts_at") for reason in held.values()]
    at = None if None in ends else max(float(end) for end in ends if end is not None)
    text = "; ".join(dict.fromkeys(reason.text for reason in held.values()))
    if at is None:
        return Explanation(job_id, (), 0, None, text)
    # What comes then, nothing is known of: other jobs may take the capacity.
    return Explanation(job_id, (), 0, at, text, "at the earliest, when nothing holds it any more", (at, None))


def summed(own: Explanation, held: Mapping[str, Reason], added: Mapping[str, Sequence[Blocker]]) -> Explanation:
    """One explanation of all causes. Those of what holds the job come first, then its `own`, then the others by the
    names of the extensions; the summary names what blocks it."""
    first: list[Blocker] = []
    for name, reason in held.items():
        mine = added.get(name, ())
        if all(cause.reason.code != reason.code for cause in mine):
            first.append(Blocker(name, True, reason))
        first += mine
    rest = [cause for name, causes in added.items() if name not in held for cause in causes]
    blocking = [cause.reason.text for cause in rest if cause.blocking]
    summary = "; ".join(dict.fromkeys(part for part in (own.summary, *blocking) if part))
    return replace(own, causes=(*first, *own.causes, *rest), summary=summary)
