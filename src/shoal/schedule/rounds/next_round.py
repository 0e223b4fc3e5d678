"""From one round to the next: a pure function of what was remembered, what really runs, and the shares.

Shares promise time and running spends it; what a job has too little of is its deficit (deficit round robin, Shreedhar
and Varghese, SIGCOMM'95). Those with the largest deficits run. Jobs run in wholes: a gang may find the accelerators
that it needs only one by one, while others that keep their places for a minimum run time stand on the rest. So the
first gang that is kept out by such jobs alone has places reserved: no other job starts there until it does.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from shoal.core import Invalid
from shoal.schedule.rounds.filling import Entries, Filling, Reserving
from shoal.schedule.rounds.machines import Nodes, assign
from shoal.schedule.rounds.round import Codes, Round, Why
from shoal.schedule.rounds.settings import Settings
from shoal.schedule.rounds.state import TOOK, WINDOW, State
from shoal.schedule.types import Allocation, Array, Index, Mask, Problem, positions

LITTLE = 1e-6
"""Shares below this are the solver's noise."""


def next_round(
    state: State,
    problem: Problem,
    allocation: Allocation,
    now: float,
    settings: Settings,
    *,
    since: Array | None = None,
    kept_s: Array | None = None,
    nodes: Nodes | None = None,
) -> tuple[Round, State]:
    """The round that begins now, and what to remember. `problem` says who runs where now (`placed`); `since` (m,) is
    when each came there (unless told: when `state` knows that it did, else now), `nodes` on which machines. `kept_s`
    (m,) is for how much longer a running job may not be moved, beside `min_run_s` and `problem.held`. A clock that goes
    back counts nothing. Raises `Invalid` for an allocation of another problem."""
    if allocation.problem is not problem:
        raise Invalid("the allocation was made for another problem", where="allocation")
    known = settled(state, problem, now, settings, since)
    running = problem.placed >= 0
    if since is None:
        since = _since(known, problem, now)
    used = np.where(running, problem.gang, 0)
    known = _allotted(known, allocation, settings)
    size = sizes(allocation)
    stay_s = np.where(running, np.maximum(0.0 if kept_s is None else kept_s, settings.min_run_s - (now - since)), 0.0)
    held = running & (problem.held | (stay_s > 0.0))
    filling = Filling(problem)
    filling.fill(_staying(problem, held, used))
    here = problem.placed
    entries = _entitled(problem, known, settings, size, used)
    filling.fill(entries, Reserving(here, used, _may_reserve(problem, known, size, held, stay_s, settings)))
    entitled = np.array(filling.column, np.intp)
    if settings.spare and filling.waiting and any(filling.left):
        filling.fill(_spare(problem, known, settings, entitled < 0, used))
    column, need = np.array(filling.column, np.intp), np.array(filling.need, np.intp)
    before = nodes or {}
    found = before
    if any(pool.per_node is not None for pool in problem.pools):
        found = _on_machines(problem, column, need, used, before)
    runs = column >= 0
    stays = runs & (column == here) & (need == used)
    for job in found:
        stays[job] &= before.get(job) == found[job]
    reserved = np.where(runs, -1, filling.reserved)
    why = partial(_why, runs, stays, entitled, held, known, reserved, problem, size)
    found_round = Round(
        number=known.number + 1, problem=problem, column=column, accelerators=need, kept=stays,
        restarted=runs & known.ran & ~stays, share=known.share, deficit=known.deficit_s, judge=why, nodes=found,
        reserved=reserved,
    )  # fmt: skip
    after = replace(
        known, number=known.number + 1, column=column, since=np.where(stays, since, now), ran=known.ran | runs
    )
    return found_round, after


def settled(state: State, problem: Problem, now: float, settings: Settings, since: Array | None = None) -> State:
    """What is known of the jobs of this problem, with the time since the last round counted. To count it again changes
    nothing."""
    known = _aligned(state, problem, now)
    return _counted(known, problem, _since(known, problem, now) if since is None else since, now, settings)


def _since(known: State, problem: Problem, now: float) -> Array:
    """(m,) when each job came to its place: when `known` knows that it did, else now."""
    return np.where((problem.placed >= 0) & (known.column == problem.placed), known.since, now)


