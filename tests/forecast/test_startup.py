"""Start-up times keep their word on intervals, and a restart adds up its parts."""

from __future__ import annotations

import json
import random

import pytest

from shoal.core import Estimate, Invalid
from shoal.forecast.startup import Place, StartUp, restart

EAST, WEST, NORTH = (Place("preemptible", region, "k80") for region in ("east", "west", "north"))


def drawn(middle: float, count: int, seed: int) -> list[float]:
    draw = random.Random(seed)
    return [middle * draw.lognormvariate(0, 0.1) for _ in range(count)]


MODEL = StartUp.fit({EAST: drawn(80, 12, 1), WEST: drawn(100, 12, 2), NORTH: [90.0]})


def test_a_place_with_servers_stands_alone() -> None:
    found = MODEL.predict(EAST)
    assert found is not None
    assert found.median == pytest.approx(80, rel=0.08)
    held = sum(found.low <= one <= found.high for one in drawn(80, 500, 3))
    assert 430 <= held <= 485
    assert found.source == "measured on 12 servers of the same place"


def test_a_place_with_few_servers_takes_from_others_and_is_less_sure() -> None:
    own, found = MODEL.predict(EAST), MODEL.predict(NORTH)
    assert own is not None
    assert found is not None
    assert found.median == pytest.approx(90, rel=0.08)
    assert found.high / found.median > own.high / own.median
    assert "3 places with preemptible servers" in found.source
    assert MODEL.predict(Place("on_demand", "east", "k80")) is None


def test_json_keeps_it() -> None:
    assert StartUp.from_json(json.loads(json.dumps(MODEL.as_json()))) == MODEL


def test_a_restart_adds_up() -> None:
    found = restart(Estimate(80, 77, 83, 0.9, "a"), Estimate(10, 6, 14, 0.9, "b"), 30.0)
    assert (found.median, found.low, found.high) == (120, 115, 125)
    with pytest.raises(Invalid, match="cannot be added"):
        restart(Estimate(80, 77, 83, 0.9, "a"), Estimate(10, 6, 14, 0.5, "b"), 30.0)


@pytest.mark.parametrize("times", [[], [0.0], [-1.0]])
def test_times_are_positive(times: list[float]) -> None:
    with pytest.raises(Invalid, match="positive seconds"):
        StartUp.fit({EAST: times})
