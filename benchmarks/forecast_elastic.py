"""CM-DARE's experiments, redone in small with the elastic gloo example on the local engine.

    python benchmarks/forecast_elastic.py --data FOLDER [--jobs 9] [--seed 17] [--json]

FOLDER holds CM-DARE's lifetime_cdf.csv. Real: the server, the gangs of PyTorch over gloo on this machine's CPUs, their
checkpoints, and SIGKILL as revocation. Not real: servers are processes, steps are short and mostly a pause, and time is
sped up: lives are drawn from what CM-DARE measured of K80 in its riskiest region, an hour taking `--hour` seconds.

Speed: steps per second of 1 and 2 ranks without a pause. Checkpoints: time at five sizes of the model; each size is
predicted from the others. Replacement: from the kill of rank 0 or 1 to the first step that is reported after it.
Revocations: jobs of two ranks whose servers live as long as drawn; how long each takes, against the interval that
`shoal.forecast.total_time` gives for gangs of two, from one job that nothing revoked and from the replacements. The
work of each is the same. No job loses more than the steps since its last checkpoint.
"""

from __future__ import annotations

import os
import random
import re
import signal
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common import Row, parser, report, server
from forecast_models import exposure_of, grouped

from shoal.contract.lifecycle import JobState
from shoal.forecast import CheckpointTime, HourlyLifetimes, Training, best_interval_s, total_time

EXAMPLE = Path(__file__).resolve().parents[1] / "examples/torch-elastic/train.py"
KIND, HOUR_S = "K80", 3600.0
RANKS, AT_ONCE = 2, 3


def lifetimes(data: Path) -> tuple[HourlyLifetimes, str]:
    """Of all regions, and the one of this kind in which most servers were revoked."""
    tables = grouped(data / "lifetime_cdf.csv", "gpu", "region")
    seen = {(kind, region): exposure_of(rows) for (kind, region), rows in tables.items()}
    risky = max((key for key in seen if key[0] == KIND), key=lambda key: sum(seen[key].revoked) / seen[key].at_risk[0])
    return HourlyLifetimes.fit(seen), risky[1]


def manifest(name: str, ranks: int, *words: Any, memory: str = "2GiB") -> dict[str, Any]:
    return {
        "name": name, "command": [sys.executable, str(EXAMPLE), *map(str, words)], "ranks": ranks,
        "restart": {"limits": {"user": 100}, "backoff": "100ms"}, "env": {"OMP_NUM_THREADS": "1"},
        "resources": {"cpus": 0, "memory": memory, "accelerators": 1},
    }  # fmt: skip


def lines(client: Any, job_id: str, attempt: int | None = None, rank: int = 0) -> str:
    pieces = [piece.data for piece in client.logs(job_id, attempt=attempt, rank=rank)]
    return "".join(one.decode() if isinstance(one, bytes) else one for one in pieces)


def ended(client: Any, job_id: str) -> Any:
    while not (job := client.job(job_id)).state.terminal:
        time.sleep(0.1)
    if job.state is not JobState.SUCCEEDED:
        raise SystemExit(f"{job.name} {job.state}: {job.message}\n{lines(client, job_id)[-2000:]}")
    return job


def steps_per_s(text: str) -> float:
    steps, seconds = re.findall(r"(\d+) steps in ([\d.]+) s", text)[-1]
    return int(steps) / float(seconds)


@dataclass
class Revoked:
    """A job whose ranks are servers; `ends` is when each is revoked."""

    id: str
    ends: list[float] = field(default_factory=list)
    attempt: int = 0
    begun: float = 0.0
    killed: float = 0.0
    restarts: list[float] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)

    def follow(self, client: Any, draw: Any, kills: Any) -> Any:
        """Look at the job once; revoke a server if its time has come. The job, if it is over."""
        job = client.job(self.id)
        if job.state.terminal:
            return ended(client, self.id)
        at, step = job.progress.get("reported_at", 0.0), job.progress.get("step", 0)
        if job.state is not JobState.RUNNING or at <= self.killed:
            return None
        if job.attempt > self.attempt:
            if self.attempt:
                self.restarts.append(at - self.killed)
            else:
                self.begun = at
                self.ends = [at + draw() for _ in range(RANKS)]
            self.attempt = job.attempt
        rank = kills(self, job)
        if rank is not None and (words := re.findall(r"\(process (\d+)\)", lines(client, self.id, job.attempt, rank))):
            self.lost.append(step - (job.progress.get("checkpoint_step") or 0))
            self.killed = time.time()
            os.kill(int(words[-1]), signal.SIGKILL)
            self.ends[rank] = self.killed + statistics.mean(self.restarts or [4.0]) + draw()
        return None


def due(one: Revoked, _: Any) -> int | None:
    """The rank whose server is revoked now, if one is."""
    first = min(range(RANKS), key=one.ends.__getitem__)
    return first if time.time() >= one.ends[first] else None


