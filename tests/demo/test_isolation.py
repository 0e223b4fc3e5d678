"""The demo's last columns: measured where they can be, and said why not where they cannot."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

from shoal.core import Unavailable
from shoal.demo.isolation import Found, guard_against_a_flood
from shoal.demo.load import SERVICES
from shoal.demo.play import Demo
from shoal.demo.report import Report
from shoal.demo.screen import Screen
from shoal.demo.serving import ALONE, FLOODED, SHOAL


class Recording(Screen):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)

    def quote(self, lines: Iterable[str]) -> None:
        self.lines += lines


def a_demo() -> Any:
    return SimpleNamespace(screen=Recording(), report=Report())


def measured(_: Demo, found: Found) -> None:
    found["same_domain"] = True
    found["services"] = {column: {one.name: {"p99_ms": 7.25} for one in SERVICES} for column in (ALONE, FLOODED, SHOAL)}


def test_where_nothing_can_be_measured_the_demo_says_why() -> None:
    def refuse(_: Demo, __: Found) -> None:
        raise Unavailable("a neighbour needs a second CPU")

    demo = a_demo()
    guard_against_a_flood(cast("Demo", demo), refuse)
    found = demo.report.extra["isolation"]
    assert "second CPU" in found["why_not"]
    assert found["services"] == {}
    assert any("not measured here: a neighbour needs" in line for line in demo.screen.lines)
    assert demo.report.checks == []


def test_what_was_measured_is_shown() -> None:
    demo = a_demo()
    guard_against_a_flood(cast("Demo", demo), measured)
    assert demo.report.extra["isolation"]["why_not"] is None
    assert sum("7.25" in line for line in demo.screen.lines) == len(SERVICES)
    assert any(FLOODED in line and SHOAL in line for line in demo.screen.lines)
    assert not any("no memory domain" in line for line in demo.screen.lines)


def test_a_flood_in_another_domain_is_told() -> None:
    def apart(demo: Demo, found: Found) -> None:
        measured(demo, found)
        found["same_domain"] = False

    demo = a_demo()
    guard_against_a_flood(cast("Demo", demo), apart)
    assert any("share no memory domain" in line for line in demo.screen.lines)
    assert any("7.25" in line for line in demo.screen.lines)
