"""One round: from a problem, an allocation and what was remembered to who shall run where until the next one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from shoal.core import Reason, Resources
from shoal.schedule import Allocation, reason_of
from shoal.schedule.live.problem import JobPlace, LiveProblem, Rules
from shoal.schedule.loop import decide_round
from shoal.schedule.minimum_run import Unsaved, behind
from shoal.schedule.policies import POLICIES
from shoal.schedule.presets import ScheduleSettings, resize_s, rounds_of, time_slice_s
from shoal.schedule.rounds import Round, Settings, State, noted, shortfall
from shoal.schedule.rounds.next_round import LITTLE
from shoal.schedule.workloads import Snapshot

NOISE = 1e-12
"""So are prices below this."""

_WAITS = ("turn", "room", "no-share", "behind")


@dataclass(frozen=True)
class Plan:
    """What a round decided. `target` is the type that each job shall run on; `size` how many accelerators, for jobs of
    which the policy chose that; `rank` orders all jobs of the round, those that shall run first; `leave` are the
    running jobs whose time slice is over, or whose place is of another type or size now, with the place that they have;
    `unsaved` the running jobs that would lose their work, `promised` where those go that leave for another size, until
    they are there. `waited_since` is the problem's, for the next
    round; `past` what is remembered of the last rounds, made by `settings`."""

    at: float
    allocation: Allocation
    round: Round
    target: Mapping[str, str]
    rank: Mapping[str, int]
    leave: Mapping[str, JobPlace] = field(default_factory=dict)
    size: Mapping[str, int] = field(default_factory=dict)
    unsaved: Mapping[str, Unsaved] = field(default_factory=dict)
    waited_since: Mapping[str, float] = field(default_factory=dict)
    past: State = field(default_factory=State)
    settings: Settings = field(default_factory=Settings)
    promised: Mapping[str, JobPlace] = field(default_factory=dict)

    @cached_property
    def row(self) -> Mapping[str, int]:
        return {str(job): row for row, job in enumerate(self.allocation.problem.ids)}

    @cached_property
    def sharing(self) -> frozenset[str]:
        """The jobs to which the policy gives some time."""
        some = np.flatnonzero((self.allocation.share > LITTLE).any(axis=1)).tolist()
        return frozenset(str(self.allocation.problem.ids[row]) for row in some)

    def shares(self, job: str) -> frozenset[str]:
        """The types on which the policy gives the job some time."""
        row = self.row.get(job)
        if row is None:
            return frozenset()
        columns = self.allocation.problem.columns
        return frozenset(columns[at].key for at in np.flatnonzero(self.allocation.share[row] > LITTLE))

    def ranks(self, job: str, per_rank: Resources) -> int | None:
        """How many ranks the policy chose for the job; None where it did not choose."""
        size = self.size.get(job)
        return None if size is None else size // per_rank.accelerator_count

    def gain(self, job: str, before: JobPlace) -> float | None:
        """How many times as fast the job is where it shall run now, of what is known of both places."""
        problem = self.allocation.problem
        chosen, ways = self.allocation.configuration, problem.configurations
        row = self.row.get(job)
        if row is None or chosen is None or ways is None or chosen[row] < 0:
            return None
        columns = [at for at, column in enumerate(problem.columns) if column.key == before.type]
        same = (ways.job == row) & (ways.accelerators == before.accelerators) & np.isin(ways.column, columns)
        return float(ways.goodput[chosen[row]] / ways.goodput[same].max()) if same.any() else None

    @property
    def prices(self) -> dict[str, float]:
        """What one more accelerator of each type would add to the policy's objective."""
        problem = self.allocation.problem
        found = zip(problem.pools, self.allocation.prices, strict=True)
        return {pool.type: float(price) if price > NOISE else 0.0 for pool, price in found}

    def reason(self, job: str) -> Reason | None:
        """Why a job of the round runs or waits, and the prices behind it."""
        row = self.row.get(job)
        if row is None:
            return None
        turn, share = self._turn(job, row), reason_of(self.allocation, row)
        problem = self.allocation.problem
        own = f"quota of {problem.tenants[problem.tenant[row]].name}:"
        limits = {name: price for name, price in share.facts["limits"].items() if name.startswith(own)}
        facts: dict[str, Any] = {"share": {**share.facts, "limits": limits}, "round": turn.facts, "prices": self.prices}
        if self.allocation.certificate is not None:
            facts["objective"] = self.allocation.certificate.objective
        # What `elastic` says of a job that is held is that it is.
        text = turn.text if share.code == "held" else f"{turn.text}. By {self.allocation.policy} it {share.text}"
        dear = {kind: price for kind, price in self.prices.items() if price}
        if dear:
            listed = ", ".join(f"{kind} {price:.3g}" for kind, price in dear.items())
            text += f" (prices: {listed})"
        return Reason(turn.code, text, facts)

    def shortfall(self, job: str) -> Reason | None:
        """What kept a job from what its shares promised over the last rounds, where that was much less."""
        row = self.row.get(job)
        return None if row is None else shortfall(self.past, row, self.settings)

    def _before(self, row: int, found: Reason) -> dict[str, Unsaved]:
        """The jobs that would have to give way to a waiting one, did they not keep their places for their work."""
        problem = self.round.problem
        if not self.unsaved or (found.code == "turn" and found.facts["deficit_s"] <= 0.0):
            return {}
        able = {problem.columns[at].key for at in np.flatnonzero(problem.possible[row])}
        return {job: each for job, each in self.unsaved.items() if each.kept and each.type in able}

    def _turn(self, job: str, row: int) -> Reason:
        """Why by the round: a change of size on one type is no move, and who is held for its work is told so."""
        found, before, size = self.round.reason(row), self.leave.get(job), self.size.get(job)
        if found.code == "held" and (risk := self.unsaved.get(job)) is not None and risk.kept:
            return Reason(found.code, f"keeps its place on {risk.type}: it would lose its work", found.facts)
        if found.code in _WAITS and (others := self._before(row, found)):
            why = behind(others, found.facts["deficit_s"])
            return Reason(why.code, why.text, {**found.facts, **why.facts})
        if before is None or size is None or self.target.get(job) != before.type:
            return found
        text = f"goes on with {size} accelerators on {before.type} in place of {before.accelerators}"
        return Reason("resized", text, found.facts)


