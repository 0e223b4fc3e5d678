"""Nodes that are close to each other, by their labels, and among which of them a gang is kept. Pure.

A *level* is a label that says what nodes share: a switch, a rack, a zone. Levels go from the innermost outwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from shoal.core import Node

Fits = Sequence[tuple[int, int]]
"""(node position, ranks of a gang that fit on it), the node to prefer first."""


@dataclass(frozen=True, slots=True)
class Level:
    """`of` gives the group of each node, by its position, as an index into `names`. A node that does not say its group
    is alone in one, which has no name."""

    label: str
    of: tuple[int, ...]
    names: tuple[str, ...]


def levels_of(nodes: Sequence[Node], labels: Iterable[str]) -> tuple[Level, ...]:
    """The levels of these labels that put some nodes together and others apart."""
    found = []
    for label in labels:
        at_of: dict[str, int] = {}
        names: list[str] = []
        of: list[int] = []
        for node in nodes:
            name = node.labels.get(label, "")
            if not name or name not in at_of:
                at_of[name] = len(names)
                names.append(name)
            of.append(at_of[name])
        if 1 < len(names) < len(nodes):
            found.append(Level(label, tuple(of), tuple(names)))
    return tuple(found)


def among(levels: Sequence[Level], fits: Fits, ranks: int) -> Fits:
    """The nodes, out of these and in their order, among which a gang of `ranks` ranks is kept.

    That is one group of the innermost level of which any group holds the gang: where it needs fewest nodes, and of
    those the one with least to spare. Where no group holds it, as few groups of the outermost level as possible.
    """
    if not levels:
        return fits
    for level in levels:
        groups, totals = _grouped(level, fits)
        holding = sorted((total, group) for group, total in totals.items() if total >= ranks)
        if holding:
            return groups[_with_fewest_nodes(holding, groups, ranks)]
    if sum(totals.values()) < ranks:
        return fits
    largest = max(totals, key=totals.__getitem__)
    chosen = {at for at, _ in groups[largest]}
    rest = [each for each in fits if each[0] not in chosen]
    chosen.update(at for at, _ in among(levels, rest, ranks - totals[largest]))
    return [each for each in fits if each[0] in chosen]


def _grouped(level: Level, fits: Fits) -> tuple[dict[int, list[tuple[int, int]]], dict[int, int]]:
    """The nodes of each group, and how many ranks fit on them together."""
    groups: dict[int, list[tuple[int, int]]] = {}
    totals: dict[int, int] = {}
    for each in fits:
        group = level.of[each[0]]
        groups.setdefault(group, []).append(each)
        totals[group] = totals.get(group, 0) + each[1]
    return groups, totals


def _with_fewest_nodes(holding: list[tuple[int, int]], groups: Mapping[int, Fits], ranks: int) -> int:
    """Of (total, group), in order: no group needs fewer nodes than if all took as many ranks as the best one."""
    least = -(-ranks // max(count for _, group in holding for _, count in groups[group]))
    best, fewest = holding[0][1], ranks + 1
    for _, group in holding:
        nodes = _nodes_for(groups[group], ranks)
        if nodes < fewest:
            best, fewest = group, nodes
        if nodes == least:
            break
    return best


def _nodes_for(fits: Fits, ranks: int) -> int:
    """The least number of the nodes that hold `ranks` ranks. All nodes together hold them."""
    for number, count in enumerate(sorted((count for _, count in fits), reverse=True), start=1):
        ranks -= count
        if ranks <= 0:
            return number
    raise AssertionError("they do not fit")
