"""One load's requests while it runs: which are unanswered, which are held back, and a record of each."""

from __future__ import annotations

import time
from array import array
from collections import Counter, deque
from collections.abc import Callable, Sequence

import numpy as np

from shoal.core import Reason
from shoal.measure.load.wire import Pool
from shoal.measure.types import Failure, Floats, LoadResult, Target, kind_of

_NAN = float("nan")
_FEWEST_FAILURES = 3
"""The least number in a row before a load is given up."""


class Stream:
    """Rows of the record are numbered in the order in which the requests were scheduled; all times are in seconds from
    the load's start. Lists of plain numbers, not numpy arrays: they are written one by one."""

    def __init__(self, target: Target, requests: Sequence[bytes], pool: Pool, *, max_outstanding: int) -> None:
        self.target = target
        self.max_outstanding = max_outstanding
        self.held_back = 0
        self.flying = 0
        self.answered = 0
        self.failed = 0
        self.on_end: Callable[[bool], None] | None = None
        """Told of each end, and whether it was a good one."""
        self._requests = requests
        self._pool = pool
        self._epoch_s = 0.0
        self._scheduled, self._lag = array("d"), array("d")
        self._sent, self._done = array("d"), array("d")
        self._status = array("l")
        self._held: deque[int] = deque()
        self._streak: Counter[int] = Counter()
        self._streak_s = 0.0
        self._told = 0

    def begin(self, epoch_s: float) -> None:
        """All times count from here (`time.monotonic`)."""
        self._epoch_s = epoch_s

    @property
    def issued(self) -> int:
        return len(self._scheduled)

    @property
    def idle(self) -> bool:
        return not self.flying and not self._held

    def issue(self, scheduled_s: float, now_s: float) -> None:
        """Take up the next request; it is sent unless too many are unanswered."""
        row = len(self._scheduled)
        self._scheduled.append(scheduled_s)
        self._lag.append(now_s - scheduled_s)
        self._sent.append(_NAN)
        self._done.append(_NAN)
        self._status.append(Failure.UNSENT)
        if self.flying < self.max_outstanding and not self._held:
            self._send(row, now_s)
        else:
            self._held.append(row)
            self.held_back += 1

    def forsake(self) -> None:
        """Never send what is held back."""
        self._held.clear()

    def hopeless(self, now_s: float, give_up_s: float) -> Reason | None:
        """Why it makes no sense to go on: for so long nothing but failures came."""
        failures = self._streak.total()
        if failures < _FEWEST_FAILURES or now_s - self._streak_s < give_up_s:
            return None
        (code, _), *_ = self._streak.most_common(1)
        return Reason(
            "failing",
            f"{self.target.label}: nothing but failures for {now_s - self._streak_s:.1f} s, {failures} in all, "
            f"mostly: {kind_of(code)}",
            {"target": self.target.label, "failures": failures, "kind": kind_of(code)},
        )

    def samples(self, now_s: float, late_s: float) -> Floats:
        """Shape (k,): latencies that have become known since the last call, in order of schedule and without gaps;
        infinity for a failure, and for what is unanswered but late already."""
        first, known = self._told, []
        for row in range(first, len(self._scheduled)):
            if self._done[row] == self._done[row]:  # not nan: it has ended
                good = 200 <= self._status[row] < 300
                known.append(self._done[row] - self._scheduled[row] if good else float("inf"))
            elif now_s - self._scheduled[row] > late_s:
                known.append(float("inf"))
            else:
                break
        self._told = first + len(known)
        return np.array(known, dtype=np.float64)

    def result(
        self, *, duration_s: float, warmup_s: float, open_loop: bool, cpu_share: float, aborted: Reason | None
    ) -> LoadResult:
        return LoadResult(
            tenant=self.target.tenant,
            model=f"{self.target.model}:{self.target.version}" if self.target.version else self.target.model,
            scheduled_s=np.array(self._scheduled),
            sent_s=np.array(self._sent),
            done_s=np.array(self._done),
            status=np.array(self._status, dtype=np.int64),
            duration_s=duration_s,
            warmup_s=warmup_s,
            lag_s=np.array(self._lag),
            open_loop=open_loop,
            held_back=self.held_back,
            max_outstanding=self.max_outstanding,
            cpu_share=cpu_share,
            aborted=aborted,
        )

    def _send(self, row: int, now_s: float) -> None:
        self.flying += 1
        self._sent[row] = now_s
        self._pool.send(self._requests[row % len(self._requests)], row, self._ended)

    def _ended(self, row: int, status: int, at_s: float, _body: bytes) -> None:
        self.flying -= 1
        self.answered += 1
        self._done[row] = at_s - self._epoch_s
        self._status[row] = status
        good = 200 <= status < 300
        if good:
            self._streak.clear()
        else:
            self.failed += 1
            if not self._streak:
                self._streak_s = self._done[row]
            self._streak[status] += 1
        if self._held:
            self._send(self._held.popleft(), time.monotonic() - self._epoch_s)
        if self.on_end is not None:
            self.on_end(good)
