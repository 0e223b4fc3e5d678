"""Jobs that wait for something that admission does not decide: the end of other jobs, or their turn in a job array.

Admission sees such a job only once nothing of this holds it. What is known follows the same changes as the cache of
jobs, and can be worked out again from the store: only the first attempt of a job waits for others.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from shoal.admission import Blocker, Explanation
from shoal.contract.dependencies import When, met
from shoal.contract.lifecycle import JobState
from shoal.contract.manifest import After
from shoal.contract.records import Ends, JobRecord
from shoal.control.jobs.asked import Asked
from shoal.core import Conflict, Reason

DEPENDENCY, ARRAY = "dependency", "array"
"""Codes of waits, and names of causes in an explanation."""

_NAMED = 5


@dataclass(slots=True)
class _Target:
    """A job or an array that others wait for, and which they are: those that have not started yet."""

    open_jobs: int
    failed: bool
    users: dict[str, None] = field(default_factory=dict)
    claims: int = 0

    def met(self, when: When) -> bool | None:
        return met(when, open_jobs=self.open_jobs, failed=self.failed)


@dataclass(slots=True)
class _Array:
    """An array with a limit: the tasks that admission sees or that hold resources, and those that wait for a turn."""

    limit: int
    admitted: set[str] = field(default_factory=set)
    waiting: list[tuple[int, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Held:
    job: JobRecord
    limit: int | None


class HeldJobs:
    """`look` tells how far a job or an array is, by its id; None if there is none."""

    def __init__(self, look: Callable[[str], Ends | None]) -> None:
        self._look = look
        self._targets: dict[str, _Target] = {}
        self._after: dict[str, tuple[After, ...]] = {}
        self._held: dict[str, _Held] = {}
        self._arrays: dict[str, _Array] = {}
        self._removing: set[str] = set()
        self.doomed: dict[str, str] = {}
        """Jobs that wait for what can no longer come, and why: they are to be cancelled."""

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._held

    # --- following jobs ---

    def admits(self, job: JobRecord, asked: Asked) -> bool:
        """A job came to wait: whether admission may see it now. If not, it is held until a change releases it."""
        limit = asked.tasks_limit if job.array_id is not None else None
        if job.attempt == 0 and asked.after:
            self._after[job.id] = asked.after
            for one in asked.after:
                self._target(one.job).users[job.id] = None
            if not self._settled(job.id):
                self._held[job.id] = _Held(job, limit)
                return False
        return self._takes_turn(job, limit)

    def occupies(self, job: JobRecord, asked: Asked) -> None:
        """A job holds resources: it waits for no other any more, and counts against the limit of its array."""
        self._forget(job.id)
        if asked.tasks_limit is not None and job.array_id is not None:
            self._arrays.setdefault(job.array_id, _Array(asked.tasks_limit)).admitted.add(job.id)

    def paused(self, job: JobRecord) -> list[str]:
        """A job was suspended; which are released by that. What it waits for is remembered until it ends."""
        self._held.pop(job.id, None)
        self.doomed.pop(job.id, None)
        return self._gives_turn(job)

    def ended(self, job: JobRecord) -> list[str]:
        """A job is over; which are released by that."""
        self._held.pop(job.id, None)
        self._forget(job.id)
        released: list[str] = []
        for ref in (job.id, job.array_id):
            target = self._targets.get(ref) if ref is not None else None
            if target is None:
                continue
            bad = job.state is not JobState.SUCCEEDED
            news = bad and not target.failed
            target.open_jobs = max(0, target.open_jobs - 1)
            target.failed |= bad
            if news or not target.open_jobs:
                released += self._released(target.users)
        return released + self._gives_turn(job)

    def _released(self, users: Iterable[str]) -> list[str]:
        ready = [self._held[job_id] for job_id in users if job_id in self._held and self._settled(job_id)]
        for one in ready:
            del self._held[one.job.id]
        return [one.job.id for one in ready if self._takes_turn(one.job, one.limit)]

    def _settled(self, job_id: str) -> bool:
        """Whether all that a job waits for has come; one for which it never can is doomed."""
        verdicts = [(one, self._targets[one.job].met(one.when)) for one in self._after.get(job_id, ())]
        never = next((one for one, verdict in verdicts if verdict is False), None)
        if never is not None:
            self.doomed[job_id] = f"waited for the {never.when} of {never.job}, which cannot come any more"
        return all(verdict for _, verdict in verdicts)

    def _forget(self, job_id: str) -> None:
        self.doomed.pop(job_id, None)
        for one in self._after.pop(job_id, ()):
            target = self._targets.get(one.job)
            if target is not None:
                target.users.pop(job_id, None)
                self._drop(one.job, target)

    # --- turns in an array ---

    def _takes_turn(self, job: JobRecord, limit: int | None) -> bool:
        if limit is None or job.array_id is None:
            return True
        array = self._arrays.setdefault(job.array_id, _Array(limit))
        if job.id in array.admitted or len(array.admitted) < limit:
            array.admitted.add(job.id)
            return True
        self._held[job.id] = _Held(job, limit)
        insort(array.waiting, (job.array_index or 0, job.id))
        return False

    def _gives_turn(self, job: JobRecord) -> list[str]:
        array = self._arrays.get(job.array_id) if job.array_id is not None else None
        if array is None or job.array_id is None:
            return []
        array.admitted.discard(job.id)
        released = []
        while array.waiting and len(array.admitted) < array.limit:
            _, following = array.waiting.pop(0)
            if self._held.pop(following, None) is not None:
                array.admitted.add(following)
                released.append(following)
        if not array.admitted and not array.waiting:
            del self._arrays[job.array_id]
        return released

    # --- what others wait for ---

    def _target(self, ref: str) -> _Target:
        target = self._targets.get(ref)
        if target is None:
            found = self._look(ref)
            # What a waiting job names is kept; should it be gone all the same, its end was no success.
            found = found or Ends(0, failed=True)
            target = self._targets[ref] = _Target(found.open_jobs, found.failed)
        return target

    def _drop(self, ref: str, target: _Target) -> None:
        if not target.users and not target.claims:
            self._targets.pop(ref, None)

    @contextmanager
    def claimed(self, after: Iterable[After]) -> Iterator[None]:
        """What a submission names is followed, and not removed, until its job is there."""
        refs = [one.job for one in after]
        for ref in refs:
            if ref in self._removing:
                raise Conflict(f"{ref} is being removed: it ended long ago", where="after", hint="leave it out")
            self._target(ref).claims += 1
        try:
            yield
        finally:
            for ref in refs:
                target = self._targets[ref]
                target.claims -= 1
                self._drop(ref, target)

    def holds(self, *refs: str | None) -> bool:
        """Whether a job that has not started yet waits for one of these jobs or arrays."""
        return any(ref in self._targets for ref in refs if ref is not None)

    @contextmanager
    def removing(self, refs: Iterable[str]) -> Iterator[None]:
        """No submission may name these jobs and arrays now."""
        given = set(refs) - self._removing
        self._removing |= given
        try:
            yield
        finally:
            self._removing -= given

    # --- why ---

    def why(self, job_id: str) -> Reason | None:
        """Why a held job waits; None for one that is not held."""
        held = self._held.get(job_id)
        if held is None:
            return None
        missing = self._missing(job_id)
        if not missing:
            text = f"waits: {held.limit} of the tasks of array {held.job.array_id} run at a time"
            return Reason(ARRAY, text, {"array": held.job.array_id, "limit": held.limit})
        named = ", ".join(f"the {one.when} of {one.job}" for one in missing[:_NAMED])
        more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        facts = {"after": [{"job": one.job, "when": one.when.value} for one in missing]}
        return Reason(DEPENDENCY, f"waits for {named}{more}", facts)

    def _missing(self, job_id: str) -> list[After]:
        return [one for one in self._after.get(job_id, ()) if not self._targets[one.job].met(one.when)]

    def explain(self, job_id: str) -> Explanation | None:
        """Every cause for which a job is held; None for one that is not."""
        reason = self.why(job_id)
        if reason is None:
            return None
        if reason.code == ARRAY:
            change = "wait until a task of the array ends, or submit the rest with a higher limit"
            return Explanation(
                job_id, (Blocker(ARRAY, True, reason, change),), self._tasks_before(job_id), None, reason.text,
                "when other tasks of its array end",
            )  # fmt: skip
        causes = []
        for one in self._missing(job_id):
            target = self._targets[one.job]
            left = f"{target.open_jobs} of its tasks are" if target.open_jobs > 1 else "it is"
            text = f"waits for the {one.when} of {one.job}: {left} not over"
            facts = {"job": one.job, "when": one.when.value, "open": target.open_jobs}
            causes.append(Blocker(DEPENDENCY, True, Reason(DEPENDENCY, text, facts), f"wait until {one.job} has ended"))
        return Explanation(job_id, tuple(causes), 0, None, reason.text, "when the jobs that it waits for have ended")

    def _tasks_before(self, job_id: str) -> int:
        job = self._held[job_id].job
        array = self._arrays[job.array_id or ""]
        return sum(index < (job.array_index or 0) for index, one in array.waiting if one in self._held)
