"""Explanations off the event loop: a frozen snapshot goes to a thread; what explanations share is worked out once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from shoal.admission import Explanation, Outlook, Snapshot, explain
from shoal.core import Clock

_SHARE = 0.1
"""Looking ahead takes at most this part of the time: an outlook that took long to make is used the longer, although
the cluster has changed since."""


class Explainer:
    """One explanation is made at a time, so that however many are asked for, one thread competes with the event loop
    for the interpreter. `snapshot` is called on the event loop."""

    def __init__(self, snapshot: Callable[[], Snapshot], clock: Clock) -> None:
        self._snapshot = snapshot
        self._clock = clock
        self._turn = asyncio.Lock()
        self._outlook: Outlook | None = None
        self._made_at = 0.0
        self._took_s = 0.0

    async def explain(self, job_ids: Sequence[str]) -> list[Explanation]:
        """Why these jobs wait, in their order; one that does not wait any more is left out."""
        async with self._turn:
            outlook = self._usable(job_ids)
            began = self._clock.monotonic()
            found = await asyncio.to_thread(_explain_all, outlook, job_ids)
            if outlook is not self._outlook:
                self._outlook, self._made_at = outlook, began
                self._took_s = self._clock.monotonic() - began
            return found

    def _usable(self, job_ids: Sequence[str]) -> Outlook:
        snapshot, last = self._snapshot(), self._outlook
        if last is not None:
            known = last.snapshot.pending.by_id
            young = self._clock.monotonic() - self._made_at < self._took_s / _SHARE
            if young and all(job_id in known or job_id not in snapshot.pending.by_id for job_id in job_ids):
                return last
        return Outlook(snapshot)


def _explain_all(outlook: Outlook, job_ids: Sequence[str]) -> list[Explanation]:
    waiting = outlook.snapshot.pending.by_id
    return [explain(outlook.snapshot, job_id, outlook) for job_id in job_ids if job_id in waiting]