def make(
    live: LiveProblem, settings: ScheduleSettings, state: State, previous: Allocation | None = None
) -> tuple[Plan, State]:
    """The plan, and what to remember for the next one. Pure. Raises what the policy raises."""
    problem, now = live.problem(), live.now
    ids = [str(name) for name in problem.ids]
    decided = decide_round(
        settings, problem, state, now, previous=previous,
        since=np.array([live.on[name].since if name in live.on else now for name in ids]),
        since_s=np.array([live.since_s.get(name, 0.0) for name in ids]),
        slice_s=np.array([live.slice_s.get(name, 0.0) for name in ids]),
        kept_s=np.array([max(0.0, view.min_run_s - view.placed_s) for view in live.views]),
    )  # fmt: skip
    found, problem = decided.round, decided.round.problem
    past = noted(decided.state, found)
    columns = problem.columns
    target = {ids[row]: columns[found.column[row]].key for row in found}
    target |= {ids[row]: columns[at].key for row, at in enumerate(found.reserved.tolist()) if at >= 0}
    rank = {ids[row]: at for at, row in enumerate(decided.rank.tolist())}
    size = dict(_chosen(decided.allocation, found))
    leave = {
        job: place
        for job, place in live.on.items()
        if target.get(job) != place.type or size.get(job, place.accelerators) != place.accelerators
    }
    promised = {job: place for job, place in live.promised.items() if target.get(job) == place.type}
    promised |= {job: JobPlace(target[job], size[job], now) for job in leave if job in target and job in size}
    plan = Plan(now, decided.allocation, found, target, rank, leave, size, live.unsaved, live.waited_since,
                past, rounds_of(settings), promised)  # fmt: skip
    return plan, past


def _chosen(allocation: Allocation, found: Round) -> Iterator[tuple[str, int]]:
    """The sizes that the policy chose; who runs only on what was left over has none."""
    if allocation.configuration is not None:
        for row in found:
            if allocation.configuration[row] >= 0:
                yield str(allocation.problem.ids[row]), int(found.accelerators[row])


def rules_of(settings: ScheduleSettings) -> Rules:
    """How the problem is made for this policy."""
    policy = POLICIES[settings.policy]
    return Rules(
        prices=dict(settings.prices), predict=policy.needs_lengths, by_tenant=policy.name == "hierarchical",
        soon_s=settings.round_s, sizes=policy.name == "elastic", hold_s=resize_s(settings),
        time_slice_s=time_slice_s(settings),
    )  # fmt: skip


def what_if(found: Snapshot, settings: ScheduleSettings) -> Plan:
    """The next round that this policy would make of a snapshot, if no job had a deficit yet. Pure."""
    on = {
        view.id: JobPlace(view.placed, view.gang, found.now - view.placed_s)
        for view in found.jobs
        if view.placed is not None
    }
    problem = LiveProblem(found.now, found.jobs, found.pools, found.tenants, on)
    plan, _ = make(problem, settings, State())
    return plan
