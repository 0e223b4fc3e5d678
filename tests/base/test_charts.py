"""Scales, durations and charts of reports, whatever they are given."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.base.report import Axis, Categories, Dots, Line, Linear, Log, Nines, chart, duration

EVIL = '</title><script>alert("1")</script>&\''


@given(st.floats(1e-6, 1e4), st.floats(1.001, 1e6))
def test_logarithmic_ticks_are_inside_and_named(low: float, factor: float) -> None:
    scale = Log(low, low * factor, seconds=True)
    places = [scale.place(value) for value, _ in scale.ticks()]
    assert places == sorted(places)
    assert all(-1e-6 <= place <= 1 + 1e-6 for place in places)
    assert len(places) <= 40
    assert len({label for _, label in scale.ticks()}) == len(places)
    assert scale.place(0.0) < 0


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_linear_ticks_are_few_and_round(low: float, span: float) -> None:
    scale = Linear(low, low + span)
    ticks = scale.ticks()
    assert len(ticks) <= 9
    assert all(-1e-3 <= scale.place(value) <= 1 + 1e-3 for value, _ in ticks)


def test_nines_stretch_the_tail() -> None:
    scale = Nines(3)
    assert [label for _, label in scale.ticks()] == ["0%", "50%", "90%", "99%", "99.9%"]
    assert scale.place(0.99) - scale.place(0.9) == pytest.approx(scale.place(0.999) - scale.place(0.99))
    assert scale.place(1.0) == 1.0


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(1.0, "1 s"), (0.9996, "1 s"), (0.05, "50 ms"), (0.0125, "12.5 ms"), (2e-6, "2 µs"), (90.0, "90 s")],
)
def test_durations_have_their_unit(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


def test_a_chart_takes_names_and_numbers_as_they_come() -> None:
    drawn = chart(
        EVIL, EVIL, Axis(EVIL, Linear(0, 0)), Axis("", Categories([EVIL, "x" * 200])),
        [
            Line(EVIL, [(0.0, 1.0), (math.nan, math.inf), (1e300, -1e300)], steps=True, dots=True),
            Dots("d", [(1.0, 0.0)], 5, [EVIL], whiskers_x=[(-math.inf, math.inf)]),
        ],
    )  # fmt: skip
    root = ElementTree.fromstring(drawn)
    numbers: Mapping[str, str] = root.attrib
    assert "viewBox" in numbers
    assert not re.search(r"\b(nan|inf)\b", drawn)