def _aligned(state: State, problem: Problem, now: float) -> State:
    """What is known of the jobs of this problem, in its columns; jobs that are no longer there are forgotten."""
    columns = tuple(column.name for column in problem.columns)
    jobs, count = problem.jobs, len(columns)
    if state.columns == columns and (state.ids is problem.ids or state.ids == problem.ids):
        return state  # no job came or went, as in most rounds
    row_of = {name: row for row, name in enumerate(state.ids)}
    rows = np.array([row_of.get(name, -1) for name in problem.ids], np.intp)
    old = positions(rows >= 0)
    before = rows[old]
    share, deficit_s = np.zeros((jobs, count)), np.zeros((jobs, count))
    if state.columns == columns:
        place = np.arange(-1, count)
        share[old], deficit_s[old] = state.share[before], state.deficit_s[before]
    else:
        onto = {name: at for at, name in enumerate(columns)}
        place = np.array([-1, *(onto.get(name, -1) for name in state.columns)], np.intp)
        there = positions(place[1:] >= 0)
        share[np.ix_(old, place[1:][there])] = state.share[np.ix_(before, there)]
        deficit_s[np.ix_(old, place[1:][there])] = state.deficit_s[np.ix_(before, there)]
    column, since = np.full(jobs, -1, np.intp), np.zeros(jobs)
    column[old], since[old] = place[state.column[before] + 1], state.since[before]
    ran = problem.restarts > 0
    ran[old] = state.ran[before]
    worked_s = np.zeros(jobs)
    worked_s[old] = state.worked_s[before]
    took_s = np.maximum(now - np.delete(state.arrived, before), 0.0)
    promised, received = np.zeros((jobs, WINDOW)), np.zeros((jobs, WINDOW))
    promised[old], received[old] = state.promised_s[before], state.received_s[before]
    why = np.full((jobs, WINDOW), -1, np.int8)
    why[old] = state.why[before]
    return State(
        state.number, state.settled, problem.ids, columns, share, deficit_s, column, since, ran, worked_s,
        problem.arrived, np.concatenate([state.took_s, took_s])[-TOOK:], promised, received, why,
        state.fair, state.reference,
    )  # fmt: skip


def _counted(known: State, problem: Problem, since: Array, now: float, settings: Settings) -> State:
    """The time since the last round, counted: shares promised, running spent. What a job had is counted from where it
    is; one that ran when the round began and does not now is taken to have run until now."""
    placed = problem.placed
    last = now if known.settled is None else min(known.settled, now)
    elapsed = now - last
    running = placed >= 0
    if known.settled == now and not (running & ~known.ran).any():
        return known
    ended = ~running & (known.column >= 0) & (known.since < last)
    column = np.where(running, placed, known.column)
    ran_s = np.where(running, now - np.maximum(last, np.minimum(since, now)), np.where(ended, elapsed, 0.0))
    deficit_s = known.deficit_s + known.share * elapsed
    rows = positions(ran_s > 0.0)
    deficit_s[rows, column[rows]] -= ran_s[rows]
    worked_s = known.worked_s.copy()
    worked_s[rows] += _worked(problem, rows, column[rows], ran_s[rows], since[rows], last, settings)
    promised, received = known.promised_s, known.received_s
    if elapsed > 0.0:
        at = known.number % WINDOW
        promised, received = promised.copy(), received.copy()
        promised[:, at], received[:, at] = known.share.sum(axis=1) * elapsed, ran_s
    return replace(known, settled=now, deficit_s=deficit_s, ran=known.ran | running, worked_s=worked_s,
                   promised_s=promised, received_s=received)  # fmt: skip


def _worked(
    problem: Problem, rows: Index, column: Index, ran_s: Array, since: Array, last: float, settings: Settings
) -> Array:
    """(k,) how long the work would have taken where each job is fastest that these did since the last round. One that
    was started anew did none while it restarted."""
    again = (problem.placed[rows] >= 0) & (since >= last) & (problem.restarts[rows] > 0)
    works_s = np.maximum(ran_s - np.where(again, settings.restart_s, 0.0), 0.0)
    found: Array = works_s * problem.rate[rows, column] / problem.least_pace[rows]
    return found


def _allotted(known: State, allocation: Allocation, settings: Settings) -> State:
    """New shares. The deficit of a job where it has no share any more is forgotten, and what is remembered is
    bounded."""
    share = np.where(allocation.share > LITTLE, allocation.share, 0.0)
    most_s = settings.most_deficit_s
    deficit_s = np.clip(known.deficit_s * (share > 0.0), -most_s, most_s)
    return replace(known, share=share, deficit_s=deficit_s)


def sizes(allocation: Allocation) -> Index:
    """(m,) accelerators that each job shall have."""
    problem = allocation.problem
    size = problem.gang.astype(np.intp)
    if allocation.configuration is not None and problem.configurations is not None:
        chosen = positions(allocation.configuration >= 0)
        size[chosen] = problem.configurations.accelerators[allocation.configuration[chosen]]
    return size


def _staying(problem: Problem, held: Mask, used: Index) -> Entries:
    jobs = positions(held)
    return _alone(jobs, problem.placed[jobs], used[jobs])


def _alone(jobs: Index, column: Index, need: Index) -> Entries:
    return Entries(jobs, np.full(len(jobs), -1, np.intp), column, need)


