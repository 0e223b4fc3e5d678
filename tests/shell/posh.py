"""POSH's two schedulers for one pipeline, to compare plans with.

After scheduler/heuristic.rs and scheduler/dp.rs of deeptir18/posh.
"""

from __future__ import annotations

from collections.abc import Sequence

from shoal.shell.plan import HERE
from shoal.shell.stages import Stage

SHRINKS = 0.5
"""What an edge weighs after a command that reduces its input; a size becomes as much."""


def heuristic(stages: Sequence[Stage]) -> list[str]:
    """A command with files runs at their site, with files of several sites here. From the last of these to the output
    the pipeline is cut at its lightest edge, as late as possible."""
    where = [HERE] * len(stages)
    last, site = -1, HERE
    for at, one in enumerate(stages):
        if one.data:
            names = set(one.data) & one.sites
            site, last = (names.pop() if len(names) == 1 else HERE), at
            where[at] = site
    if last < 0 or site == HERE:
        return where
    weight, weights = 1.0, list[float]()
    for one in stages[last:]:
        weight *= SHRINKS if _reduces(one) else 1.0
        weights.append(weight)
    reach = next((at for at, one in enumerate(stages[last:]) if site not in one.sites), len(weights))
    if reach == 0:
        return where
    cut = max((at for at in range(reach)), key=lambda at: (-weights[at], at))
    for at in range(last, last + cut + 1):
        where[at] = site
    return where


def dynamic_program(stages: Sequence[Stage], names: Sequence[str], bytes_per_s: float) -> list[str]:
    """The least sum of transfers, with sizes that halve after a command that reduces. Work costs nothing."""
    sites = [HERE, *names]
    size, rows, backs = 0.0, list[dict[str, float]](), list[dict[str, str]]()
    for at, one in enumerate(stages):
        allowed = [site for site in sites if site == HERE or site in one.sites]
        row, back = dict[str, float](), dict[str, str]()
        for site in allowed:
            own = sum(count for origin, count in one.data.items() if origin != site) / bytes_per_s
            if at:
                before = rows[-1]
                costs = {each: cost + (0.0 if each == site else size / bytes_per_s) for each, cost in before.items()}
                back[site] = min(costs, key=lambda each: (costs[each], each != site))
                own += costs[back[site]]
            row[site] = own
        size = (size + sum(one.data.values())) * (SHRINKS if _reduces(one) else 1.0)
        rows.append(row)
        backs.append(back)
    ends = {site: cost + (0.0 if site == HERE else size / bytes_per_s) for site, cost in rows[-1].items()}
    found = [min(ends, key=lambda each: (ends[each], each == HERE))]
    for back in reversed(backs[1:]):
        found.append(back[found[-1]])
    return found[::-1]


def _reduces(one: Stage) -> bool:
    return one.match is not None and one.match.ratio < 1
