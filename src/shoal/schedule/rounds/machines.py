"""Machines of a pool for each gang: topology-aware packing within one round.

Who stays keeps its machines. The others come largest first: a gang goes to as few machines as can hold it, and there to
the ones that it fills best, so that whole machines stay free for the next large gang. Where a pool is also offered
unconsolidated, a gang that finds no such place runs spread at the speed that it then has; where it is not, spreading
costs nothing that is known of, and it is spread over as few machines as possible.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.schedule.types import Index, Mask, Problem, positions

Places = tuple[tuple[int, int], ...]
Nodes = dict[int, Places]


class Assigned(NamedTuple):
    """`nodes` by job; `spread` are jobs that run in another column than they were chosen for, and `dropped` ones that
    find no place at all."""

    nodes: Nodes
    spread: dict[int, int]
    dropped: list[int]


def assign(problem: Problem, column: Index, need: Index, stays: Mask, before: Nodes) -> Assigned:
    """Machines for every job that runs in a pool that has machines."""
    found = Assigned({}, {}, [])
    for pool, each in enumerate(problem.pools):
        if each.per_node is None:
            continue
        mine = positions((column >= 0) & (problem.pool_of[np.maximum(column, 0)] == pool)).tolist()
        free = [each.per_node] * (each.count // each.per_node) + [each.count % each.per_node]
        new = []
        for job in mine:
            if not (stays[job] and _again(free, before.get(job, ()), found, job)):
                new.append(job)
        new.sort(key=lambda job: -need[job])
        for job in new:
            _place(problem, found, free, job, int(column[job]), int(need[job]), before.get(job, ()))
    return found


def _again(free: list[int], nodes: Places, found: Assigned, job: int) -> bool:
    """Leave a job on the machines that it is on, if they are still free."""
    if not nodes or any(node >= len(free) or free[node] < count for node, count in nodes):
        return False
    found.nodes[job] = nodes
    for node, count in nodes:
        free[node] -= count
    return True


def _place(
    problem: Problem, found: Assigned, free: list[int], job: int, column: int, need: int, before: Places
) -> None:
    pool = problem.pools[problem.columns[column].pool]
    assert pool.per_node is not None
    spread = problem.columns[column].spread
    nodes = None if spread else _together(free, need, pool.per_node)
    if nodes is None:
        other = _spread_column(problem, job, column)
        if not spread and pool.unconsolidated is not None:
            if other is None:
                found.dropped.append(job)
                return
            found.spread[job] = other
        if sum(count for _, count in before) == need and _again(free, before, found, job):
            return
        nodes = _anywhere(free, need)
    found.nodes[job] = nodes
    for node, count in nodes:
        free[node] -= count


def _together(free: list[int], need: int, size: int) -> tuple[tuple[int, int], ...] | None:
    """The fewest machines that can hold it: whole ones, and the tightest for the rest."""
    whole, rest = divmod(need, size)
    empty = [node for node, left in enumerate(free) if left == size][:whole]
    if len(empty) < whole:
        return None
    nodes = [(node, size) for node in empty]
    if rest:
        able = [(left, node) for node, left in enumerate(free) if left >= rest and node not in empty]
        if not able:
            return None
        nodes.append((min(able)[1], rest))
    return tuple(nodes)


def _anywhere(free: list[int], need: int) -> tuple[tuple[int, int], ...]:
    """As few machines as possible, whatever is left on them."""
    nodes = []
    for left, node in sorted(((left, node) for node, left in enumerate(free) if left), reverse=True):
        nodes.append((node, min(left, need)))
        need -= min(left, need)
        if not need:
            break
    return tuple(nodes)


def _spread_column(problem: Problem, job: int, column: int) -> int | None:
    pool = problem.columns[column].pool
    for at, each in enumerate(problem.columns):
        if each.pool == pool and each.spread and problem.rate[job, at] > 0.0 and problem.gang[job] > 1:
            return at
    return None
