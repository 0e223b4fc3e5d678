"""One round: from a scene, an allocation and what was remembered to who shall run where until the next one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from shoal.control.scheduling.scene import Place, Scene
from shoal.core import Reason
from shoal.schedule import Allocation
from shoal.schedule.rounds import JobState, Round, Rounds, Settings, State

LITTLE = 1e-6
"""Shares below this are the solver's noise."""


@dataclass(frozen=True)
class Plan:
    """What a round decided. `target` is the type that each job shall run on; `rank` orders all jobs of the round, those
    that shall run first; `leave` are the running jobs whose turn is over, or whose place is on another type now."""

    at: float
    allocation: Allocation
    round: Round
    target: Mapping[str, str]
    rank: Mapping[str, int]
    leave: tuple[str, ...] = ()

    @cached_property
    def row(self) -> Mapping[str, int]:
        return {str(job): row for row, job in enumerate(self.allocation.problem.ids)}

    def shares(self, job: str) -> frozenset[str]:
        """The types on which the policy gives the job some time."""
        row = self.row.get(job)
        if row is None:
            return frozenset()
        columns = self.allocation.problem.columns
        return frozenset(columns[at].key for at in np.flatnonzero(self.allocation.share[row] > LITTLE))

    @property
    def prices(self) -> dict[str, float]:
        """What one more accelerator of each type would add to the policy's objective."""
        problem = self.allocation.problem
        return {pool.type: float(price) for pool, price in zip(problem.pools, self.allocation.prices, strict=True)}

    def reason(self, job: str) -> Reason | None:
        """Why a job of the round runs or waits: whose turn it is, and the prices behind it."""
        row = self.row.get(job)
        if row is None:
            return None
        turn, share = self.round.reason(row), self.allocation.reason(row)
        problem = self.allocation.problem
        own = f"quota of {problem.tenants[problem.tenant[row]].name}:"
        limits = {name: price for name, price in share.facts["limits"].items() if name.startswith(own)}
        facts: dict[str, Any] = {"share": {**share.facts, "limits": limits}, "round": turn.facts, "prices": self.prices}
        if self.allocation.certificate is not None:
            facts["objective"] = self.allocation.certificate.objective
        text = f"{turn.text}. By {self.allocation.policy} it {share.text}"
        dear = {kind: price for kind, price in self.prices.items() if price > 0.0}
        if dear:
            listed = ", ".join(f"{kind} {price:.3g}" for kind, price in dear.items())
            text += f" (prices: {listed})"
        return Reason(turn.code, text, facts)


def make(scene: Scene, allocation: Allocation, state: State, settings: Settings) -> tuple[Plan, State]:
    """The plan, and what to remember for the next one. `allocation` is of the problem of this scene. Pure."""
    rounds = Rounds.restore(settled(state, scene.on, scene.now), settings)
    rounds.enter(allocation.problem, allocation, now=scene.now)
    found = rounds.next(scene.now)
    problem, columns = allocation.problem, allocation.problem.columns
    target = {str(problem.ids[row]): columns[found.column[row]].key for row in found}
    deserved = found.share.sum(axis=1) + np.asarray(found.owed_s) / settings.quantum_s
    order = np.lexsort((problem.arrived, -deserved, found.column < 0))
    rank = {str(problem.ids[row]): at for at, row in enumerate(order.tolist())}
    leave = tuple(job for job, place in scene.on.items() if target.get(job) != place.type)
    return Plan(scene.now, allocation, found, target, rank, leave), rounds.state()


def settled(state: State, on: Mapping[str, Place], now: float) -> State:
    """What was remembered, brought up to date with what really ran since: shares earn, running spends.

    The mechanism takes it that the jobs of a round run from its first second to its last. Here they start when their
    place is free, end when they end, and what is left over is given out in between; so what they had is counted from
    where they are. A job that ran when the round began and does not now is taken to have run until now.
    """
    last = now if state.settled is None else min(state.settled, now)
    elapsed = now - last
    jobs = {}
    for name in {*state.jobs, *on}:
        known, place = state.jobs.get(name, JobState()), on.get(name)
        owed, received = dict(known.owed_s), dict(known.received_s)
        for earns, part in known.share.items():
            owed[earns] = owed.get(earns, 0.0) + part * elapsed
        column, since = known.column, min(known.since, now)
        ran = elapsed if column is not None and known.since < last else 0.0
        if place is not None:
            column, since = place.type, min(place.since, now)
            ran = now - max(last, since)
        if column is not None and ran > 0.0:
            owed[column] = owed.get(column, 0.0) - ran
            received[column] = received.get(column, 0.0) + ran
        jobs[name] = replace(
            known,
            column=None if place is None else place.type,
            accelerators=0 if place is None else place.accelerators,
            partner=None,
            nodes=(),
            since=since,
            ran=known.ran or place is not None,
            owed_s=owed,
            received_s=received,
        )
    return State(state.number, now, jobs)
