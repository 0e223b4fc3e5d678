"""The section about a frontier."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from shoal.base.report import (
    Area,
    Axis,
    Categories,
    Dots,
    Figure,
    Line,
    Linear,
    Mark,
    Rule,
    Section,
    Table,
    chart_of,
    duration,
)
from shoal.measure.report.words import or_else
from shoal.measure.search.pareto import Frontier
from shoal.measure.types import Floats


def frontier(found: Frontier) -> Section:
    """What the tenants can have at once. For two: Perseus' figure."""
    names = found.tenants
    rows = [
        [
            " : ".join(f"{point.mix[name]:.2f}" for name in names),
            *(f"{point.rates_per_s[name]:.4g}/s" for name in names),
            f"{point.total:.3f}",
            f"{1 - 1 / point.total.value:.1%}",
            f"{point.trials}",
        ]
        for point in sorted(found.points, key=lambda point: [-point.mix[name] for name in names])
    ]
    table = Table(
        "Where the front crosses each mix (shares of the tenants' capacities alone), and what sharing saves there",
        ["mix", *names, "sum of normalised throughputs", "saving", "trials"],
        rows,
    )
    goals = "; ".join(f"{name}: p{100 * goal.p:g} within {duration(goal.slo_s)}" for name, goal in found.goals.items())
    text = [
        f"Rates that one server takes at the same time so that every objective holds ({goals}). "
        "A sum above 1 means that sharing needs fewer servers than one for each.",
        f"{found.requests} requests in {len(found.trials)} trials of mixes; each verdict {found.confidence:.0%} sure. "
        f"Trials and monotony alone leave {found.gap.mean:.2f} of the sum open on average, {found.gap.worst:.2f} at "
        f"worst. The search ended because {found.reason.text}.",
    ]
    figures = [_plane(found), _totals(found, table)] if len(names) == 2 else [_ranked(found, table)]
    return Section("Frontier", text, figures)


def _plane(found: Frontier) -> Figure:
    """The proven regions of two tenants' rates."""
    one, other = found.tenants
    scale = found.dedicated[one].value, found.dedicated[other].value
    reach = (
        1.15 * max(scale[0], *(p.rates_per_s[one] for p in found.points)),
        1.15 * max(scale[1], *(p.rates_per_s[other] for p in found.points)),
    )

    def rates(corner: Floats) -> tuple[float, float]:
        return float(corner[0]) * scale[0], float(corner[1]) * scale[1]

    inner = _staircase([rates(corner) for corner in found.region.kept])
    outer = _outer_staircase([rates(corner) for corner in found.region.broken], reach)
    points = sorted((point.rates_per_s[one], point.rates_per_s[other]) for point in found.points)
    tips = [f"{one} {x:.4g}/s, {other} {y:.4g}/s" for x, y in points]
    marks: list[Mark] = [
        Area("proven to be kept", inner, series=2),
        Area("proven to be broken", outer, pattern=True),
        Line("Pareto front", points, series=0),
        Dots("", points, series=0, tips=tips),
        Rule("sum of 1: no gain", x=scale[0], y=scale[1], slope=True),
    ]
    rows = [[name, f"{found.dedicated[name]:.4g}"] for name in found.tenants]
    table = Table("Capacity alone, with its proven ends", ["tenant", "requests per second"], rows)
    title = "Rates that keep every objective"
    description = f"Rates of {one} against those of {other}; the Pareto front is where objectives begin to break."
    x, y = Axis(f"{one}, requests/s", Linear(0, reach[0])), Axis(f"{other}, requests/s", Linear(0, reach[1]))
    return Figure(title, partial(chart_of, title, description, x, y, marks), table)


def _staircase(corners: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The union of the boxes from the origin to each corner, as a polygon."""
    path, height = [(0.0, 0.0)], 0.0
    steps = []
    for x, y in sorted(corners, reverse=True):
        if y > height:
            steps += [(x, height), (x, y)]
            height = y
    return [*path, *steps, (0.0, height)]


def _outer_staircase(corners: Sequence[tuple[float, float]], reach: tuple[float, float]) -> list[tuple[float, float]]:
    """The union of all that is right of and above a corner, cut at `reach`."""
    steps, height = [], reach[1]
    for x, y in sorted(corners):
        if y < height:
            steps += [(x, height), (x, y)]
            height = y
    return [*steps, (reach[0], height), reach]


def _totals(found: Frontier, table: Table) -> Figure:
    """Perseus' figure: the sum over the mix."""
    one = found.tenants[0]
    points = sorted((point.mix[one], point.total.value, point.total) for point in found.points)
    whiskers = [(or_else(total.low, value), or_else(total.high, value)) for _, value, total in points]
    places = [(share, value) for share, value, _ in points]
    high = max([1.2, *(value for _, value in places), *(end for _, end in whiskers if end < 3)]) * 1.05
    low = min([0.8, *(value for _, value in places), *(end for end, _ in whiskers if end > 0.3)]) * 0.95
    marks: list[Mark] = [
        Line("Pareto front", places, series=0),
        Dots("proven ends", places, series=0, whiskers_y=whiskers, tips=[f"{value:.3f}" for _, value in places]),
        Rule("no gain", y=1.0),
    ]
    title = "Sum of normalised throughputs by mix"
    text = f"Against the share of {one} in the mix; above 1 sharing saves."
    x, y = Axis(f"share of {one} in the mix", Linear(0, 1, percent=True)), Axis("sum", Linear(low, high))
    return Figure(title, partial(chart_of, title, text, x, y, marks), table)


def _ranked(found: Frontier, table: Table) -> Figure:
    mixed = [point for point in found.points if max(point.mix.values()) < 1]
    mixed.sort(key=lambda point: -point.total.value)
    names = [" : ".join(f"{point.mix[name]:.2f}" for name in found.tenants) for point in mixed]
    places = [(point.total.value, float(at)) for at, point in enumerate(mixed)]
    whiskers = [(or_else(point.total.low, 0.0), or_else(point.total.high, point.total.value)) for point in mixed]
    high = max([1.2, *(value for value, _ in places), *(end for _, end in whiskers)])
    marks: list[Mark] = [
        Dots("sum, with its proven ends", places, whiskers_x=whiskers),
        Rule("no gain", x=1.0),
    ]
    title = "Sum of normalised throughputs by mix"
    x, y = Axis("sum of normalised throughputs", Linear(0, high * 1.05)), Axis("", Categories(names))
    return Figure(
        title, partial(chart_of, title, "Mixes from the best to the worst.", x, y, marks, rows=len(names)), table
    )
