"""Comparisons: paired within rounds, in balanced order, with intervals that say what was not proven."""

from __future__ import annotations

import json
import math
from collections import Counter

import numpy as np
import pytest

from shoal.core import Invalid
from shoal.measure.comparison import compare
from shoal.measure.types import LoadResult


def load(latencies_s: np.ndarray, *, status: int = 200) -> LoadResult:
    scheduled = np.linspace(0, 10, len(latencies_s))
    return LoadResult("", "m", scheduled, scheduled, scheduled + latencies_s, np.full(len(scheduled), status), 10.0)


def test_what_disturbs_a_whole_round_cancels_out() -> None:
    """Rounds differ by a factor of up to ten, the targets always by 1.3."""
    factors = {"one": 1.0, "slow": 1.3, "same": 1.0}
    noise = [1.0, 10.0, 3.0, 5.0, 2.0, 8.0]

    def play(name: str, number: int) -> LoadResult:
        rng = np.random.default_rng([number, len(name)])
        return load(0.01 * noise[number] * factors[name] * rng.lognormal(0, 0.05, 400))

    told: list[tuple[int, int]] = []
    found = compare(play, list(factors), rounds=6, slo_s=0.05, on_run=lambda done, total: told.append((done, total)))
    slow, same = found.figures["slow"], found.figures["same"]
    assert slow["p99_s"].ratio.value == pytest.approx(1.3, rel=0.03)
    assert slow["p99_s"].differs
    assert not same["p50_s"].differs
    assert slow["p99_s"].ratio.high / slow["p99_s"].ratio.low < 1.1
    assert slow["p99_s"].mean.high / slow["p99_s"].mean.low > 2
    assert slow["goodput_per_s"].ratio.value <= 1
    assert found.figures["one"]["p50_s"].ratio.value == 1.0
    assert len(found.latencies_s["one"]) == 2400
    assert told[-1] == (18, 18)
    json.dumps(found.as_json(), allow_nan=False)


def test_nobody_is_always_first() -> None:
    found = compare(lambda name, number: load(np.full(10, 0.01)), ["a", "b", "c"], rounds=6)
    assert found.order[0] == ("a", "b", "c")
    assert found.order[1] == ("c", "b", "a")
    for place in range(3):
        assert Counter(one[place] for one in found.order) == Counter({"a": 2, "b": 2, "c": 2})


def test_a_target_that_fails_is_told_apart_from_one_that_is_slow() -> None:
    def play(name: str, number: int) -> LoadResult:
        return load(np.full(100, 0.01), status=503 if name == "broken" else 200)

    found = compare(play, ["fine", "broken"], rounds=2)
    assert found.failures == {"fine": 0, "broken": 200}
    assert found.figures["broken"]["p50_s"].mean.value == math.inf
    assert found.figures["broken"]["answered_per_s"].ratio.value == 0.0
    json.dumps(found.as_json(), allow_nan=False)


@pytest.mark.parametrize(
    ("targets", "rounds", "said"),
    [(["a"], 5, "1 targets in 5 rounds"), (["a", "b"], 1, "2 targets in 1 rounds"), (["a", "a"], 2, "named twice")],
)
def test_comparisons_of_nothing_are_refused(targets: list[str], rounds: int, said: str) -> None:
    with pytest.raises(Invalid, match=said):
        compare(lambda name, number: load(np.full(10, 0.01)), targets, rounds=rounds)
