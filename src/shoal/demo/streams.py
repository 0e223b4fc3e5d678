"""One line of the demo: how many streams, each with a state in the server, one core keeps up with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

from shoal.core import ShoalError
from shoal.demo.play import Demo

if TYPE_CHECKING:
    from shoal.recurrent.demo import Streams

_SHOWN_S = 1.0


def hold_streams(demo: Demo, hold: Callable[[float], Streams] | None = None) -> None:
    """Count them, or say why that cannot be here. Nothing in it fails the demo."""
    try:
        found = (hold or _hold)(_SHOWN_S)
    except (ShoalError, ImportError, OSError) as problem:
        demo.report.extra["streams"] = {"why_not": str(problem)}
        demo.screen.say(f"  streams of sound: not shown here: {problem}")
        return
    demo.report.extra["streams"] = {"why_not": None, **asdict(found)}
    how = "compiled to this processor" if found.compiled else "interpreted, without llvmlite"
    demo.screen.say(
        f"  One core keeps up with {found.per_core:,} streams of sound through an LSTM of {found.units} units, {how}."
    )


def _hold(seconds: float) -> Streams:
    from shoal.recurrent.demo import hold_streams as hold

    return hold(seconds)
