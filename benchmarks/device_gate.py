"""What the gate of a device adds to a launch: CPU time of the launching thread, in nanoseconds.

    python benchmarks/device_gate.py [--json] [--rounds 200000] [--tenants 8]

The calls that a front end makes around each launch, in a loop of the library, so that Python is not counted: submit for
a guaranteed process, acquire and release for a best-effort one on a quiet device. No driver and no device take part.
Each figure is the median of seven runs, in processes of their own, alone on the page and beside idle tenants.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from common import Row, parser, report

from shoal.core import Unavailable
from shoal.device import native
from shoal.device.page import Page
from shoal.device.policy import Class

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


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--rounds", type=int, default=200_000)
    arguments.add_argument("--tenants", type=int, default=8, help="idle tenants of both classes beside")
    options = arguments.parse_args()
    if not native.capability().available:
        raise SystemExit(native.capability().detail)
    rows = []
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        for beside in (0, options.tenants):
            path = Path(folder) / f"page-{beside}"
            with Page.create(path, device="none") as page:
                for number in range(beside):
                    page.join(Class.BEST_EFFORT if number % 2 else Class.GUARANTEED)
                where = f"beside {beside} idle tenants" if beside else "alone"
                for cls, what, most in (
                    ("guaranteed", "submit", 300), ("best-effort", "acquire and release, quiet", 1000)
                ):  # fmt: skip
                    took = launch_cost_ns(path, cls, rounds=options.rounds)
                    rows.append(Row(f"{cls}: {what}, {where}", took, "ns", f"<= {most}", took <= most))
    return report("device_gate", rows, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
