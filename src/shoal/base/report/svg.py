"""A small plotting helper: scales, marks, and one chart as inline SVG.

Colours are CSS variables (`--series-0` and so on) that the page defines for light and dark; series differ in dashes and
dots as well, never in colour alone. Everything that comes from outside is escaped here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from shoal.base.report.scales import Categories, Linear, Scale, shortened

WIDTH, HEIGHT = 720.0, 380.0
_TOP, _RIGHT, _BOTTOM, _LEFT = 16.0, 20.0, 52.0, 62.0
_LEGEND_LINE = 20.0
_LETTER = 6.6
"""Mean width of a letter at 12 px."""
_SERIES = 8
_DASHES = ("", "7 4", "2 3", "9 3 2 3")

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


@dataclass(frozen=True, slots=True)
class Area:
    """A filled polygon; `pattern` hatches it."""

    name: str
    points: Sequence[Point]
    series: int = 0
    pattern: bool = False


@dataclass(frozen=True, slots=True)
class Dots:
    """Points, each with what it says when pointed at, and whiskers from low to high along one axis."""

    name: str
    points: Sequence[Point]
    series: int = 0
    tips: Sequence[str] = ()
    whiskers_x: Sequence[tuple[float, float]] = ()
    whiskers_y: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True, slots=True)
class Bars:
    """Horizontal bars, one for each (category, start, end)."""

    name: str
    bars: Sequence[tuple[float, float, float]]
    series: int = 0
    tips: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """A dashed line at one value of x, or of y."""

    name: str
    x: float | None = None
    y: float | None = None
    slope: bool = False
    """From (x, 0) to (0, y)."""


Mark = Line | Area | Dots | Bars | Rule


def chart(
    title: str, description: str, x: Axis, y: Axis, marks: Sequence[Mark], *, number: int = 0, height: float = HEIGHT
) -> str:
    """One figure as an <svg> element. `number` tells its ids from those of the other figures of the page."""
    rows = _legend_rows([mark for mark in marks if mark.name])
    top = _TOP + _LEGEND_LINE * len(rows)
    left = _LEFT
    if isinstance(y.scale, Categories):
        left = 24 + _LETTER * max((len(label) for _, label in y.scale.ticks()), default=0)
    frame = _Frame(x.scale, y.scale, left, top, WIDTH - _RIGHT, height + _LEGEND_LINE * len(rows) - _BOTTOM)
    clip = f"clip-{number}"
    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDTH:g} {frame.bottom + _BOTTOM:g}" role="img" '
        f'aria-labelledby="title-{number} desc-{number}" xmlns="http://www.w3.org/2000/svg">',
        f'<title id="title-{number}">{escape(title)}</title><desc id="desc-{number}">{escape(description)}</desc>',
        f'<defs><clipPath id="{clip}"><rect x="{left - 5:.1f}" y="{top - 5:.1f}" '
        f'width="{frame.right - left + 10:.1f}" height="{frame.bottom - top + 10:.1f}"/></clipPath>',
        f'<pattern id="hatch-{number}" width="7" height="7" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)"><line class="hatch" x1="0" y1="0" x2="0" y2="7"/></pattern></defs>',
        *_axes(frame, x, y),
        f'<g clip-path="url(#{clip})">',
        *(_drawn(mark, frame, number) for mark in marks),
        "</g>",
        *_legend(rows, left),
        "</svg>",
    ]
    return "\n".join(parts)


@dataclass(frozen=True, slots=True)
class _Frame:
    x_scale: Scale
    y_scale: Scale
    left: float
    top: float
    right: float
    bottom: float

    def x(self, value: float) -> float:
        return self.left + _held(self.x_scale.place(value)) * (self.right - self.left)

    def y(self, value: float) -> float:
        part = _held(self.y_scale.place(value))
        if isinstance(self.y_scale, Categories):
            return self.top + part * (self.bottom - self.top)
        return self.bottom - part * (self.bottom - self.top)

    def at(self, point: Point) -> str:
        return f"{self.x(point[0]):.1f},{self.y(point[1]):.1f}"


def _held(part: float) -> float:
    """Far outside is just outside: SVG has no infinity."""
    return min(max(part, -0.5), 1.5) if not math.isnan(part) else -0.5


def _axes(frame: _Frame, x: Axis, y: Axis) -> list[str]:
    parts = []
    for value, label in x.scale.ticks():
        at = frame.x(value)
        parts.append(f'<line class="grid" x1="{at:.1f}" y1="{frame.top:.1f}" x2="{at:.1f}" y2="{frame.bottom:.1f}"/>')
        parts.append(
            f'<text class="tick" x="{at:.1f}" y="{frame.bottom + 17:.1f}" text-anchor="middle">{escape(label)}</text>'
        )
    named = isinstance(y.scale, Categories)
    for value, label in y.scale.ticks():
        at = frame.y(value)
        if not named:
            parts.append(
                f'<line class="grid" x1="{frame.left:.1f}" y1="{at:.1f}" x2="{frame.right:.1f}" y2="{at:.1f}"/>'
            )
        parts.append(
            f'<text class="tick" x="{frame.left - 8:.1f}" y="{at + 4:.1f}" text-anchor="end">{escape(label)}</text>'
        )
    middle_x, middle_y = (frame.left + frame.right) / 2, (frame.top + frame.bottom) / 2
    parts.append(
        f'<path class="axis" d="M{frame.left:.1f},{frame.top:.1f}V{frame.bottom:.1f}H{frame.right:.1f}"/>'
        f'<text class="label" x="{middle_x:.1f}" y="{frame.bottom + 40:.1f}" text-anchor="middle">'
        f"{escape(x.label)}</text>"
    )
    if y.label and not named:
        parts.append(
            f'<text class="label" transform="translate(15,{middle_y:.1f}) rotate(-90)" text-anchor="middle">'
            f"{escape(y.label)}</text>"
        )
    return parts


def _drawn(mark: Mark, frame: _Frame, number: int) -> str:
    match mark:
        case Line():
            path = " ".join(frame.at(point) for point in (_stepped(mark.points) if mark.steps else mark.points))
            dots = "".join(_dot(frame, point, mark.series, "") for point in mark.points) if mark.dots else ""
            return f'<polyline class="line" {_stroke(mark.series)} points="{path}"/>{dots}'
        case Area():
            path = " ".join(frame.at(point) for point in mark.points)
            colour = f"url(#hatch-{number})" if mark.pattern else f"var(--series-{mark.series % _SERIES})"
            return f'<polygon class="area{" hatched" if mark.pattern else ""}" style="fill:{colour}" points="{path}"/>'
        case Dots():
            return "".join(_dots(mark, frame))
        case Bars():
            return "".join(_bars(mark, frame))
        case Rule():
            if mark.slope:
                ends = frame.x(mark.x or 0.0), frame.y(0.0), frame.x(0.0), frame.y(mark.y or 0.0)
            elif mark.x is not None:
                ends = frame.x(mark.x), frame.top, frame.x(mark.x), frame.bottom
            else:
                ends = frame.left, frame.y(mark.y or 0.0), frame.right, frame.y(mark.y or 0.0)
            return '<line class="rule" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>'.format(*ends)


def _dots(mark: Dots, frame: _Frame) -> list[str]:
    parts = []
    paths = []
    for (_, y), (low, high) in zip(mark.points, mark.whiskers_x, strict=False):
        left, right, at = frame.x(low), frame.x(high), frame.y(y)
        paths.append(f"M{left:.1f},{at:.1f}H{right:.1f}M{left:.1f},{at - 4:.1f}v8M{right:.1f},{at - 4:.1f}v8")
    for (x, _), (low, high) in zip(mark.points, mark.whiskers_y, strict=False):
        bottom, top, at = frame.y(low), frame.y(high), frame.x(x)
        paths.append(f"M{at:.1f},{bottom:.1f}V{top:.1f}M{at - 4:.1f},{bottom:.1f}h8M{at - 4:.1f},{top:.1f}h8")
    parts += [
        f'<path class="whisker" style="stroke:var(--series-{mark.series % _SERIES})" d="{one}"/>' for one in paths
    ]
    tips = [*mark.tips, *[""] * (len(mark.points) - len(mark.tips))]
    return parts + [_dot(frame, point, mark.series, tip) for point, tip in zip(mark.points, tips, strict=True)]


def _bars(mark: Bars, frame: _Frame) -> list[str]:
    rows = len(frame.y_scale.names) if isinstance(frame.y_scale, Categories) else len(mark.bars)
    thick = min(26.0, 0.62 * (frame.bottom - frame.top) / max(1, rows))
    tips = [*mark.tips, *[""] * (len(mark.bars) - len(mark.tips))]
    return [
        f'<rect class="bar" style="fill:var(--series-{mark.series % _SERIES})" x="{frame.x(start):.1f}" '
        f'y="{frame.y(row) - thick / 2:.1f}" width="{max(0.0, frame.x(end) - frame.x(start)):.1f}" '
        f'height="{thick:.1f}">{_tip(tip)}</rect>'
        for (row, start, end), tip in zip(mark.bars, tips, strict=True)
    ]


def _dot(frame: _Frame, point: Point, series: int, tip: str) -> str:
    """Each series has its own shape."""
    x, y = frame.x(point[0]), frame.y(point[1])
    shape = (
        f"M{x - 4.5:.1f},{y:.1f}a4.5,4.5 0 1 0 9,0a4.5,4.5 0 1 0 -9,0Z",
        f"M{x - 4:.1f},{y - 4:.1f}h8v8h-8Z",
        f"M{x:.1f},{y - 5:.1f}l5,9h-10Z",
        f"M{x:.1f},{y - 5.5:.1f}l5.5,5.5l-5.5,5.5l-5.5,-5.5Z",
    )[series % 4]
    return f'<path class="dot" style="fill:var(--series-{series % _SERIES})" d="{shape}">{_tip(tip)}</path>'


def _tip(text: str) -> str:
    return f"<title>{escape(text)}</title>" if text else ""


def _stroke(series: int) -> str:
    dashes = _DASHES[series % len(_DASHES)]
    dashed = f";stroke-dasharray:{dashes}" if dashes else ""
    return f'style="stroke:var(--series-{series % _SERIES}){dashed}"'


def _stepped(points: Sequence[Point]) -> list[Point]:
    found: list[Point] = []
    for x, y in points:
        if found:
            found.append((x, found[-1][1]))
        found.append((x, y))
    return found


def _legend_rows(marks: Sequence[Mark]) -> list[list[Mark]]:
    """Marks in lines that fit the width."""
    rows: list[list[Mark]] = []
    left = WIDTH
    for mark in marks:
        need = _legend_width(mark)
        if not rows or left < need:
            rows.append([])
            left = WIDTH - _LEFT - _RIGHT
        rows[-1].append(mark)
        left -= need
    return rows


def _legend_width(mark: Mark) -> float:
    return 44 + _LETTER * len(shortened(mark.name))


def _legend(rows: Sequence[Sequence[Mark]], left: float) -> list[str]:
    parts = []
    for line, row in enumerate(rows):
        at, y = left, _TOP + _LEGEND_LINE * line
        for mark in row:
            parts.append(_key(mark, at, y))
            name = f"{_tip(mark.name)}{escape(shortened(mark.name))}"
            parts.append(f'<text class="key" x="{at + 28:.1f}" y="{y + 4:.1f}">{name}</text>')
            at += _legend_width(mark)
    return parts


def _key(mark: Mark, at: float, y: float) -> str:
    match mark:
        case Line():
            ends = f'x1="{at:.1f}" y1="{y:.1f}" x2="{at + 22:.1f}" y2="{y:.1f}"'
            return f'<line class="line" {_stroke(mark.series)} {ends}/>'
        case Rule():
            return f'<line class="rule" x1="{at:.1f}" y1="{y:.1f}" x2="{at + 22:.1f}" y2="{y:.1f}"/>'
        case Dots():
            unit = _Frame(Linear(0, 1), Linear(0, 1), at + 11, y, at + 12, y)
            return _dot(unit, (0.0, 0.0), mark.series, "")
        case Area() | Bars():
            hatched = isinstance(mark, Area) and mark.pattern
            style = "" if hatched else f' style="fill:var(--series-{mark.series % _SERIES})"'
            kind = "hatched-key" if hatched else "area" if isinstance(mark, Area) else "bar"
            return f'<rect class="{kind}"{style} x="{at + 4:.1f}" y="{y - 6:.1f}" width="16" height="12"/>'
