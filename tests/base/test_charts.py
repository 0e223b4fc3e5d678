"""Durations and charts of reports, whatever they are given."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.base.report import Area, Axis, Bars, Categories, Dots, Line, Linear, Log, Nines, Rule, Scale, chart, duration

EVIL = '</title><script>alert("1")</script>&\''
PLAIN = Axis("y", Linear(0, 1))


def texts(drawn: str) -> list[str]:
    return [found.text or "" for found in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")]


def named(scale: Scale) -> list[str]:
    """The names along an axis with this scale, without the other axis and the labels."""
    return texts(chart("t", "d", Axis("", scale), Axis("", Categories([])), []))


@settings(max_examples=15)
@given(st.floats(1e-6, 1e4), st.floats(1.2, 1e6))
def test_logarithmic_ticks_are_named_apart(low: float, factor: float) -> None:
    names = named(Log(low, low * factor, seconds=True))
    assert 1 <= len(names) <= 40
    assert len(set(names)) == len(names)


def test_a_logarithmic_axis_names_round_values() -> None:
    assert named(Log(0.9e-3, 1.1, seconds=True)) == ["1 ms", "10 ms", "100 ms", "1 s"]
    assert named(Log(0.9, 11, unit="×")) == ["1×", "3×", "10×"]


def test_a_linear_axis_names_its_unit() -> None:
    assert set(named(Linear(0, 4, " h"))) >= {"0 h", "2 h", "4 h"}
    assert set(named(Linear(0, 1, percent=True))) >= {"0%", "20%", "100%"}


def test_nines_stretch_the_tail() -> None:
    drawn = chart("t", "d", Axis("", Linear(0, 1)), Axis("", Nines(3)), [])
    assert texts(drawn)[-5:] == ["0%", "50%", "90%", "99%", "99.9%"]
    heights = [float(y) for y in re.findall(r'<use xlink:href="#m\w+" x="[\d.]+" y="([\d.]+)"', drawn)][-5:]
    assert heights[3] - heights[2] == pytest.approx(heights[4] - heights[3])


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
            Dots("$d$", [(1.0, 0.0)], 5, [EVIL], whiskers_x=[(-math.inf, math.inf)]),
            Bars("", [], 1),
        ],
    )  # fmt: skip
    root = ElementTree.fromstring(drawn)
    assert "viewBox" in root.attrib
    assert not re.search(r"\b(nan|inf)\b", drawn)
    assert "$d$" in texts(drawn)
    assert [tip.text for tip in root.iter("{http://www.w3.org/2000/svg}title")] == [EVIL, EVIL]


def test_every_mark_has_its_key_and_colours_follow_the_page() -> None:
    marks = [
        Line("line", [(0, 0), (1, 1)]), Area("area", [(0, 0), (1, 0), (1, 1)], 1), Dots("dots", [(0.5, 0.5)], 2),
        Bars("bars", [(0.0, 0.2, 0.7)], 3, ["tip"]), Rule("rule", x=0.5), Rule("level", y=0.5),
        Rule("slope", x=1, y=1, slope=True), Area("broken", [(0, 0), (1, 0), (1, 1)], pattern=True), Line("", [(0, 0)]),
    ]  # fmt: skip
    drawn = chart("t", "d", PLAIN, PLAIN, marks)
    assert {"line", "area", "dots", "bars", "rule", "level", "slope", "broken"} <= set(texts(drawn))
    assert {f"var(--series-{at})" for at in range(4)} <= set(re.findall(r"var\([^)]*\)", drawn))
    assert not re.findall(r"#(?:1f6feb|1b1f24)", drawn)


def test_a_legend_of_long_names_has_more_lines() -> None:
    def right_ends(length: int) -> list[float]:
        marks = [Line("n" * length + f"{at}", [(0, 0)]) for at in range(4)]
        root = ElementTree.fromstring(chart("t", "d", PLAIN, PLAIN, marks))
        keys = [found for found in root.iter("{http://www.w3.org/2000/svg}text") if (found.text or "").startswith("n")]
        assert len(keys) == 4
        return [float(key.attrib["x"]) + 6.0 * len(key.text or "") for key in keys]

    assert max(right_ends(25)) < 720
    assert len(set(right_ends(3))) == 4, "short ones stand beside each other"


def test_figures_of_one_page_do_not_share_ids() -> None:
    ids = [
        set(re.findall(r'id="([^"]*)"', chart("t", "d", PLAIN, PLAIN, [Dots("a", [(0, 1)])], number=at)))
        for at in (0, 1)
    ]
    assert ids[0]
    assert not ids[0] & ids[1]
