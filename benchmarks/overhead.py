"""What the platform costs a training loop: the same script bare and as a job, in turn, several times.

The loop is a small NumPy network on random data with a report at every step. Each run times pieces of about 0.2 s of
it, and the two sides' pieces are compared at their tenth percentile: a neighbour's bursts on a shared machine then
count on neither side, while what the platform does all the time (reports, its own watching) counts in every piece.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import Row, median, parser, percentile, report, server

TARGET_PERCENT = 0.5
LOOP = """
import sys, time
import numpy as np
from shoal import train

rng = np.random.default_rng(0)
x, y = rng.normal(size=(512, 256)), rng.normal(size=(512, 10))
a, b = rng.normal(size=(256, 256)) * 0.05, rng.normal(size=(256, 10)) * 0.05

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

run(50)
pieces = []
for _ in range(int(sys.argv[2])):
    began = time.perf_counter()
    run(50)
    pieces.append(time.perf_counter() - began)
open(sys.argv[1], "w").write(" ".join(map(str, pieces)))
"""


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--pairs", type=int, default=11)
    arguments.add_argument("--pieces", type=int, default=20)
    options = arguments.parse_args()
    bare: list[float] = []
    ours: list[float] = []
    with tempfile.TemporaryDirectory() as folder, server(slots=1) as one:
        script = Path(folder) / "loop.py"
        script.write_text(LOOP)
        client = one.client()
        client.create_tenant("bench")
        for number in range(options.pairs):
            bare += run_bare(script, Path(folder) / "bare", options.pieces)
            ours += run_job(client, script, Path(folder) / f"job-{number}", options.pieces)
    percent = (percentile(ours, 0.1) / percentile(bare, 0.1) - 1) * 100
    target = f"<= {TARGET_PERCENT}"
    rows = [
        Row("training loop over the bare process, p10", percent, "%", target, percent <= TARGET_PERCENT),
        Row("  at the median, for the noise", (median(ours) / median(bare) - 1) * 100, "%"),
        Row("  pieces on each side", len(bare), ""),
    ]
    return report("platform overhead on a training loop", rows, as_json=options.json)


def run_bare(script: Path, note: Path, pieces: int) -> list[float]:
    words = [sys.executable, str(script), str(note), str(pieces)]
    subprocess.run(words, check=True, env={"OMP_NUM_THREADS": "1", "PATH": "/usr/bin"})
    return read(note)


def run_job(client: Any, script: Path, note: Path, pieces: int) -> list[float]:
    words = [sys.executable, str(script), str(note), str(pieces)]
    job = client.submit({"name": "loop", "tenant": "bench", "command": words, "env": {"OMP_NUM_THREADS": "1"}})
    client.wait(job.id, timeout_s=300)
    return read(note)


def read(note: Path) -> list[float]:
    return [float(piece) for piece in note.read_text().split()]


if __name__ == "__main__":
    sys.exit(main())
