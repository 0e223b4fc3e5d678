"""Quantiles are values of the sample, and agree with numpy's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.base.statistics import quantile, weighted_quantile

values = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30)


@given(values, st.sampled_from([0.0, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0]))
def test_a_quantile_is_that_of_the_inverted_distribution_function(values: list[float], p: float) -> None:
    assert quantile(values, p) == float(np.quantile(values, p, method="inverted_cdf"))


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(1, 4)), min_size=1, max_size=9), st.sampled_from([0, 0.5, 1]))
def test_a_weight_is_so_many_values(pairs: list[tuple[int, int]], p: float) -> None:
    repeated = [value for value, weight in pairs for _ in range(weight)]
    assert weighted_quantile(pairs, p) == quantile(repeated, p)


def test_rounding_does_not_run_past_the_last_value() -> None:
    assert weighted_quantile([(float(at), 0.1) for at in range(10)], 1.0) == 9.0


@pytest.mark.parametrize("p", [-0.01, 1.01, 50])
def test_a_share_is_no_percentage(p: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        quantile([1.0, 2.0], p)
    with pytest.raises(ValueError, match="between 0 and 1"):
        weighted_quantile([(1.0, 1.0)], p)


def test_nothing_has_no_quantile() -> None:
    with pytest.raises(ValueError, match="no values"):
        quantile([], 0.5)
    with pytest.raises(ValueError, match="no values"):
        weighted_quantile([], 0.5)
