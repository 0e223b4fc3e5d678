"""One step of the loop: what is there and what was remembered become who runs where. Pure.

The control plane calls it with what its jobs report, the simulator with what its simulated ones do; clock and actuators
are theirs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from shoal.schedule.policies import POLICIES
from shoal.schedule.policy.fair import at_least, unchanged
from shoal.schedule.policy.reference import advanced
from shoal.schedule.presets import ScheduleSettings, ask, rounds_of, without_holds
from shoal.schedule.rounds import Round, Settings, State, next_round, settled
from shoal.schedule.rounds.machines import Nodes
from shoal.schedule.types import Allocation, Array, Index, Problem


@dataclass(frozen=True, eq=False)
class Decided:
    """What one step decided, and what the next one has to know."""

    allocation: Allocation
    round: Round
    state: State
    time_slice_s: float

    @property
    def rank(self) -> Index:
        """(m,) the rows of the round's jobs, those first that run, then by what they deserve."""
        found = self.round
        deserved = found.share.sum(axis=1) + found.deficit_s / self.time_slice_s
        order: Index = np.lexsort((found.problem.arrived, -deserved, found.column < 0))
        return order


def decide_round(
    settings: ScheduleSettings,
    problem: Problem,
    state: State,
    now: float,
    *,
    previous: Allocation | None = None,
    since: Array | None = None,
    since_s: Array | None = None,
    slice_s: Array | None = None,
    kept_s: Array | None = None,
    nodes: Nodes | None = None,
) -> Decided:
    """The arrays are (m,): `since` is when a running job came to its place, `since_s` how long a job has been there or
    has waited, `slice_s` how long the time slices of a job are that does not save its work (zero: it does), `kept_s`
    for how much longer a running job may not be moved. Raises what the policy raises."""
    asked = without_holds(settings, problem)
    rounds = _patient(rounds_of(settings), slice_s)
    known = settled(state, asked, now, rounds, since)
    least = at_least(asked)
    if known.fair is not None:
        known = replace(known, fair=settled(known.fair, _as_if(known.fair, least), now, rounds))
    if settings.policy == "blend":
        known = replace(known, reference=advanced(known.reference, least, known.worked_s))
    if previous is not None and POLICIES[settings.policy].timeless and unchanged(previous.problem, asked):
        allocation = replace(previous, problem=asked)
    else:
        allocation = ask(settings, asked, previous, since_s=since_s, slice_s=slice_s, known=known)
    found, after = next_round(known, asked, allocation, now, rounds, since=since, kept_s=kept_s, nodes=nodes)
    if allocation.fair is not None and settings.policy != "blend":
        after = replace(after, fair=_fair(after.fair, least, allocation.fair, now, rounds))
    return Decided(allocation, found, after, rounds.time_slice_s)


def _fair(state: State | None, problem: Problem, fair: Allocation, now: float, rounds: Settings) -> State:
    """What to remember of the rounds of max-min fairness, which are not carried out: they bound `blend` and `elastic`.
    Shares alone would not do: gangs that do not fit beside each other cannot have theirs."""
    known = State() if state is None else state
    other = _as_if(known, problem)
    return next_round(known, other, replace(fair, problem=other), now, rounds)[1]


def _as_if(state: State, problem: Problem) -> Problem:
    """The problem with jobs where these rounds put them."""
    names = [column.name for column in problem.columns]
    onto = [names.index(name) if name in names else -1 for name in state.columns] + [-1]
    column_of = {name: onto[at] for name, at in zip(state.ids, state.column.tolist(), strict=True)}
    placed = np.array([column_of.get(name, -1) for name in problem.ids], np.intp)
    return problem.again(placed=placed)


def _patient(rounds: Settings, slice_s: Array | None) -> Settings:
    """A time slice that is longer than usual is paid for in full: what the job had too much is not forgotten before the
    others had it."""
    longest = float(np.max(slice_s, initial=0.0)) if slice_s is not None else 0.0
    return rounds if longest <= rounds.most_deficit_s else replace(rounds, remember_s=longest)
