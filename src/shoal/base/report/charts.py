"""One chart as inline SVG, drawn by matplotlib. Colours become the variables that the page defines for light and dark;
series differ in dashes and dots as well, never in colour alone. All text from outside is escaped by matplotlib or here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from io import StringIO
from typing import TYPE_CHECKING, Any

from shoal.base.report.scales import Categories, Scale, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEIGHT = 380.0
_WIDTH = 720.0
_KEY, _LETTER = 50.0, 6.6
"""Widths in a legend, of a line's sample and of a letter of its name."""
_POINT = 72.0
"""Units of an SVG by matplotlib in an inch."""
_SERIES = ("#1f6feb", "#c2410c", "#15803d", "#8b3fc7", "#0e7490", "#b4237a", "#7a5c00", "#57606a")
_INK, _QUIET, _GRID = "#1b1f24", "#59636e", "#d7dce2"
_THEME = {colour: f"var(--series-{at})" for at, colour in enumerate(_SERIES)} | {
    _INK: "var(--ink)", _QUIET: "var(--quiet)", _GRID: "var(--line)",
}  # fmt: skip
_DASHES = ("solid", (0, (7, 4)), (0, (2, 3)), (0, (9, 3, 2, 3)))
_SHAPES = ("o", "s", "^", "D")
_STYLE = {
    "svg.fonttype": "none", "text.parse_math": False, "font.family": "sans-serif", "font.size": 11,
    "text.color": _INK, "axes.labelcolor": _QUIET, "axes.edgecolor": _QUIET, "xtick.color": _QUIET,
    "ytick.color": _QUIET, "grid.color": _GRID, "hatch.color": _QUIET, "axes.axisbelow": True,
    "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False,
}  # fmt: skip

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Axis:
    label: str
    scale: Scale


