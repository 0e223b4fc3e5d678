"""For how long to look for what comes next, before sleeping until it comes.

Who sleeps has to be woken: on an idle virtual machine that takes some 50 us, at each of the four turns that a request
takes between client, gateway and replica, and as long again for caches to warm up. So whoever waits looks for a moment
first, if what came lately came within such a moment, and gives way to whoever else wants its core at each look.

How long a moment is follows KVM's halt polling (Linux, virt/kvm/kvm_main.c, grow_halt_poll_ns): it is doubled while
waits are short, and nothing after a wait that was longer than any moment may be. So an idle process sleeps, and so does
one that serves long executions. Where giving way takes long, somebody else computes on these cores: a process that
looked is then no longer preferred for having slept, and would wait for its turn each time. So it sleeps at once for a
while, and for twice as long each time that looking again has not paid for what it cost.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from math import inf
from pathlib import Path

FORBIDS_POLLING = "SHOAL_HALT_POLL"
"""In the environment, with the value `off`."""

FIRST_S = 0.00005
DISTURBED_S = 0.0005
"""A caller's or a gateway's turn at a request is shorter than this, a time slice of whoever computes longer."""
PAYS = 40
"""Short waits that save a wake-up each, for one time slice of somebody else."""
FIRST_REST_S, LONGEST_REST_S = 0.01, 30.0


class HaltPoll:
    """`window_s` is how long to look before the next sleep: nothing at first, `longest_s` at most."""

    __slots__ = ("_clock", "_give_way", "_rest_s", "_rest_until", "_short", "longest_s", "window_s")

    def __init__(
        self,
        longest_s: float,
        *,
        clock: Callable[[], float] = time.perf_counter,
        give_way: Callable[[], None] = os.sched_yield,
    ) -> None:
        self.longest_s = longest_s
        self.window_s = 0.0
        self._clock = clock
        self._give_way = give_way
        self._rest_s = FIRST_REST_S
        self._rest_until = 0.0
        self._short = PAYS

    def give_way(self) -> float:
        """Let others have the core; returns what time it is afterwards."""
        began = self._clock()
        self._give_way()
        now = self._clock()
        if now - began > DISTURBED_S:
            self._rest_s = FIRST_REST_S if self._short >= PAYS else min(2 * self._rest_s, LONGEST_REST_S)
            self._rest_until = now + self._rest_s
            self._short = 0
            self.window_s = 0.0
        return now

    def waited(self, seconds: float, now: float) -> None:
        """So long it took until something came, looking and sleeping."""
        if seconds > self.longest_s or now < self._rest_until:
            self.window_s = 0.0
        else:
            self._short += seconds < self.window_s
            self.window_s = min(max(FIRST_S, 2 * self.window_s), self.longest_s)


def worth_polling() -> bool:
    """Whether there is a core for somebody who waits, beside that of whoever is waited for, and nobody forbade it."""
    if os.environ.get(FORBIDS_POLLING, "").lower() in ("off", "0", "no", "false"):
        return False
    return min(len(os.sched_getaffinity(0)), granted_cpus()) > 1


def granted_cpus(root: Path = Path("/sys/fs/cgroup")) -> float:
    """CPUs' worth of time that a container may use: in one, the root that it sees is its own cgroup."""
    try:
        quota, period = (root / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota = (root / "cpu" / "cpu.cfs_quota_us").read_text().strip()
            period = (root / "cpu" / "cpu.cfs_period_us").read_text().strip()
        except OSError:
            return inf
    return float(quota) / float(period) if quota not in ("max", "-1") else inf
