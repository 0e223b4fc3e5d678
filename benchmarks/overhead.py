"""What the platform costs a training loop: the same script bare and as a job, in turn, several times.

The loop is a small NumPy network on random data with a report at every step. The figure is the ratio of the loop's own
time, so that process start-up counts on neither side.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import Row, median, parser, report, server

TARGET_PERCENT = 0.5
LOOP = """
import sys, time
import numpy as np
from shoal import train

rng = np.random.default_rng(0)
x, y = rng.normal(size=(512, 256)), rng.normal(size=(512, 10))
a, b = rng.normal(size=(256, 256)) * 0.05, rng.normal(size=(256, 10)) * 0.05
steps = int(sys.argv[2])

def run(count):
    global a, b
    for step in range(count):
        h = np.maximum(x @ a, 0)
        e = h @ b - y
        g = (e @ b.T) * (h > 0)
        b -= 1e-4 * (h.T @ e)
        a -= 1e-4 * (x.T @ g)
        train.report(step, total=count, loss=float((e * e).mean()))
        if train.should_checkpoint():
            break

run(steps // 10)
began = time.process_time(), time.perf_counter()
run(steps)
open(sys.argv[1], "w").write(f"{time.process_time() - began[0]} {time.perf_counter() - began[1]}")
"""


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--pairs", type=int, default=9)
    arguments.add_argument("--steps", type=int, default=1500)
    options = arguments.parse_args()
    wall, cpu = [], []
    with tempfile.TemporaryDirectory() as folder, server(slots=1) as one:
        script = Path(folder) / "loop.py"
        script.write_text(LOOP)
        client = one.client()
        client.create_tenant("bench")
        for number in range(options.pairs):
            bare = run_bare(script, Path(folder) / "bare", options.steps)
            ours = run_job(client, script, Path(folder) / f"job-{number}", options.steps)
            cpu.append(ours[0] / bare[0] - 1)
            wall.append(ours[1] / bare[1] - 1)
    percent = median(wall) * 100
    rows = [
        Row("training loop, wall time over the bare process", percent, "%", f"<= {TARGET_PERCENT}",
            percent <= TARGET_PERCENT),
        Row("  smallest and", min(wall) * 100, "%"),
        Row("  largest of the pairs", max(wall) * 100, "%"),
        Row("  processor time over the bare process, median", median(cpu) * 100, "%"),
    ]  # fmt: skip
    return report("platform overhead on a training loop", rows, as_json=options.json)


def run_bare(script: Path, note: Path, steps: int) -> tuple[float, float]:
    subprocess.run(
        [sys.executable, str(script), str(note), str(steps)],
        check=True,
        env={"OMP_NUM_THREADS": "1", "PATH": "/usr/bin"},
    )
    return read(note)


def run_job(client: object, script: Path, note: Path, steps: int) -> tuple[float, float]:
    job = client.submit(
        {"name": "loop", "tenant": "bench", "command": [sys.executable, str(script), str(note), str(steps)],
         "env": {"OMP_NUM_THREADS": "1"}}
    )  # fmt: skip
    client.wait(job.id, timeout_s=300)
    time.sleep(0.2)
    return read(note)


def read(note: Path) -> tuple[float, float]:
    cpu, wall = note.read_text().split()
    return float(cpu), float(wall)


if __name__ == "__main__":
    sys.exit(main())
