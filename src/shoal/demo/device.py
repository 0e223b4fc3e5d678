"""Two OpenCL programs on one device: the guaranteed one first, the best-effort one in its gaps, whole and in slices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from shoal.core import ShoalError
from shoal.demo.play import Demo

if TYPE_CHECKING:
    from shoal.device.demo import Figures

_SHOWN_S, _FAST_SHOWN_S = 8.0, 4.0

Show = Callable[[float], "Iterator[Figures]"]


def share_a_device(demo: Demo, show: Show | None = None) -> None:
    """Show both at the device's gate, or say why that cannot be here. Nothing in it fails the demo."""
    demo.screen.heading("12. Two unchanged OpenCL programs share a device: inference first, training in its gaps")
    found: dict[str, Any] = {"why_not": None, "phases": {}}
    demo.report.extra["device"] = found
    try:
        for figures in (show or _show)(_FAST_SHOWN_S if demo.report.extra.get("fast") else _SHOWN_S):
            if found["phases"].get(figures.phase) is None:
                kernels = "whole" if figures.phase == "whole" else "in slices"
                demo.screen.say(f"  the training's kernels go {kernels} through the gate ...")
            found["phases"][figures.phase] = asdict(figures)
    except (ShoalError, OSError) as problem:
        found["why_not"] = str(problem)
        demo.screen.say(f"  not shown here: {problem}")
    if found["phases"]:
        demo.screen.quote(_table(found["phases"]))
        told = "the device is this CPU (PoCL), whose threads the system preempts: counts are a device's, times are not"
        demo.screen.say(f"  {told}")


def _show(seconds: float) -> Iterator[Figures]:
    from shoal.device.demo import show

    return show(seconds)


def _table(phases: dict[str, dict[str, Any]]) -> list[str]:
    head = f"{'kernels':<9}{'requests':>9}{'p50 ms':>9}{'worst ms':>10}{'kernels ended':>15}{'launches':>10}"
    lines = [f"{head}{'waited s':>10}"]
    for name, one in phases.items():
        lines.append(
            f"{name:<9}{one['requests']:>9}{one['p50_ms']:>9.1f}{one['worst_ms']:>10.1f}{one['steps']:>15}"
            f"{one['pieces']:>10}{one['waited_s']:>10.1f}"
        )
    return lines
