"""Drive a policy on a simulated host, through the guard's own loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from host.simulate.host import SimulatedHost
from host.simulate.outcome import Outcome, judge
from host.simulate.workloads import Scenario
from shoal.host.guard.loop import Loop, Tick
from shoal.host.types import Applied, Plan, Policy

_LEAST_TICK_S = 0.01


class SimulatedActuators:
    """Does whatever it is told, after the host's lag."""

    def __init__(self, host: SimulatedHost) -> None:
        self._host = host

    def apply(self, plan: Plan) -> Applied:
        self._host.tell(plan.settings)
        return Applied(dict(plan.settings))


def simulate(scenario: Scenario, policy: Policy[Any], *, record: Callable[[Tick], None] | None = None) -> Outcome:
    """The whole scenario under this policy; `record` gets every tick of the guard."""
    host = SimulatedHost(scenario)
    plans: list[Plan] = []

    def keep(tick: Tick) -> None:
        plans.append(tick.plan)
        if record is not None:
            record(tick)

    loop = Loop(policy, host.sense, SimulatedActuators(host), record=keep)
    at = 0.0
    while at < scenario.duration_s:
        at += max(_LEAST_TICK_S, loop.tick(at).plan.next_in_s)
    host.sense(scenario.duration_s)
    return judge(scenario, policy.name, host.history[1:], plans)