def _entitled(problem: Problem, known: State, settings: Settings, size: Index, used: Index) -> Entries:
    """Who has a share, the most deserving first: the share, and the deficit in time slices, with a bonus for who is
    there already."""
    row, column = np.nonzero(known.share)
    able = problem.possible[row, column]
    row, column = row[able], column[able]
    here = (problem.placed[row] == column) & (used[row] == size[row])
    deficit = known.deficit_s[row, column] + settings.keep_s * here
    score = known.share.sum(axis=1)[row] + deficit / settings.time_slice_s
    return _alone(row, column, size[row]).take(np.argsort(-score, kind="stable"))


def _may_reserve(
    problem: Problem, known: State, size: Index, held: Mask, stay_s: Array, settings: Settings
) -> frozenset[tuple[int, int]]:
    """The (job, column) pairs of gangs that held jobs alone keep out, and only for a while: once the first of these may
    be moved there is room."""
    if not held.any():
        return frozenset()
    row, column = np.nonzero((known.share > 0.0) & problem.possible & (~held & (size > 1))[:, None])
    found = set()
    pools = problem.pool_of
    by_pool: dict[int, list[tuple[float, int]]] = {}
    for job in positions(held):
        bound = float("inf") if problem.held[job] and stay_s[job] <= 0.0 else float(stay_s[job])
        by_pool.setdefault(int(pools[problem.placed[job]]), []).append((bound, int(problem.gang[job])))
    for job, at in zip(row.tolist(), column.tolist(), strict=True):
        stands = by_pool.get(int(pools[at]), ())
        room = int(problem.counts[pools[at]]) - sum(count for _, count in stands)
        if room >= size[job]:
            continue
        for leaves_s, count in sorted(stands):
            room += count
            if room >= size[job]:
                if leaves_s <= settings.reserve_s:
                    found.add((job, at))
                break
    return frozenset(found)


def _spare(problem: Problem, known: State, settings: Settings, waits: Mask, used: Index) -> Entries:
    """Who `waits` (m,), for what is left over: who is there already, then who is soonest done with it; where lengths
    are not known, who has the largest deficit."""
    row, column = np.nonzero(problem.possible & waits[:, None])
    rate = problem.rate[row, column]
    some = rate > 0.0
    row, column, rate = row[some], column[some], rate[some]
    here = (problem.placed[row] == column) & (used[row] == problem.gang[row])
    soon = problem.work_left[row] / rate * problem.gang[row]
    key = np.where(np.isnan(soon), -known.deficit_s.sum(axis=1)[row], soon) - settings.keep_s * here
    return _alone(row, column, problem.gang[row]).take(np.argsort(key, kind="stable"))


def _on_machines(problem: Problem, column: Index, need: Index, used: Index, before: Nodes) -> Nodes:
    """Machines for those who run; in place, who finds no place together runs spread, or waits."""
    stays = (column >= 0) & (column == problem.placed) & (need == used)
    found = assign(problem, column, need, stays, before)
    for job, other in found.spread.items():
        column[job] = other
    for job in found.dropped:
        column[job], need[job] = -1, 0
    return found.nodes


def _why(
    runs: Mask, stays: Mask, entitled: Index, held: Mask, known: State, reserved: Index, problem: Problem, size: Index
) -> Codes:
    """(m,) why each job runs or waits."""
    why = np.full(len(runs), Why.NO_SHARE, np.int8)
    why[known.share.any(axis=1)] = Why.TURN
    stood = np.bincount(
        problem.pool_of[problem.placed[held]], problem.gang[held], minlength=len(problem.pools)
    )  # fmt: skip
    room = (problem.counts - stood)[problem.pool_of]
    behind = ((known.share > 0.0) & (room < size[:, None])).sum(axis=1) == (known.share > 0.0).sum(axis=1)
    why[(why == Why.TURN) & behind] = Why.BEHIND
    why[_passed_over(known, why, runs, held, size)] = Why.ROOM
    why[reserved >= 0] = Why.RESERVED
    why[~problem.possible.any(axis=1)] = Why.NOWHERE
    why[runs] = np.where(known.ran[runs], Why.RESUMED, Why.STARTED)
    why[runs & (problem.placed >= 0)] = Why.MOVED
    why[runs & (entitled < 0)] = Why.SPARE
    why[stays] = Why.KEPT
    why[held & stays] = Why.HELD
    return why


def _passed_over(known: State, why: Codes, runs: Mask, held: Mask, size: Index) -> Index:
    """The waiting gangs that have a larger deficit than some job that runs where they would, and may be moved."""
    gangs = positions((why == Why.TURN) & ~runs & (size > 1))
    others = positions(runs & ~held)
    found = []
    for job in gangs.tolist():
        columns = positions(known.share[job] > 0.0)
        for at in columns.tolist():
            there = others[known.share[others, at] > 0.0]
            if len(there) and known.deficit_s[there, at].min() < known.deficit_s[job, at]:
                found.append(job)
                break
    return np.array(found, np.intp)
