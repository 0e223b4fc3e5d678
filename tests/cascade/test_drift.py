"""The sequential test for drift: its false alarms and its power are counted, and each bet is fair."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.cascade.drift import ALARM, DriftTest


def first_alarm(rate: float, true: float, rows: int, seed: int) -> int | None:
    test, draw = DriftTest(rate), np.random.default_rng(seed)
    for differs in draw.random(rows) < true:
        test = test.seen(float(differs))
        if test.drifted:
            return test.found_at
    return None


def test_ten_times_the_certified_disagreement_is_found_within_2000_rows() -> None:
    found = [first_alarm(0.001, 0.01, 2000, seed) for seed in range(40)]
    assert sum(one is not None for one in found) >= 38


@pytest.mark.slow
def test_it_hardly_ever_alarms_falsely() -> None:
    assert sum(first_alarm(0.01, 0.01, 4000, seed) is not None for seed in range(40)) <= 3  # 1 % is the most expected


@given(st.floats(1e-4, 0.4), st.lists(st.floats(0, 1), max_size=50))
def test_each_bet_is_fair_at_the_certified_rate(rate: float, distances: list[float]) -> None:
    test = DriftTest(rate)
    for distance in distances:
        agrees, differs = test.seen(0.0), test.seen(1.0)
        expected = (1 - rate) * np.exp(agrees.wealth) + rate * np.exp(differs.wealth)
        np.testing.assert_allclose(expected, np.exp(test.wealth), rtol=1e-6)
        test = test.seen(distance)
    assert DriftTest.from_json(json.loads(json.dumps(test.as_json()))) == test
    assert test.drifted or test.evidence < 1 / ALARM
