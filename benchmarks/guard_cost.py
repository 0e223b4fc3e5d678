"""What the host guard itself costs: CPU seconds of its process a minute, at its default period, by its groups.

    python benchmarks/guard_cost.py [--json] [--groups 4 32] [--seconds 60]

Half of the groups are guaranteed and tell their steps by a ring, half are best-effort. Each is one process that is
busy for 3 % of a CPU, so that nothing contends and 32 of them fit on two CPUs. Run it on a quiet machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from common import Row, parser, report

from shoal.host import guard_process
from shoal.host.fs import LINUX

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


def cost(count: int, seconds: float) -> float:
    """CPU seconds a minute."""
    with groups(count) as told, guard_process({"groups": told}) as guard:
        time.sleep(_SETTLE_S)
        began, spent = time.monotonic(), guard.cpu_s()
        time.sleep(seconds)
        return 60 * (LINUX.cpu_s(guard.pid) - spent) / (time.monotonic() - began)


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--groups", type=int, nargs="+", default=[4, 32])
    arguments.add_argument("--seconds", type=float, default=60.0)
    options = arguments.parse_args()
    rows = [Row(f"guard with {count} groups", cost(count, options.seconds), "CPU s/min") for count in options.groups]
    return report("guard_cost", rows, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
