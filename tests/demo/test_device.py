"""The demo's act at a device's gate: shown where it can be, and a reason where it cannot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from shoal.core import Unavailable
from shoal.demo.device import share_a_device
from shoal.demo.play import Demo
from shoal.device.demo import Figures

from .test_isolation import a_demo


def test_both_phases_are_shown_by_their_last_figures() -> None:
    def show(seconds: float) -> Iterator[Figures]:
        for phase in ("whole", "sliced"):
            for step in (1, 2):
                yield Figures(phase, step, 10 * step, 1.5, 20.0, step, 100 * step, 0.5)

    demo = a_demo()
    share_a_device(cast("Demo", demo), show)
    told = "\n".join(demo.screen.lines)
    assert told.count("through the gate") == 2
    assert [line.split()[1:3] for line in demo.screen.lines if line.startswith(("whole", "sliced"))] == [
        ["20", "1.5"]
    ] * 2
    assert demo.report.extra["device"]["phases"]["sliced"]["pieces"] == 200
    assert demo.report.extra["device"]["why_not"] is None


def test_where_it_cannot_be_shown_the_demo_says_why_and_goes_on() -> None:
    def show(seconds: float) -> Iterator[Figures]:
        raise Unavailable("there is no OpenCL device")

    demo = a_demo()
    share_a_device(cast("Demo", demo), show)
    assert demo.screen.lines == ["  not shown here: there is no OpenCL device"]
    assert demo.report.extra["device"] == {"why_not": "there is no OpenCL device", "phases": {}}
    assert demo.report.checks == []
