"""The page of a scheduling policy: its rounds, and what each accelerator type is worth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shoal.contract.pages import Action, Column, Figure, Line, Mood, Page, Part, Series, Table, Value

if TYPE_CHECKING:
    from shoal.schedule.live.scheduler import Scheduler

PATH = "/v1/schedule/what-if"


def bare_page() -> Page:
    """Where admission alone decides."""
    return Page(title="Scheduling", figures=[Figure(name="policy", value="none: admission alone")])


def with_questions(page: Page, present: str, policies: Sequence[str], answer: Sequence[Part]) -> Page:
    """For an admin: the answer to the last question, and what can be asked."""
    actions = [
        Action(
            name=f"ask what {name} would do", command=["shoal", "schedule", "what-if", "--policy", name],
            method="POST", path=f"{PATH}/{name}",
            note="The policy is asked about the jobs of this moment. Nothing is changed: this page shows its answer.",
        )
        for name in policies if name != present
    ]  # fmt: skip
    return page.model_copy(update={"parts": [*answer, *page.parts], "actions": actions})


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
