"""A job through a history under a policy: dollars, finish, moves, and work lost."""

from __future__ import annotations

from dataclasses import dataclass, field

from shoal.market.policy.view import Policy, View, safe
from shoal.market.ticks import Market


@dataclass(frozen=True, slots=True)
class Step:
    """One tick: what was held, what it cost, and why. `failed`: what was wanted could not be had."""

    offer: int | None
    usd: float
    work_left: float
    reason: str
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """`usd` includes egress; `finish_s` is None where the deadline was missed."""

    usd: float
    egress_usd: float
    finish_s: float | None
    launches: int
    preemptions: int
    lost_s: float
    steps: tuple[Step, ...] = field(repr=False)

    @property
    def met(self) -> bool:
        return self.finish_s is not None


def simulate(market: Market, policy: Policy) -> Outcome:
    """From the market's first tick to the end of the work or the deadline."""
    work, running, launching, age = market.work, None, 0, 0
    spent = egress = lost = 0.0
    launches = preemptions = 0
    steps: list[Step] = []
    finish: float | None = None
    for tick in range(market.deadline):
        if running is not None and not market.up[tick, running]:
            preemptions += 1
            if launching == 0:
                redone = min(market.work, work + market.lost) - work
                work, lost = work + redone, lost + redone
            running = None
        view = view_at(market, tick, work, running, launching, age)
        decision = safe(view, policy.decide(view))
        chosen, failed = decision.offer, False
        if chosen is not None and not market.up[tick, chosen]:
            chosen, failed = None, True
        paid = 0.0
        if chosen is not None:
            if chosen != running:
                launches, launching, age = launches + 1, market.launch, 0
                paid += float(market.launch_usd[chosen])
                egress += float(market.launch_usd[chosen])
            part = 1.0
            if launching:
                launching -= 1
            else:
                part = min(1.0, work / float(market.speed[chosen]))
                work = max(0.0, work - float(market.speed[chosen]))
            paid += float(market.usd[tick, chosen]) * part
            age += 1
            if work <= 1e-9:
                finish = (tick + part) * market.tick_s
        running = chosen
        spent += paid
        steps.append(Step(chosen, paid, work, decision.reason.text, failed))
        if finish is not None:
            break
    return Outcome(spent, egress, finish, launches, preemptions, lost * market.tick_s, tuple(steps))


def view_at(market: Market, tick: int, work: float, running: int | None, launching: int, age: int) -> View:
    return View(market, tick, work, running, launching, age, market.usd[tick], market.up[tick], market.up[: tick + 1])
