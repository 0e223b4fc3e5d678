"""Estimates keep their order, whatever is made of them."""

import pytest

from shoal.core import Estimate


def test_the_inverse_swaps_the_ends_and_keeps_the_level():
    assert Estimate(4.0, 2.0, 8.0, 0.9, "measured").inverse() == Estimate(0.25, 0.125, 0.5, 0.9, "measured")


def test_scaling_moves_all_three():
    assert Estimate(4.0, 2.0, 8.0, 0.9, "measured").scaled(3) == Estimate(12.0, 6.0, 24.0, 0.9, "measured")


@pytest.mark.parametrize(("low", "median", "high"), [(2, 1, 3), (1, 4, 3)])
def test_a_median_outside_its_interval_is_refused(low, median, high):
    with pytest.raises(ValueError, match="lies outside its interval"):
        Estimate(median, low, high, 0.9, "wrong")


@pytest.mark.parametrize("level", [0, 1, 90])
def test_a_level_is_a_part_of_one(level):
    with pytest.raises(ValueError, match="between 0 and 1"):
        Estimate(2, 1, 3, level, "wrong")


def test_as_json_names_the_source():
    assert Estimate(2, 1, 3, 0.9, "history").as_json() == {
        "median": 2, "low": 1, "high": 3, "level": 0.9, "source": "history",
    }  # fmt: skip
