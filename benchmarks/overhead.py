"""What the platform costs a training loop: the same script bare and as a job, in turn, several times.

The loop is a small NumPy network on random data with a report at every step. Each run times pieces of about 0.2 s of
it and counts as its tenth percentile: a neighbour's bursts on a shared machine then count on neither side, while what
the platform does all the time (reports, its own watching) counts in every piece. A run as a job and a run bare, one
right after the other and in alternating order, are a pair; the figure is the median of the pairs' ratios, with the
interval that holds it at 95 % (sign test), since a process's luck with its memory layout alone moves a run by 1 %.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import Row, median, parser, report, server
from scipy.stats import binom

from shoal.base.statistics import quantile

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
    arguments.add_argument("--pairs", type=int, default=25)
    arguments.add_argument("--pieces", type=int, default=10)
    options = arguments.parse_args()
    ratios: list[float] = []
    with tempfile.TemporaryDirectory() as folder, server(slots=1) as one:
        script = Path(folder) / "loop.py"
        script.write_text(LOOP)
        client = one.client()
        client.create_tenant("bench", sandbox="none")
        for number in range(options.pairs):
            sides = [
                lambda: run_bare(script, Path(folder) / "bare", options.pieces),
                lambda number=number: run_job(client, script, Path(folder) / f"job-{number}", options.pieces),
            ]
            times = [quantile(side(), 0.1) for side in (sides if number % 2 else sides[::-1])]
            bare, ours = times if number % 2 else times[::-1]
            ratios.append((ours / bare - 1) * 100)
    percent = median(ratios)
    low, high = interval(ratios)
    target = f"<= {TARGET_PERCENT}"
    rows = [
        Row("training loop over the bare process", percent, "%", target, percent <= TARGET_PERCENT),
        Row("  95 % interval, from", low, "%"),
        Row("  to", high, "%"),
        Row("  pairs of runs", len(ratios), ""),
    ]
    return report("platform overhead on a training loop", rows, as_json=options.json)


def interval(values: list[float]) -> tuple[float, float]:
    """The order statistics between which the median lies with 95 % confidence."""
    ordered = sorted(values)
    out = max(0, int(binom.ppf(0.025, len(ordered), 0.5)) - 1)
    return ordered[out], ordered[-1 - out]


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
