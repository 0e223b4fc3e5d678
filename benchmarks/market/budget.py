"""Several jobs with one budget: none that was begun misses its deadline, and the budget is never passed.

What each job begun still costs at most, if it went on demand from now on, is reserved. A job begins when that fits into
what is free; money that spot instances save becomes free for the next job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from shoal.core import Invalid, Reason
from shoal.market.policy.view import Decision, Policy, View, certain, safe, worst_after
from shoal.market.simulate import Outcome, Run
from shoal.market.ticks import Ticks

State = Literal["waits", "runs", "done", "dropped", "missed"]


@dataclass(frozen=True, slots=True)
class Task:
    """A job with its own market window and policy; tasks are begun in the order in which they are given."""

    name: str
    market: Ticks
    policy: Policy


@dataclass(frozen=True, slots=True)
class Shared:
    """`dropped` jobs never began: there was no money for them while their deadline could be met."""

    usd: float
    outcomes: Mapping[str, Outcome]
    states: Mapping[str, State]

    @property
    def done(self) -> int:
        return sum(state == "done" for state in self.states.values())


def reserve(market: Ticks, work: float, running: int | None, launching: int) -> float:
    """Dollars with which the fallback surely ends this work, at its price of now and ever."""
    begin = 0.0 if running == market.fallback else float(market.launch_usd[market.fallback])
    ticks = market.needed(work, running, launching) - (market.retries if running != market.fallback else 0)
    return begin + ticks * float(market.usd[0, market.fallback])


def within(view: View, wanted: Decision, free: float) -> tuple[Decision, float]:
    """The decision, or the fallback where the money for it is not there; and what the reserve grows by at most."""
    market, held = view.market, reserve(view.market, view.work, view.running, view.launching)
    chosen = wanted.offer
    if chosen is not None and not view.up[chosen]:
        chosen = None
    if chosen == market.fallback:
        return wanted, 0.0
    paid = 0.0
    if chosen is not None:
        begin = 0.0 if chosen == view.running else float(market.launch_usd[chosen])
        paid = begin + float(view.usd[chosen])
    grows = paid + reserve(market, worst_after(view, chosen), None, 0) - held
    if grows <= free + 1e-9:
        return wanted, max(grows, 0.0)
    text = f"on demand: ${grows:.2f} more would have to be reserved, and ${max(free, 0.0):.2f} of the budget are free"
    return Decision(market.fallback, Reason("budget", text, {"free_usd": free, "wanted": wanted.reason.as_json()})), 0.0


def simulate_shared(tasks: Sequence[Task], budget: float) -> Shared:
    """All tasks from the same first tick on. A task that cannot begin waits with nothing rented."""
    if len({task.name for task in tasks}) < len(tasks):
        raise Invalid("tasks with one budget need different names")
    for task in tasks:
        asked = task.market.usd[:, task.market.fallback]
        if not np.allclose(asked, asked[0]):
            raise Invalid(f"the price on demand of {task.name} changes", hint="a reserve needs one that stays")
    runs = {task.name: Run(task.market) for task in tasks}
    states: dict[str, State] = {task.name: "waits" for task in tasks}
    while any(state in ("waits", "runs") for state in states.values()):
        views = {task.name: runs[task.name].look() for task in tasks if states[task.name] in ("waits", "runs")}
        held = sum(_held(view) for name, view in views.items() if states[name] == "runs")
        free = budget - sum(run.usd for run in runs.values()) - held
        for task in tasks:
            if states[task.name] != "waits":
                continue
            view = views[task.name]
            if not certain(view):
                states[task.name] = "dropped"
            elif _held(view) <= free:
                states[task.name], free = "runs", free - _held(view)
        for task in tasks:
            run, name = runs[task.name], task.name
            if states[name] == "waits":
                run.hold(Decision(None, Reason("budget", "waits: no money is free to end it on demand")))
                if run.over:
                    states[name] = "dropped"
            elif states[name] == "runs":
                view = views[name]
                decision, grown = within(view, safe(view, task.policy.decide(view)), free)
                free -= grown
                run.hold(decision)
                if run.over:
                    states[name] = "done" if run.outcome().met else "missed"
    outcomes = {name: run.outcome() for name, run in runs.items()}
    return Shared(sum(one.usd for one in outcomes.values()), outcomes, states)


def _held(view: View) -> float:
    return reserve(view.market, view.work, view.running, view.launching)
