"""What a scheduling policy shows: its rounds, and what each accelerator type is worth."""

from __future__ import annotations

from shoal.contract.pages import Column, Figure, Line, Mood, Page, Series, Table, Value
from shoal.schedule.live.scheduler import Scheduler


def page_of(scheduler: Scheduler) -> Page:
    found = scheduler.status()
    figures = [Figure(name="policy", value=found["policy"]), Figure(name="round", value=found["round"])]
    if "trouble" in found:
        figures.append(Figure(name="trouble", value=str(found["trouble"]), mood=Mood.BAD))
    rows: list[list[Value]] = [[kind, price] for kind, price in sorted(found["prices"].items())]
    columns = [Column(name="accelerator"), Column(name="price")]
    table = Table(
        title="Prices: what one more accelerator of a type would be worth", columns=columns, rows=rows,
        empty="no type is scarce",
    )  # fmt: skip
    kinds = sorted({kind for _, prices in scheduler.past_prices for kind in prices})
    lines = [
        Line(name=kind, points=[(at, prices.get(kind, 0.0)) for at, prices in scheduler.past_prices]) for kind in kinds
    ]
    series = [Series(title="Prices, round by round", lines=lines)] if lines else []
    return Page(title="Scheduling", figures=figures, parts=[table, *series])
