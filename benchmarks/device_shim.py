"""What the CUDA shim adds to a launch: CPU time of the launching thread, in nanoseconds, on a fake driver.

    python benchmarks/device_shim.py [--json] [--rounds 20000]

A program linked to the driver launches an empty kernel: without the shim, with it as a guaranteed process, alone and
beside a best-effort tenant, and with it as a best-effort one whose kernel is known and short. The fake driver does what
it is asked at once, in the calling thread. The cost of a real driver's launch, and of its write behind launches, is not
in these figures. Median of five runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from common import Row, median, parser, report

from shoal.device import cuda
from shoal.device.page import Page
from shoal.device.policy import Class

RUNS = 5
FAKE = Path(__file__).parents[1] / "build/native/device/fake"


def cost_ns(folder: Path, cls: str | None, rounds: int) -> float:
    env = {**os.environ, "LD_LIBRARY_PATH": str(FAKE), "SHOAL_FAKE_INSTANT": "1"}
    if cls is not None:
        env |= {"SHOAL_DEVICE_PAGE": str(folder / "page"), "SHOAL_DEVICE_CLASS": cls}
        env |= {"SHOAL_DEVICE_PROFILE": str(folder / "profile"), **cuda.environment(env, FAKE / cuda.LIBRARY)}
    told = [
        subprocess.run([FAKE / "cuda-launches", str(rounds)], env=env, capture_output=True, text=True, check=True)
        for _ in range(RUNS)
    ]
    return median([float(one.stdout) for one in told])


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--rounds", type=int, default=20_000)
    options = arguments.parse_args()
    if not cuda.shim().available or not (FAKE / "cuda-launches").exists():
        raise SystemExit("the native parts were not built: .ci/native says why")
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        page = Page.create(Path(folder) / "page", device="fake")
        plain = cost_ns(Path(folder), None, options.rounds)
        rows = [Row("the fake driver's own launch", plain, "ns")]
        for cls, what, beside, most in (
            ("guaranteed", "alone", False, 100),
            ("guaranteed", "beside a best-effort tenant, with marks", True, 300),
            ("best-effort", "gate, choice and mark", False, 1000),
        ):
            slot = page.join(Class.BEST_EFFORT) if beside else None
            added = cost_ns(Path(folder), cls, options.rounds) - plain
            if slot is not None:
                page.leave(slot)
            rows.append(Row(f"{cls}: {what}, added by the shim", added, "ns", f"<= {most}", added <= most))
        page.close()
    capability = cuda.capability()
    print(f"On this machine: {capability.detail}", file=sys.stderr)
    return report("device_shim", rows, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
