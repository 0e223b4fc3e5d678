"""The best k rows: chosen on select queries, certified on others, and kept on fresh ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

from shoal.cascade import Cascade, optimize
from shoal.cascade.models.base import Link, Output
from shoal.cascade.topk import RATIOS, Beaten, TopK, best, certify, least_ratio, shortfalls
from shoal.core import Invalid
from tests.cascade.conftest import text_pipeline, texts


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.integers(1, 40))
def test_the_best_are_those_of_a_stable_sort(scores: list[int], k: int) -> None:
    wanted = sorted(range(len(scores)), key=lambda place: (-scores[place], place))[:k]
    assert best(np.array(scores, float), k).tolist() == wanted


def population(rows: int, noise: float, seed: int = 0) -> tuple[Any, Any]:
    draw = np.random.default_rng(seed)
    full = draw.normal(size=rows)
    return full + noise * draw.normal(size=rows), full


def test_a_filter_that_was_certified_holds_on_fresh_queries() -> None:
    small, full = population(4000, 0.3)
    ratio = least_ratio(small[:2000], full[:2000], 20, 0.95, 0.99, 1)
    assert ratio is not None
    found = certify(small[2000:], full[2000:], 20, ratio, 0.95, 0.99, 0.95, 2)
    assert found is not None
    assert found.ratio >= ratio
    failed = shortfalls(small[2000:], full[2000:], 20, 0.95, [found.ratio], 3, queries=1000)
    assert failed[found.ratio] <= 20
    assert "precision at 20 of at least 0.95 in 99 % of queries" in found.statement


@pytest.mark.slow
def test_certificates_are_wrong_in_at_most_5_percent_of_draws_from_a_known_population() -> None:
    small, full = population(3000, 0.3)
    true = shortfalls(small, full, 20, 0.95, RATIOS, 0, 4000, size=100)
    wrong, trials = 0, 20
    for trial in range(trials):
        rows = np.random.default_rng(trial).integers(0, 3000, 400)
        found = certify(small[rows], full[rows], 20, 1.0, 0.95, 0.99, 0.95, trial)
        wrong += found is not None and true[found.ratio] > 40
    assert wrong <= binom.ppf(0.99, trials, 0.05)


def test_of_more_rows_than_a_query_had_as_many_more_are_kept() -> None:
    found = TopK(10, 2.0, 0.95, 0.99, 0.95, 100, 60)
    assert [found.kept(rows) for rows in (5, 50, 100, 250)] == [5, 20, 20, 50]


def test_shortfalls_are_counted_as_the_two_stages_would_find_them() -> None:
    small, full = population(300, 0.8)
    counted = shortfalls(small, full, 10, 0.9, [2.0], 5, queries=200)[2.0]
    draw, failed = np.random.default_rng(5), 0
    rule = Beaten(TopK(10, 2.0, 0.9, 0.99, 0.95, 75, 60))
    for _ in range(200):
        rows = draw.integers(0, 300, 75)
        scores, truth = small[rows], full[rows]
        kept = np.flatnonzero(~rule.sure(scores[:, None], Output(Link.VALUE)))
        found = kept[best(truth[kept], 10)]
        failed += len(set(found.tolist()) & set(best(truth, 10).tolist())) < 9
    assert counted == failed > 0


def test_a_useless_stage_is_not_certified() -> None:
    small, full = population(8000, 50.0)
    assert least_ratio(small, full, 20, 0.95, 0.99, 0) is None


def values(rows: int, seed: int) -> tuple[list[str], Any]:
    made, _ = texts(rows, seed)
    return made, np.array([5.0 * text.count("win") - 3.0 * text.count("sad") + 0.01 * len(text) for text in made])


@pytest.mark.slow
def test_the_pipeline_ranks_few_rows_in_full(tmp_path: Path) -> None:
    rows, y = values(3000, 0)
    cascade = optimize(make_pipeline(text_pipeline()[0], Ridge()), rows, y, top_k=10)
    assert cascade.filter is not None, cascade.explain()
    cascade.save(tmp_path / "one.cascade")
    loaded = Cascade.load(tmp_path / "one.cascade")
    new, _ = values(400, 9)
    wanted = best(np.asarray(cascade.original.predict(new)), 10)
    for one in (cascade, loaded):
        assert len(set(one.top_k(new, 10).tolist()) & set(wanted.tolist())) >= 9
    assert loaded.top_k(new, 7).tolist() == best(np.asarray(cascade.original.predict(new)), 7).tolist()  # not certified
    assert loaded.explain()["top_k"]["k"] == 10


def test_what_cannot_be_ranked_is_refused() -> None:
    rows, y = values(300, 0)
    with pytest.raises(Invalid, match="best 100 of a query"):
        optimize(make_pipeline(text_pipeline()[0], Ridge()), rows, y, top_k=100)
    three = optimize(text_pipeline(), rows, np.arange(300) % 3)
    with pytest.raises(Invalid, match="two classes"):
        three.top_k(rows, 5)
    with pytest.raises(ValueError, match="at least k"):
        TopK.from_json({**TopK(5, 2.0, 0.9, 0.9, 0.9, 10, 10).as_json(), "ratio": 0.5})
