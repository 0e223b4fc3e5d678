"""Figures: where a job was while prices moved, and cost against deadline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from shoal.base.report import Axis, Dots, Figure, Line, Linear, Report, Section, Table, chart_of, html
from shoal.market.simulate import Outcome
from shoal.market.ticks import Ticks

_SHOWN = 6
"""Lines that can be told apart; offers that were never held are left out beyond."""


def track(market: Ticks, outcome: Outcome, policy: str) -> str:
    """One page: the price of each offer while it could be had, and thick where the job held it."""
    hours, steps = market.tick_s / 3600, outcome.steps
    held = list(dict.fromkeys(step.offer for step in steps if step.offer is not None))
    others = sorted(set(range(len(market.offers))) - set(held), key=lambda j: float(market.usd[: len(steps), j].mean()))
    usd = np.where(market.up, market.usd / hours, np.nan)
    marks: list[Line | Dots] = []
    for number, j in enumerate([*held, *others[: max(0, _SHOWN - len(held))]]):
        marks.append(Line(market.offers[j].name, [(t * hours, float(usd[t, j])) for t in range(len(steps))], number))
        at = [(t * hours, float(market.usd[t, j]) / hours) for t, step in enumerate(steps) if step.offer == j]
        marks.append(Dots("", at, number))
    top = max((y for mark in marks for _, y in mark.points if y == y), default=1.0)
    x = Axis("hours since the start; dots where the job held the offer, a gap where it could not be had",
             Linear(0, market.deadline * hours, " h"))  # fmt: skip
    y = Axis("dollars an hour", Linear(0.0, 1.1 * top))
    rows = []
    before: object = ()
    for t, step in enumerate(steps):
        if step.offer != before:
            name = "nothing" if step.offer is None else market.offers[step.offer].name
            rows.append([f"{t * hours:.2f} h", name, step.reason])
            before = step.offer
    table = Table("Moves", ["when", "held", "why"], rows)
    draw = partial(_draw, "Price and place", "prices while offers could be had, and what was held", x, y, marks)
    text = [f"{policy}: ${outcome.usd:.2f}, {outcome.launches} launches, {outcome.preemptions} preemptions."]
    section = Section("The job", text, [Figure("Price and place", draw, table)], simulated=True)
    return html(Report.of("A job on a market", [section]))


def deadlines(curves: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """One page: mean cost over the optimum by deadline over work, a line for each policy."""
    lines = [Line(name, list(points), number, dots=True) for number, (name, points) in enumerate(curves.items())]
    xs = [x for points in curves.values() for x, _ in points]
    ys = [y for points in curves.values() for _, y in points]
    x = Axis("deadline over work", Linear(min(xs), max(xs)))
    y = Axis("cost over the optimum", Linear(1.0, max([*ys, 1.01])))
    rows = [[name, *(f"{ratio:.3f}" for _, ratio in points)] for name, points in curves.items()]
    table = Table("Cost over the optimum", ["policy", *(f"{one:g}" for one in dict.fromkeys(xs))], rows)
    draw = partial(_draw, "Cost against deadline", "mean cost over the offline optimum", x, y, lines)
    section = Section("Policies", ["No job ran."], [Figure("Cost against deadline", draw, table)], simulated=True)
    return html(Report.of("Policies on a market", [section]))


def _draw(title: str, text: str, x: Axis, y: Axis, marks: Sequence[Line | Dots], number: int) -> str:
    return chart_of(title, text, x, y, marks, number)
