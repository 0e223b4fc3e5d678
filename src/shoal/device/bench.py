"""Cost of the gate for a launch on this machine: CPU time of the launching thread."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from statistics import median

from shoal.core import Unavailable

# A process of its own: a process has one gate, of one class. The loop is the library's, so that Python is not counted.
_MEASURE = """
import sys
from shoal.device import native
library = native.library()
gate = library.shoal_gate_get()
if not gate:
    raise SystemExit(library.shoal_gate_why().decode())
lane = library.shoal_gate_open_lane(gate)
library.shoal_gate_cost(gate, lane, 10_000)
print(library.shoal_gate_cost(gate, lane, int(sys.argv[1])))
"""


def launch_cost_ns(page: Path, cls: str, *, rounds: int = 200_000, runs: int = 7) -> float:
    """The median over `runs` processes: submit for a guaranteed one, acquire and release for a best-effort one on a
    device where nothing else is. No driver and no device take part. Raises Unavailable."""
    env = {**os.environ, "SHOAL_DEVICE_PAGE": str(page), "SHOAL_DEVICE_CLASS": cls}
    told = []
    for _ in range(runs):
        command = [sys.executable, "-c", _MEASURE, str(rounds)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["it failed"])[-1]
            raise Unavailable(f"the gate cannot be measured: {last}", where=str(page))
        told.append(float(done.stdout))
    return median(told)
