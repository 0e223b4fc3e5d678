"""A job through a history under a policy: dollars, finish, moves, and work lost."""

from __future__ import annotations

from dataclasses import dataclass, field

from shoal.market.policy.view import Decision, Policy, View, safe
from shoal.market.ticks import Ticks


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
    refusals: int
    lost_s: float
    steps: tuple[Step, ...] = field(repr=False)

    @property
    def met(self) -> bool:
        return self.finish_s is not None


class Run:
    """A job on its way: `look`, decide, `hold`, for each tick.

    A launch that fails costs nothing and leaves the job with nothing: it had stopped to move. A spot offer that was
    refused is not up in the next tick, so that a policy looks elsewhere."""

    def __init__(self, market: Ticks) -> None:
        self.market, self.tick, self.work = market, 0, market.work
        self.running: int | None = None
        self.launching = self.age = 0
        self.usd = self._egress = self._lost = 0.0
        self._launches = self._preemptions = 0
        self._shown = market.up if market.refused is None else market.up.copy()
        self._steps: list[Step] = []
        self._finish: float | None = None

    @property
    def over(self) -> bool:
        return self._finish is not None or self.tick >= self.market.deadline

    def look(self) -> View:
        """The beginning of a tick: an instance that is gone has lost its work since the last checkpoint."""
        market = self.market
        if self.running is not None and not market.up[self.tick, self.running]:
            self._preemptions += 1
            if self.launching == 0:
                redone = min(market.work, self.work + market.lost) - self.work
                self.work, self._lost = self.work + redone, self._lost + redone
            self.running = None
        shown = self._shown[: self.tick + 1]
        return View(
            market, self.tick, self.work, self.running, self.launching, self.age, market.usd[self.tick], shown[-1],
            shown,
        )  # fmt: skip

    def hold(self, decision: Decision) -> None:
        """The rest of the tick, with what was decided."""
        market, tick, chosen = self.market, self.tick, decision.offer
        failed, paid = False, 0.0
        if chosen is not None and chosen != self.running and not market.begins(tick, chosen):
            if market.spot[chosen] and market.up[tick, chosen]:
                self._shown[tick : tick + 2, chosen] = False
            chosen, failed = None, True
        if chosen is not None:
            if chosen != self.running:
                self._launches, self.launching, self.age = self._launches + 1, market.launch, 0
                paid += float(market.launch_usd[chosen])
                self._egress += float(market.launch_usd[chosen])
            part = 1.0
            if self.launching:
                self.launching -= 1
            else:
                part = min(1.0, self.work / float(market.speed[chosen]))
                self.work = max(0.0, self.work - float(market.speed[chosen]))
            paid += float(market.usd[tick, chosen]) * part
            self.age += 1
            if self.work <= 1e-9:
                self._finish = (tick + part) * market.tick_s
        self.running = chosen
        self.usd += paid
        self._steps.append(Step(chosen, paid, self.work, decision.reason.text, failed))
        self.tick += 1

    def outcome(self) -> Outcome:
        refusals = sum(step.failed for step in self._steps)
        return Outcome(
            self.usd, self._egress, self._finish, self._launches, self._preemptions, refusals,
            self._lost * self.market.tick_s, tuple(self._steps),
        )  # fmt: skip


def simulate(market: Ticks, policy: Policy) -> Outcome:
    """From the market's first tick to the end of the work or the deadline."""
    run = Run(market)
    while not run.over:
        view = run.look()
        run.hold(safe(view, policy.decide(view)))
    return run.outcome()


def view_at(market: Ticks, tick: int, work: float, running: int | None, launching: int, age: int) -> View:
    return View(market, tick, work, running, launching, age, market.usd[tick], market.up[tick], market.up[: tick + 1])
