"""`oracle`: the best setting that never changes, found by trying. It knows the future and the physics, so it exists in
the simulator only, as a mark for the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from host.simulate.outcome import Outcome
from host.simulate.run import simulate
from host.simulate.workloads import Placed, Scenario
from shoal.core import Reason
from shoal.host.policy.static import Nothing
from shoal.host.types import Control, Plan, Setting, Snapshot

_SHARES = (0.02, 0.03, 0.05, 0.07, 0.1, 0.14, 0.2, 0.28, 0.4, 0.55, 0.75, 1.0)
_MOST_VIOLATED = 0.02


@dataclass(frozen=True, slots=True)
class Fixed:
    """A policy that always gives the same plan."""

    settings: Mapping[str, Setting]
    name: str = "oracle"

    def start(self) -> Nothing:
        return Nothing()

    def step(self, snapshot: Snapshot, state: Nothing) -> tuple[Plan, Nothing]:  # noqa: ARG002
        reason = Reason("oracle", "the best setting that never changes, found by trying (simulated)")
        return Plan(self.settings, dict.fromkeys(self.settings, reason)), state


def best_static(scenario: Scenario) -> Outcome:
    """The most best-effort work among settings with which every guaranteed group keeps its promise all the time; with
    none of them, the gentlest. Shares grow one by one, each time where it brings most; domains are tried for all."""
    quiet = replace(scenario, host=replace(scenario.host, sensing=replace(scenario.host.sensing, noise=0.0)))
    groups = scenario.best_effort()
    best: tuple[bool, float, Outcome] | None = None
    for place in _places(scenario):
        settings = {one.group.name: Setting(share=_SHARES[0], domains=place.get(one.group.name)) for one in groups}
        settings, outcome = _grow(quiet, settings)
        found = (_kept(outcome), outcome.work, outcome)
        if best is None or found[:2] > best[:2]:
            best = found
    assert best is not None
    return best[2]


def _grow(scenario: Scenario, settings: dict[str, Setting]) -> tuple[dict[str, Setting], Outcome]:
    outcome = simulate(scenario, Fixed(settings))
    closed: set[str] = set()
    while True:
        tried: list[tuple[float, str, dict[str, Setting], Outcome]] = []
        for name, setting in settings.items():
            larger = next((share for share in _SHARES if share > setting.share), None)
            if larger is None or name in closed:
                continue
            candidate = {**settings, name: replace(setting, share=larger)}
            result = simulate(scenario, Fixed(candidate))
            if _kept(result):
                tried.append((result.work, name, candidate, result))
            else:
                closed.add(name)
        if not tried:
            return settings, outcome
        _, _, settings, outcome = max(tried, key=lambda one: one[:2])


def _places(scenario: Scenario) -> list[dict[str, frozenset[int]]]:
    """All groups where they are; and, if they can be moved, all of them, and each alone, away from guaranteed work."""
    homes = {one.domain for one in scenario.guaranteed()}
    away = frozenset(one.id for one in scenario.host.domains) - homes
    if not away or Control.DOMAINS not in scenario.host.controls:
        return [{}]
    near: list[Placed] = [one for one in scenario.best_effort() if one.domain in homes]
    alone = [{one.group.name: away} for one in near] if len(near) > 1 else []
    return [{}, {one.group.name: away for one in near}, *alone]


def _kept(outcome: Outcome) -> bool:
    return all(one.violated <= _MOST_VIOLATED for one in outcome.guaranteed)
