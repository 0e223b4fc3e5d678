"""Reports: well-formed, self-contained, escaped, readable without colours."""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from shoal.base.report import Report, html, write_html
from shoal.cli.serving import scheduled
from shoal.core import Invalid, ManualClock, Money
from shoal.measure import report
from shoal.measure.comparison import compare
from shoal.measure.cost import mix_cost
from shoal.measure.interference import measure_interference
from shoal.measure.planning.planner import plan
from shoal.measure.planning.profiles import Demand, ExecutionTime, ModelProfile, ServerType
from shoal.measure.planning.simulated import SimulatedServer
from shoal.measure.search.frontier import find_frontier
from shoal.measure.search.judge import Effort, Goal
from shoal.measure.types import LoadResult
from tests.measure.profiled import lognormal

EVIL = '</title><script>alert("1")</script>&\''


def server(*names: str, slots: int = 2) -> SimulatedServer:
    demands = tuple(
        Demand(ModelProfile(name, (lognormal(0.004 * (at + 1), 0.3),)), 40.0, 0.05) for at, name in enumerate(names)
    )
    return SimulatedServer(demands, ServerType("s", Money.usd(1), slots), scheduled("all-share"))


@pytest.fixture(scope="module")
def made() -> Report:
    """Every kind of section, about tenants with the worst of names."""
    two, three = server("a", EVIL), server("a", "b" * 80, EVIL)
    found = {
        count: find_frontier(
            one.probe(), {each.name: Goal(each.slo_s, 0.9) for each in one.demands},
            start_per_s={each.name: 100.0 for each in one.demands}, effort=Effort(0.2, 0.9, 300), rays=2,
        )
        for count, one in ((2, two), (3, three))
    }  # fmt: skip
    disturbed = measure_interference(
        lambda rates, number: three.run(rates, duration_s=2, seed=[number]),
        {each.name: 40.0 for each in three.demands}, rounds=2,
    )  # fmt: skip

    def play(name: str, number: int) -> LoadResult:
        return two.run({EVIL: 40.0}, duration_s=2, seed=[number])[EVIL]

    planned = plan(
        [
            Demand(ModelProfile(EVIL, (ExecutionTime.constant(0.01),)), 20, 0.1),
            Demand(ModelProfile("never", (ExecutionTime.constant(1.0),)), 1, 0.1),
        ],
        [ServerType("s" + EVIL, Money.usd("0.5"))],
        serve=scheduled(),
    )
    return Report.of(
        "About " + EVIL,
        [
            report.frontier(found[2]),
            report.frontier(found[3]),
            report.interference(disturbed),
            report.mix_costs(
                mix_cost({"a": 90.0}, {"a": found[2].dedicated["a"].value}, found[2].total({"a": 90.0}), Money.usd(1))
            ),
            report.comparison(compare(play, ["one", EVIL], rounds=2)),
            report.plan(planned),
        ],
        facts={"command": EVIL},
        clock=ManualClock(1_700_000_000.0),
    )


class Reader(HTMLParser):
    """Tags that are closed, what they refer to, and their text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        if tag not in {"meta", "br"}:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in {"src", "href", "xlink:href", "action", "data"}:
                self.links.append(value or "")
            assert not name.startswith("on")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in {"meta", "br"}:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_is_well_formed_and_needs_nothing_else(made: Report) -> None:
    page = html(made)
    reader = Reader()
    reader.feed(page)
    assert reader.open == []
    assert reader.tags["script"] == reader.tags["link"] == reader.tags["img"] == reader.tags["iframe"] == 0
    assert all(link.startswith("#") for link in reader.links)
    assert {link[1:] for link in reader.links} <= set(reader.ids)
    assert len(set(reader.ids)) == len(reader.ids)
    assert (
        re.findall(r"https?://[^\"]*", page)
        == [
            "http://www.w3.org/2000/svg",
            "http://www.w3.org/1999/xlink",
        ]
        * reader.tags["svg"]
    )
    assert "url(" not in re.sub(r"url\(#", "", page)
    assert "default-src 'none'" in page
    assert "prefers-color-scheme: dark" in page
    assert EVIL in reader.text


def test_every_figure_has_a_title_a_description_and_a_table(made: Report) -> None:
    page = html(made)
    drawings = re.findall(r"<svg.*?</svg>", page, re.S)
    assert len(drawings) >= 7
    for drawing in drawings:
        root = ElementTree.fromstring(drawing)
        inside = {child.tag.split("}")[1]: child for child in root}
        assert (inside["title"].text or "").strip()
        assert (inside["desc"].text or "").strip()
        assert root.attrib["role"] == "img"
        assert set(root.attrib["aria-labelledby"].split()) == {inside["title"].get("id"), inside["desc"].get("id")}
        assert not re.search(r"\b(nan|inf)\b", drawing)
    figures = re.findall(r"<figure>.*?</figure>", page, re.S)
    assert len(figures) == len(drawings)
    assert all("<table>" in figure for figure in figures)


def test_warnings_are_shown(made: Report) -> None:
    assert "not placed: never" in html(made)


def test_a_page_is_written_or_the_reason_told(made: Report, tmp_path: Path) -> None:
    write_html(made, tmp_path / "r.html")
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")
    with pytest.raises(Invalid, match="cannot be written"):
        write_html(made, tmp_path / "nowhere" / "r.html")


def test_loads_without_an_answer_make_a_page_as_well() -> None:
    empty = np.empty(0)
    loads = {
        "nothing": LoadResult("t", "m", empty, empty, empty, np.empty(0, dtype=np.int64), 1.0),
        "failed": LoadResult("t", "n", np.arange(5.0), np.arange(5.0), np.arange(5.0) + 1, np.full(5, 503), 5.0),
    }
    found = compare(lambda name, _: loads[name], list(loads), rounds=2, slo_s=0.1)
    page = html(Report("empty", [report.comparison(found)], 0.0))
    ElementTree.fromstring(re.findall(r"<svg.*?</svg>", page, re.S)[0])
