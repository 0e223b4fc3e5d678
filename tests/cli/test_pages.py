"""A component's page in the console and as a report."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from shoal.base.report import html
from shoal.cli import pages
from shoal.contract.pages import (
    Action,
    Column,
    Figure,
    Line,
    Mood,
    Page,
    PageList,
    Series,
    Span,
    Table,
    Timeline,
    Unit,
    Value,
)

NOW = time.time()
PAGE = Page(
    title="Rented <capacity>",
    figures=[
        Figure(name="spent", value=1234.5, unit=Unit.DOLLARS), Figure(name="trouble", value="none left", mood=Mood.BAD),
        Figure(name="absent"),
    ],
    parts=[
        Table(title="Money", columns=[Column(name="tenant"), Column(name="held", unit=Unit.BYTES)],
              rows=[["red", 3 << 30], ["blue", None]]),
        Table(title="Nothing", columns=[Column(name="tenant")], empty="nobody came"),
        Series(title="Prices", unit=Unit.SHARE, lines=[Line(name="a100", points=[(NOW - 60, 0.5), (NOW, 0.25)])]),
        Timeline(title="Rentals", spans=[
            Span(lane="spot", name="r-1", start=NOW - 300, end=NOW - 60), Span(lane="spot", name="r-2", start=NOW - 50),
        ]),
    ],
    actions=[Action(name="Suspend vision", command=["shoal", "plane", "suspend", "a plane"], method="POST",
                    path="/v1/planes/vision/suspend", warning="It answers no more.")],
)  # fmt: skip


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, Unit.BYTES, "-"), (True, Unit.NONE, "yes"), (False, Unit.NONE, "no"), ("a word", Unit.BYTES, "a word"),
        (1536, Unit.BYTES, "1.5 KiB"), (0.254, Unit.SHARE, "25%"), (90, Unit.SECONDS, "1m30s"),
        (1234.5, Unit.DOLLARS, "$1,234.50"), (1 / 3, Unit.NONE, "0.3333"), (12, Unit.NONE, "12"),
    ],
)  # fmt: skip
def test_a_value_is_written_by_its_unit(value: Value, unit: Unit, text: str) -> None:
    assert pages.words(value, unit) == text


def test_the_console_shows_each_part(capsys: pytest.CaptureFixture[str]) -> None:
    pages.show(PAGE)
    text = capsys.readouterr().out
    lines = [line.split() for line in text.splitlines()]
    assert ["spent", "$1,234.50"] in lines
    assert "absent" not in text
    assert ["red", "3.0", "GiB"] in lines
    assert ["blue", "-"] in lines
    assert "nobody came" in text
    assert next(line for line in lines if line[:1] == ["a100"])[1:4] == ["25%", "25%", "50%"]
    spans = [line[1] for line in lines if line[:1] == ["spot"]]
    assert spans == ["r-2", "r-1"], "the newest first"
    assert "shoal plane suspend 'a plane'" in text


def test_a_report_draws_curves_and_lanes_and_escapes_what_it_is_told() -> None:
    made = html(pages.report_of("market", PAGE))
    assert "Rented &lt;capacity&gt;" in made
    assert made.count("<svg") == 2
    for name in ("a100", "r-1", "Money", "nobody", "$1,234.50"):
        assert (name in made) == (name != "nobody")


def test_a_page_survives_its_way_over_the_wire(tmp_path: Path) -> None:
    file = tmp_path / "page.json"
    file.write_text(PageList(pages={"market": PAGE}).model_dump_json())
    assert PageList.model_validate_json(file.read_bytes()).pages == {"market": PAGE}


def test_empty_curves_and_lanes_are_not_drawn() -> None:
    bare = Page(title="Bare", parts=[Series(title="Prices", lines=[]), Timeline(title="Rentals", spans=[])])
    assert "<svg" not in html(pages.report_of("market", bare))
