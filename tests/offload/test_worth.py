"""From which size on capture pays."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("numpy")

from shoal.offload.costs import Worth
from shoal.offload.settings import OffloadSettings

USUAL = OffloadSettings().threshold


def program(size: int) -> Any:
    return SimpleNamespace(size=size, operations=[None])


def after(worth: Worth, gains: list[float], size: int = 100_000) -> int:
    threshold = USUAL
    for gain in gains:
        threshold = worth.threshold(threshold, program(size), gain)
    return threshold


@pytest.mark.parametrize(
    ("gains", "left_alone"),
    [
        ([-1e-3] * 19, False),  # too few to judge by
        ([-1e-3] * 20, True),
        ([1e-3] * 40, False),
        ([1e-6] * 20, True),  # less than it costs to capture
        ([-1e-3] * 10 + [2e-3] * 10, False),
    ],
)
def test_a_size_that_costs_more_than_it_gains_is_left_alone(gains: list[float], left_alone: bool) -> None:
    assert after(Worth(USUAL), gains) == (1 << 17 if left_alone else USUAL)


def test_other_sizes_are_judged_apart_and_large_ones_never() -> None:
    worth = Worth(USUAL)
    after(worth, [-1e-3] * 19)
    assert after(worth, [-1e-3] * 19, size=200_000) == USUAL
    assert after(worth, [-1.0] * 100, size=(1 << 20) + 1) == USUAL


def test_a_threshold_that_the_user_has_set_stays() -> None:
    assert after(Worth(USUAL + 1), [-1.0] * 100) == USUAL
