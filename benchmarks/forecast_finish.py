"""Whether running jobs finish when they are said to: real jobs, a real server, asked at a quarter of the work.

    python benchmarks/forecast_finish.py [--jobs 96] [--seconds 16] [--seed 18] [--json]

Each job trains a small NumPy network and pauses between steps, as the demo's jobs do, and checkpoints every second.
Drawn for each job, and not known to the server: mean step time (20 to 80 ms), spread of a step (2 to 30 %), and how
much steps become slower or faster over the whole job (normal, 5 %). Eight run at a time on the machine's cores. The
forecast is read through the API in the first picture that shows a quarter of the steps; the truth is when the server
has the job as succeeded. The least width of the interval was chosen with seed 17. Cost: CPU of `Forecast.finish` for a
report, in this process, with the search for slowdowns.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from common import Row, parser, report, server

from shoal.contract.lifecycle import JobState
from shoal.extension import LiveJob, Server
from shoal.forecast.live.extension import Forecast, ForecastSection

SCRIPT = """
import random, sys, time
import numpy as np
from shoal import train

seed, steps, mean, spread, drift = int(sys.argv[1]), int(sys.argv[2]), *map(float, sys.argv[3:])
draw, data = random.Random(seed), np.random.default_rng(seed)
x, y, w, v = data.normal(size=(256, 64)), data.normal(size=(256, 8)), data.normal(size=(64, 32)), np.zeros((32, 8))
for step in range(1, steps + 1):
    began = time.monotonic()
    hidden = np.tanh(x @ w)
    error = hidden @ v - y
    w -= 1e-3 * x.T @ ((error @ v.T) * (1 - hidden**2)) / 256
    v -= 1e-2 * hidden.T @ error / 256
    wanted = mean * (1 + drift * (step / steps - 0.5)) * max(0.1, draw.gauss(1, spread))
    time.sleep(max(0.0, wanted - (time.monotonic() - began)))
    train.report(step, total=steps, loss=float((error**2).mean()))
    if train.should_checkpoint(every_s=1.0):
        np.savez(path := train.checkpoint_dir() / "model.npz", w=w, v=v)
        train.checkpoint(path, step=step)
"""
SLOTS = 8


def manifests(jobs: int, seconds: float, script: Path, seed: int) -> list[dict[str, Any]]:
    draw, made = random.Random(seed), []
    for number in range(jobs):
        mean, spread, drift = draw.uniform(0.02, 0.08), draw.uniform(0.02, 0.3), draw.gauss(0, 0.05)
        steps = round(draw.uniform(0.7, 1.3) * seconds / mean)
        numbers = [number, steps, f"{mean:.4f}", f"{spread:.3f}", f"{drift:.3f}"]
        made.append({
            "name": f"job-{number}", "command": [sys.executable, str(script), *map(str, numbers)],
            "resources": {"accelerators": 1, "cpus": 0, "memory": "64MiB"}, "env": {"OMP_NUM_THREADS": "1"},
        })  # fmt: skip
    return made


def play(jobs: int, seconds: float, seed: int) -> list[tuple[float, float, float, float, float]]:
    """Of each job: when it was asked, what was said (median, low, high), and when it was over."""
    os.environ["SHOAL_FORECAST__ENABLED"] = "true"
    with tempfile.TemporaryDirectory() as folder, server(slots=SLOTS) as house, house.client() as client:
        (script := Path(folder) / "job.py").write_text(SCRIPT)
        ids = [client.submit(one).id for one in manifests(jobs, seconds, script, seed)]
        said: dict[str, tuple[float, dict[str, Any] | None]] = {}
        open_ids = set(ids)
        while open_ids:
            for job in client.jobs(state=[JobState.RUNNING], limit=SLOTS).jobs:
                if job.id not in said and 4 * job.progress.get("step", 0) >= job.progress.get("total", float("inf")):
                    said[job.id] = time.time(), job.progress.get("finish")
            open_ids -= {job.id for job in client.jobs(state=[JobState.SUCCEEDED, JobState.FAILED], limit=1000).jobs}
            time.sleep(0.2)
        found = []
        for one in ids:
            job = client.job(one)
            if job.state is not JobState.SUCCEEDED or job.attempt != 1:
                raise SystemExit(f"{job.name} {job.state} at attempt {job.attempt}: {job.message}")
            asked, finish = said.get(one, (0.0, None))
            if finish is None:
                raise SystemExit(f"nothing was said of {job.name} at a quarter of its work")
            found.append((asked, finish["median"], finish["low"], finish["high"], cast("float", job.ended_at)))
        return found


def cost_ms(reports: int) -> float:
    """Milliseconds of CPU that a report costs the control plane."""
    attempt = SimpleNamespace(number=1, placement=[SimpleNamespace(node="n")])
    jobs = [SimpleNamespace(job=SimpleNamespace(id=f"j{number}"), attempt=attempt) for number in range(SLOTS)]
    forecast = Forecast(cast("Server", SimpleNamespace(active_jobs=lambda: jobs)), ForecastSection(enabled=True))
    live = cast("LiveJob", jobs[0])
    draw, at = random.Random(0), 0.0
    told = []
    for step in range(1, reports + 1):
        at += draw.lognormvariate(0, 0.03)
        told.append({"reported_at": at, "step": step, "total": 2 * reports})
    began = time.process_time()
    for one in told:
        forecast.finish(live, one)
    return 1e3 * (time.process_time() - began) / reports


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--jobs", type=int, default=96)
    arguments.add_argument("--seconds", type=float, default=16.0, help="run time of a job, about")
    arguments.add_argument("--seed", type=int, default=18)
    options = arguments.parse_args()
    cost = cost_ms(5000)
    found = play(options.jobs, options.seconds, options.seed)
    errors = [abs(median - ended) / (ended - asked) for asked, median, _, _, ended in found]
    holds = statistics.mean(low <= ended <= high for _, _, low, high, ended in found)
    widths = [(high - low) / 2 / (ended - asked) for asked, _, low, high, ended in found]
    late = statistics.mean(ended > median for _, median, _, _, ended in found)
    middle = statistics.median(errors)
    rows = [
        Row(f"intervals that hold, of {len(found)} jobs", 100 * holds, "%", "85 to 95", 0.85 <= holds <= 0.95),
        Row("median error of the time left", 100 * middle, "%", "<= 5", middle <= 0.05),
        Row("largest error of the time left", 100 * max(errors), "%"),
        Row("half width of the interval, median", 100 * statistics.median(widths), "%"),
        Row("jobs that end after the median", 100 * late, "%"),
        Row("CPU of a report in the server", cost, "ms", "<= 0.1", cost <= 0.1),
    ]
    return report("Finish times of running jobs, at a quarter of their work", rows, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
