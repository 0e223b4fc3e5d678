"""What the host guard itself costs: CPU seconds of its process a minute, at its default period, by its groups.

    python benchmarks/guard_cost.py [--json] [--groups 4 32] [--seconds 20] [--windows 5]     # under four minutes

Half of the groups are guaranteed and tell their steps by a ring, half are best-effort. Each is one process that is
busy for 3 % of a CPU, so that nothing contends and 32 of them fit on two CPUs. A row is the median of windows. Run it
on a quiet machine: beside it stands how many CPUs other work used meanwhile, in the window of the least and of the
most.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from common import Row, parser, report
from host.limits import guard_process

from shoal.host.linux.fs import LINUX

_WORK = """
import sys, time
from shoal.base.processes import end_with_parent
from shoal.ring import Ring
end_with_parent(int(sys.argv[2]))
ring = Ring(sys.argv[1]) if sys.argv[1] else None
while True:
    until = time.thread_time() + 0.0003
    while time.thread_time() < until:
        pass
    if ring:
        ring.step()
    time.sleep(0.01)
"""
_SETTLE_S = 5.0


@contextmanager
def groups(count: int) -> Iterator[list[dict[str, Any]]]:
    """As a guard's configuration has them, with a process each."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        found: list[dict[str, Any]] = []
        for number in range(count):
            ring = str(home / f"{number}.ring") if number % 2 == 0 else ""
            process = subprocess.Popen([sys.executable, "-c", _WORK, ring, str(os.getpid())])
            stack.callback(process.wait)
            stack.callback(process.kill)
            kind = {"class": "guaranteed", "ring": ring} if ring else {"class": "best-effort"}
            found.append({"name": f"group-{number}", "pids": [process.pid], **kind})
        yield found


@dataclass(frozen=True)
class Window:
    """CPU seconds a minute of the guard, and CPUs that were used by neither the guard nor its groups."""

    cost: float
    others: float


def windows(count: int, seconds: float, number: int) -> Iterator[Window]:
    with groups(count) as told, guard_process({"groups": told}) as guard:

        def used() -> tuple[float, float, float]:
            user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
            busy = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
            mine = sum(LINUX.cpu_s(pid) for one in told for pid in one["pids"])
            return time.monotonic(), guard.cpu_s(), busy - mine - guard.cpu_s()

        time.sleep(_SETTLE_S)
        before = used()
        for _ in range(number):
            time.sleep(seconds)
            now = used()
            took, spent, others = (after - first for first, after in zip(before, now, strict=True))
            yield Window(60 * spent / took, others / took)
            before = now


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--groups", type=int, nargs="+", default=[4, 32])
    arguments.add_argument("--seconds", type=float, default=20.0)
    arguments.add_argument("--windows", type=int, default=5)
    options = arguments.parse_args()
    rows = []
    for count in options.groups:
        found = list(windows(count, options.seconds, options.windows))
        others = sorted(one.others for one in found)
        rows += [
            Row(f"guard with {count} groups", median(one.cost for one in found), "CPU s/min"),
            Row("  CPUs that other work used, least", others[0], ""), Row("  most", others[-1], ""),
        ]  # fmt: skip
    return report("guard_cost", rows, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