@dataclass(frozen=True, slots=True)
class Line:
    """`steps` draws an empirical distribution: flat between its points."""

    name: str
    points: Sequence[Point]
    series: int = 0
    steps: bool = False
    dots: bool = False

    def draw(self, axes: Axes) -> None:
        marker = _SHAPES[self.series % len(_SHAPES)] if self.dots else ""
        axes.plot(
            *_apart(self.points), label=self.name, color=_colour(self.series), marker=marker,
            linestyle=_DASHES[self.series % len(_DASHES)], drawstyle="steps-post" if self.steps else "default",
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Area:
    """A filled polygon; `pattern` hatches it."""

    name: str
    points: Sequence[Point]
    series: int = 0
    pattern: bool = False

    def draw(self, axes: Axes) -> None:
        looks: dict[str, Any] = {"facecolor": _colour(self.series), "alpha": 0.18}
        if self.pattern:
            looks = {"facecolor": "none", "hatch": "//", "linewidth": 0}
        axes.fill(*_apart(self.points), label=self.name, **looks)


@dataclass(frozen=True, slots=True)
class Dots:
    """Points, each with what it says when pointed at, and whiskers from low to high along one axis."""

    name: str
    points: Sequence[Point]
    series: int = 0
    tips: Sequence[str] = ()
    whiskers_x: Sequence[Point] = ()
    whiskers_y: Sequence[Point] = ()

    def draw(self, axes: Axes) -> None:
        colour = _colour(self.series)
        looks: dict[str, Any] = {"linestyle": "none", "marker": _SHAPES[self.series % len(_SHAPES)], "color": colour}
        for (_, y), ends in zip(self.points, self.whiskers_x, strict=False):
            axes.plot(ends, (y, y), color=colour, marker="|", alpha=0.75)
        for (x, _), ends in zip(self.points, self.whiskers_y, strict=False):
            axes.plot((x, x), ends, color=colour, marker="_", alpha=0.75)
        axes.plot(*_apart(self.points), label=self.name, **looks)
        for point, tip in zip(self.points, self.tips, strict=False):
            axes.plot(*_apart([point]), gid=_tip(tip), **looks)


@dataclass(frozen=True, slots=True)
class Bars:
    """Horizontal bars, one for each (category, start, end)."""

    name: str
    bars: Sequence[tuple[float, float, float]]
    series: int = 0
    tips: Sequence[str] = ()

    def draw(self, axes: Axes) -> None:
        rows, starts, ends = zip(*self.bars, strict=True) if self.bars else ((), (), ())
        widths = [end - start for start, end in zip(starts, ends, strict=True)]
        drawn = axes.barh(rows, widths, 0.62, starts, label=self.name, color=_colour(self.series), alpha=0.88)
        for bar, tip in zip(drawn, self.tips, strict=False):
            bar.set_gid(_tip(tip))


@dataclass(frozen=True, slots=True)
class Rule:
    """A dashed line at one value of x, or of y."""

    name: str
    x: float | None = None
    y: float | None = None
    slope: bool = False
    """From (x, 0) to (0, y)."""

    def draw(self, axes: Axes) -> None:
        looks: dict[str, Any] = {
            "label": self.name,
            "color": _INK,
            "linestyle": (0, (5, 4)),
            "linewidth": 1.25,
            "alpha": 0.7,
        }
        if self.slope:
            axes.plot((self.x or 0.0, 0.0), (0.0, self.y or 0.0), **looks)
        elif self.x is not None:
            axes.axvline(self.x, **looks)
        else:
            axes.axhline(self.y or 0.0, **looks)


Mark = Line | Area | Dots | Bars | Rule


def chart(
    title: str, description: str, x: Axis, y: Axis, marks: Sequence[Mark], *, number: int = 0, height: float = HEIGHT
) -> str:
    """One figure as an <svg> element. `number` tells its ids from those of the other figures of the page."""
    import matplotlib
    from matplotlib.figure import Figure

    text = StringIO()
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": f"{number}"}):
        figure = Figure((_WIDTH / _POINT, height / _POINT), layout="constrained")
        axes = figure.add_subplot(xlabel=x.label, ylabel="" if isinstance(y.scale, Categories) else y.label)
        for mark in marks:
            mark.draw(axes)
        x.scale.put(axes, "x")
        y.scale.put(axes, "y")
        axes.grid(visible=True, axis="x" if isinstance(y.scale, Categories) else "both")
        named = [one for one in zip(*axes.get_legend_handles_labels(), strict=True) if one[1]]
        if named:
            names = [shortened(name) for _, name in named]
            columns = int(_WIDTH / (_KEY + _LETTER * max(map(len, names))))
            figure.legend([key for key, _ in named], names, loc="outside upper left", ncols=max(1, columns))
        figure.savefig(
            text, format="svg", transparent=True, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type"))
        )
    return _inline(text.getvalue(), title, description, number)


def _inline(svg: str, title: str, description: str, number: int) -> str:
    """Without the prologue, with words for who cannot see it, with the page's colours and with tips."""
    box = re.search(r'viewBox="[^"]*"', svg)
    body = svg[svg.index(">", svg.index("<svg")) + 1 :]
    body = re.sub(
        r'<g id="tip-(\w*)">', lambda tip: f"<g><title>{escape(bytes.fromhex(tip[1]).decode())}</title>", body
    )
    body = re.sub(r' id="[\w.]+_\d+"', "", body)
    body = re.sub("|".join(_THEME), lambda colour: _THEME[colour[0]], body)
    return (
        f'<svg class="chart" {box[0] if box else ""} role="img" aria-labelledby="title-{number} desc-{number}" '
        'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">\n'
        f'<title id="title-{number}">{escape(title)}</title><desc id="desc-{number}">{escape(description)}</desc>'
        f"{body.strip()}"
    )


def _apart(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _colour(series: int) -> str:
    return _SERIES[series % len(_SERIES)]


def _tip(text: str) -> str:
    """The id of what says this when pointed at."""
    return f"tip-{text.encode().hex()}"
