"""The demo's line about streams: counted where it can be, and a reason where it cannot."""

from __future__ import annotations

from itertools import count
from typing import cast

from shoal.core import Unavailable
from shoal.demo.play import Demo
from shoal.demo.streams import hold_streams
from shoal.recurrent.demo import Streams
from shoal.recurrent.demo import hold_streams as hold

from .test_isolation import a_demo


def test_streams_are_counted_by_the_time_of_their_steps() -> None:
    ticks = count()
    found = hold(3.0, clock=lambda: float(next(ticks)))
    assert found.compiled
    assert found.frames % found.together == 0
    demo = a_demo()
    hold_streams(cast("Demo", demo), lambda _: Streams(128, 64, 6400, 1234, compiled=True))
    assert len(demo.screen.lines) == 1
    assert "1,234 streams" in demo.screen.lines[0]
    assert demo.report.extra["streams"]["per_core"] == 1234


def test_where_they_cannot_be_counted_the_demo_goes_on() -> None:
    def fails(seconds: float) -> Streams:
        raise Unavailable("there is no recurrent here")

    demo = a_demo()
    hold_streams(cast("Demo", demo), fails)
    assert demo.screen.lines == ["  streams of sound: not shown here: there is no recurrent here"]
    assert demo.report.extra["streams"] == {"why_not": "there is no recurrent here"}
    assert demo.report.checks == []
