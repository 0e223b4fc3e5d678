"""Placement of each node of a graph, with its reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf, isfinite

from shoal.core import Invalid, Reason
from shoal.placement.chain import best_of_chains
from shoal.placement.graph import Graph

_EQUAL = 1e-6
"""The share by which rounding may part the value of the cut from that of its assignment."""


@dataclass(frozen=True)
class Placement:
    """The site of each node, the seconds of the whole, and what no assignment can be below."""

    graph: Graph
    assignment: tuple[int, ...]
    seconds: float
    at_least_s: float

    @property
    def exact(self) -> bool:
        """Whether no assignment is better."""
        return self.seconds - self.at_least_s <= _EQUAL * self.seconds

    @cached_property
    def bytes_moved(self) -> float:
        return self.graph.bytes_moved(self.assignment)

    @cached_property
    def reasons(self) -> tuple[Reason, ...]:
        return tuple(self.reason(each) for each in range(len(self.assignment)))

    def reason(self, position: int) -> Reason:
        """Why a node runs where it does, against the next best site with all others where they are."""
        node, own = self.graph.nodes[position], self.assignment[position]
        name = self.graph.sites[own]
        if node.pin is not None:
            return Reason("pinned", f"{name}: it is pinned there", {"site": name})
        others = [site for site in self.graph.allowed(position) if site != own]
        if not others:
            missing = [site for site in self.graph.sites if site != name]
            text = f"{name}: {' and '.join(missing) or 'no other site'} cannot run it"
            return Reason("only-site", text, {"site": name})
        changes = {site: self._change(position, site) for site in others}
        other = min(others, key=lambda site: sum(changes[site]))
        work, copies = changes[other]
        facts = {"site": name, "other": self.graph.sites[other], "work_s": work, "copies_s": copies}
        return Reason(*_worded(name, self.graph.sites[other], work, copies), facts)

    def _change(self, position: int, site: int) -> tuple[float, float]:
        """Seconds of work and of copies that a node costs more at another site."""
        node, moved = self.graph.nodes[position], list(self.assignment)
        moved[position] = site
        copies = sum(
            sum(self.graph.copies(each, moved).values()) - sum(self.graph.copies(each, self.assignment).values())
            for each in {position, *node.inputs}
        )
        return node.seconds[site] - node.seconds[self.assignment[position]], copies


def _worded(own: str, other: str, work: float, copies: float) -> tuple[str, str]:
    if not isfinite(copies):
        return "no-link", f"{own}: nothing links {other} with the nodes beside it"
    saved, more = short_time(abs(work)), short_time(abs(copies))
    if work < 0:
        return "copies", f"{own}: {other} would save {saved}, its copies would cost {more}"
    if copies < 0:
        return "neighbours", f"{own}: {other} would save {more} of copies, the work there takes {saved} more"
    if copies > 0:
        return "faster", f"{own}: {other} takes {saved} longer, and {more} of copies"
    return "faster", f"{own}: {other} takes {saved} longer"


def short_time(seconds: float) -> str:
    """With two or three digits and the unit that suits them: 9.1 ms."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.2g} ns" if seconds else "0 s"


def place(graph: Graph) -> Placement:
    """The assignment with the fewest seconds: exact for two sites and for graphs without cycles, else with a lower
    bound. Raises Invalid where no assignment can copy what it needs."""
    if (chains := best_of_chains(graph)) is not None:
        sites, seconds = chains
        low = seconds
    elif len(graph.sites) == 2:
        from shoal.placement.moves import best_of_two

        sites, low, seconds = best_of_two(graph)
        if isfinite(seconds) and seconds - low > _EQUAL * seconds:
            raise ArithmeticError(f"the cut is {low} s, its assignment takes {seconds} s")
    else:
        sites, low = _best_of_many(graph)
        seconds = graph.total(sites)
    if seconds == inf:
        raise Invalid("no assignment can copy what it needs", hint="link the sites, or remove a pin")
    return Placement(graph, tuple(sites), seconds, min(low, seconds))


def _best_of_many(graph: Graph) -> tuple[list[int], float]:
    from shoal.placement.forest import MOST_SITES, best_of_forest, spanning
    from shoal.placement.moves import expand, starts

    if len(graph.sites) > MOST_SITES:
        raise Invalid(f"{len(graph.sites)} sites, at most {MOST_SITES} can be placed", hint="group equal sites")
    forest = spanning(graph)
    found, low = best_of_forest(graph, forest)
    if forest.whole:
        return found, low
    best: Sequence[int] = min((*starts(graph), found), key=graph.total)
    changed = True
    while changed:
        changed = False
        for site in range(len(graph.sites)):
            moved = expand(graph, best, site)
            changed |= graph.total(moved) < graph.total(best)
            best = moved
    return list(best), low
