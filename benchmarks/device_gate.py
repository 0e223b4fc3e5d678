"""What the gate of a device adds to a launch: CPU time of the launching thread, in nanoseconds.

    python benchmarks/device_gate.py [--json] [--rounds 200000] [--tenants 8]

The calls that a front end makes around each launch, in a loop of the library, so that Python is not counted: submit for
a guaranteed process, acquire and release for a best-effort one on a quiet device. No driver and no device take part.
Each figure is the median of seven runs, in processes of their own, alone on the page and beside idle tenants.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from common import Row, parser, report

from shoal.device import native
from shoal.device.bench import launch_cost_ns
from shoal.device.page import Page
from shoal.device.policy import Class


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
