"""What the CUDA shim adds to a launch: CPU time of the launching thread, in nanoseconds, on a fake driver.

    python benchmarks/device_shim.py [--json] [--rounds 20000]

A program linked to the driver launches an empty kernel: without the shim, with it as a guaranteed process, and with it
as a best-effort one whose kernel is known and short. The fake driver does what it is asked at once, in the calling
thread. The cost of a real driver's launch, and of its write behind each launch, is not in these figures. Median of five
runs.
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
        Page.create(Path(folder) / "page", device="fake").close()
        plain = cost_ns(Path(folder), None, options.rounds)
        rows = [Row("the fake driver's own launch", plain, "ns")]
        for cls, most in (("guaranteed", 300), ("best-effort", 1000)):
            write = "and the write behind it, " if cls == "guaranteed" else "gate, choice and write, "
            added = cost_ns(Path(folder), cls, options.rounds) - plain
            rows.append(Row(f"{cls}: {write}added by the shim", added, "ns", f"<= {most}", added <= most))
    capability = cuda.capability()
    print(f"On this machine: {capability.detail}", file=sys.stderr)
    return report("device_shim", rows, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