def drawer(model: HourlyLifetimes, region: str, hour_s: float, chance: random.Random) -> Any:
    survival = [model.survival(KIND, region, 0.0, minute * 60.0) for minute in range(24 * 60 + 1)]

    def draw() -> float:
        drawn = chance.random()
        return next((at for at, left in enumerate(survival) if left <= drawn), len(survival) - 1) / 60 * hour_s

    return draw


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--data", type=Path, help="the tables of CM-DARE")
    arguments.add_argument("--jobs", type=int, default=9)
    arguments.add_argument("--steps", type=int, default=700)
    arguments.add_argument("--hour", type=float, default=2.0, help="seconds that an hour of a server's life takes")
    arguments.add_argument("--seed", type=int, default=17)
    given = arguments.parse_args()
    try:
        import torch  # noqa: F401
    except ImportError:
        print("nothing to do: this needs PyTorch (pip install torch)", file=sys.stderr)
        return 0
    if given.data is None:
        print("nothing to do: --data names a folder with CM-DARE's lifetime_cdf.csv", file=sys.stderr)
        return 0
    chance = random.Random(given.seed)
    model, region = lifetimes(given.data)
    rows = []
    with server(slots=RANKS * AT_ONCE) as house, house.client() as client:
        for ranks in (1, RANKS):
            name = f"speed-{ranks}"
            job = ended(client, client.submit(manifest(name, ranks, "--pace", 0, "--steps", 1500, "--every", 1e6)).id)
            rows.append(Row(f"speed, {ranks} ranks", steps_per_s(lines(client, job.id)), "steps/s"))
        measured = {}
        for width in (4000, 10_000, 25_000, 60_000, 120_000):
            words = ("--hidden", width, "--steps", 12, "--every", 0.01, "--pace", 0.0)
            job = ended(client, client.submit(manifest(f"checkpoint-{width}", 1, *words, memory="8GiB")).id)
            found = re.findall(r"checkpoint of (\d+) bytes in ([\d.]+) s", lines(client, job.id))
            measured[str(width)] = ((float(found[0][0]) / 1e6, 0.0), [float(one[1]) for one in found[1:]])
        errors = []
        for width, (sizes, seconds) in measured.items():
            usual = statistics.median(seconds)
            others = CheckpointTime.fit({one: of for one, of in measured.items() if one != width})
            errors.append(100 * abs(others.predict(sizes).median / usual - 1))
            rows.append(Row(f"checkpoint of {sizes[0]:.1f} MB, median of {len(seconds)}", 1000 * usual, "ms"))
        rows.append(Row("checkpoint, each size predicted from the others, MAPE", statistics.mean(errors), "%"))

        usual_job = ("--steps", given.steps, "--every", 1.0, "--pace", 0.02)
        job = ended(client, client.submit(manifest("alone", RANKS, *usual_job)).id)
        text = lines(client, job.id)
        saved = [float(one) for one in re.findall(r"bytes in ([\d.]+) s", text)]
        checkpoint_s = statistics.median(saved)
        work_s = given.steps / steps_per_s(text) - sum(saved)
        rows.append(Row("work of a job without revocations", work_s, "s"))

        restarts: dict[int, list[float]] = {0: [], 1: []}
        for rank in (0, 1) * 2:

            def once(one: Revoked, job: Any, rank: int = rank) -> int | None:
                return rank if not one.killed and job.progress.get("checkpoint_step") else None

            one = Revoked(client.submit(manifest(f"replaced-{rank}", RANKS, "--steps", 150, "--every", 0.5)).id)
            while one.follow(client, lambda: 1e9, once) is None:
                time.sleep(0.05)
            restarts[rank] += one.restarts
        for rank, seconds in restarts.items():
            rows.append(Row(f"replacement of rank {rank}, kill to next step", statistics.mean(seconds), "s"))
        restart_s = statistics.mean([*restarts[0], *restarts[1]])

        draw, open_jobs, done = drawer(model, region, given.hour, chance), [], []
        waiting = [manifest(f"revoked-{number}", RANKS, *usual_job) for number in range(given.jobs)]
        while waiting or open_jobs:
            while waiting and len(open_jobs) < AT_ONCE:
                open_jobs.append(Revoked(client.submit(waiting.pop()).id))
            for one in list(open_jobs):
                over = one.follow(client, draw, due)
                if over is not None:
                    open_jobs.remove(one)
                    done.append((over.ended_at - one.begun, one))
            time.sleep(0.05)
        faster = HOUR_S / given.hour
        # Real seconds become seconds of the servers' lives.
        training = Training(work_s * faster, checkpoint_s * faster, 1.0 * faster, restart_s * faster)
        found = total_time(training, model, KIND, region, servers=RANKS, seed=given.seed).scaled(1 / faster)
        took = [seconds for seconds, _ in done]
        rows += [
            Row("revocations", float(sum(len(one.lost) for _, one in done)), f"in {len(done)} jobs of {region}"),
            Row("steps lost by a revocation, at most", float(max([n for _, one in done for n in one.lost], default=0)),
                "steps"),
            Row("time of a job with revocations, median", statistics.median(took), "s"),
            Row("the same, forecast", found.median, f"s ({found.low:.1f} to {found.high:.1f})"),
            Row("jobs within the 90 % interval", 100 * statistics.mean(found.low <= one <= found.high for one in took),
                "%"),
            Row("best time between checkpoints, forecast",
                best_interval_s(checkpoint_s * faster, model.mean_life_s(KIND, region), RANKS) / faster, "s"),
        ]  # fmt: skip
    return report(f"CM-DARE's experiments, an hour in {given.hour:g} s", rows, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
