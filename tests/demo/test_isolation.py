"""The demo's last columns: measured where they can be, simulated and called so where they cannot."""

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


def flooded(speed: float, p99: float) -> dict[str, float]:
    return {"speed": speed, "p99": p99, "gb_per_s": 4.2}


def test_where_nothing_can_be_measured_figures_are_simulated_and_called_so() -> None:
    def refuse(_: Demo, __: Found) -> None:
        raise Unavailable("CPUs 0 and 1 are wanted, and these are ours: {0}")

    demo = a_demo()
    guard_against_a_flood(cast("Demo", demo), refuse)
    found = demo.report.extra["isolation"]
    assert "these are ours" in found["why_not"]
    assert found["pipeline"] == {}
    assert found["simulated"][SHOAL]["speed"] > found["simulated"][FLOODED]["speed"]
    assert found["simulated"]["note"].startswith("simulated")
    assert any(line.startswith("pipeline, simulated") for line in demo.screen.lines)
    assert not any("measured  " in line for line in demo.screen.lines)
    assert demo.report.checks == []


def test_measured_figures_are_called_so_beside_simulated_ones() -> None:
    def services_only(_: Demo, found: Found) -> None:
        found["services"] = {ALONE: {one.sample: {"p99_ms": 1.0} for one in SERVICES}}

    demo = a_demo()
    guard_against_a_flood(cast("Demo", demo), services_only)
    titles = [line.split("  ")[0] for line in demo.screen.lines if "p99 ms" in line or line.startswith("pipeline,")]
    assert titles == ["p99 ms, measured", "pipeline, simulated"]
    assert any(line.strip().startswith("pipeline: simulated:") for line in demo.screen.lines)


def test_in_different_domains_both_are_shown() -> None:
    def apart(_: Demo, found: Found) -> None:
        found["same_domain"] = False
        found["pipeline"] = {FLOODED: flooded(0.98, 1.02), SHOAL: flooded(0.99, 1.01)}

    demo = a_demo()
    guard_against_a_flood(cast("Demo", demo), apart)
    assert [line.split(" speed")[0].strip() for line in demo.screen.lines if line.startswith("pipeline")] == [
        "pipeline, measured",
        "pipeline, simulated",
    ]


def test_what_was_measured_needs_no_simulation() -> None:
    def here(_: Demo, found: Found) -> None:
        found["same_domain"] = True
        found["pipeline"] = {FLOODED: flooded(0.67, 1.52), SHOAL: flooded(0.96, 1.04)}
        found["services"] = {
            column: {one.sample: {"p99_ms": 7.25} for one in SERVICES} for column in (ALONE, FLOODED, SHOAL)
        }

    demo = a_demo()
    guard_against_a_flood(cast("Demo", demo), here)
    assert "simulated" not in demo.report.extra["isolation"]
    assert sum("7.25" in line for line in demo.screen.lines) == len(SERVICES)
    assert any(line.split()[:2] == ["flooded", "0.670"] for line in demo.screen.lines)
