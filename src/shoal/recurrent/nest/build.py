"""From a cell to its plain loop nest.

A product with a vector that the step itself computes (the reset state of a GRU, the output before a projection) and a
mean over units need all units first: the step falls into stages. A value that a later stage uses is kept in a vector.
"""

from __future__ import annotations

from collections import defaultdict

from shoal.recurrent.cells.cell import Cell, space_of
from shoal.recurrent.cells.symbols import Expression
from shoal.recurrent.nest.ir import (
    Axis,
    Convert,
    Loop,
    Mean,
    Nest,
    Node,
    Pointwise,
    Reduce,
    Sizes,
    Store,
    Vector,
)

_LEAVES = ("input", "state")


def levels(cell: Cell) -> dict[Expression, int]:
    """The stage in which each node is computed, and from which on a mean is known."""
    found: dict[Expression, int] = {}
    for node in cell.nodes:
        below = max((found[arg] for arg in node.args), default=0)
        waits = node.op == "mean" or (node.op == "dot" and node.args[0].op not in _LEAVES)
        found[node] = below + waits
    return found


def build(cell: Cell, sizes: Sizes) -> Nest:
    """The plain nest: for each step and stage, for each unit and row, all its products and all that follows of them."""
    level = levels(cell)
    spaces = _spaces(cell)
    kept = _kept(cell, level, spaces)
    names = {node: name for node, name, _ in kept}
    count = max(level.values()) + 1
    body: list[Node] = []
    for stage in range(count):
        for space in ("hidden", "projection"):
            body += _stage(cell, sizes, stage, space, level, spaces, names)
    time = Loop(Axis.TIME, "steps", tuple(body))
    return Nest(cell, sizes, (time,), kept)


def vector_of(node: Expression, cell: Cell, sizes: Sizes, names: dict[Expression, str]) -> Vector:
    """The vector that a product or a mean reads."""
    if node.op == "input":
        return Vector("input", "x", sizes.input)
    if node.op == "state":
        return Vector("state", node.name, sizes.of(cell.spaces[node.name]))
    return Vector("scratch", names[node], sizes.of(space_of(node, names[node])))


def _spaces(cell: Cell) -> dict[Expression, str]:
    return {node: space_of(node, cell.name) for node in cell.nodes}


def _kept(
    cell: Cell, level: dict[Expression, int], spaces: dict[Expression, str]
) -> tuple[tuple[Expression, str, str], ...]:
    found: dict[Expression, None] = {}
    for node in cell.nodes:
        for arg in node.args:
            leaf = arg.op in ("input", "state", "parameter", "number", "mean")
            if (node.op == "mean" and arg.op != "mean") or (level[arg] < level[node] and not leaf):
                found[arg] = None
    return tuple((node, f"v{index}", spaces[node]) for index, node in enumerate(found))


def _stage(
    cell: Cell,
    sizes: Sizes,
    stage: int,
    space: str,
    level: dict[Expression, int],
    spaces: dict[Expression, str],
    names: dict[Expression, str],
) -> list[Node]:
    stores = [
        Store("scratch", name, node) for node, name in names.items() if (level[node], spaces[node]) == (stage, space)
    ]
    stores += [
        Store("state", name, node)
        for name, node in cell.updates.items()
        if (level[node], cell.spaces[name]) == (stage, space)
    ]
    if not stores:
        return []
    by_operand: dict[Vector, list[Expression]] = defaultdict(list)
    for node in cell.dots:
        if (level[node], node.space) == (stage, space):
            by_operand[vector_of(node.args[0], cell, sizes, names)].append(node)
    loads = tuple((node, name) for node, name in names.items() if level[node] < stage)
    reduces = [Reduce(stage, vector, tuple(dots)) for vector, dots in by_operand.items()]
    rows = Loop(Axis.ROW, "rows", (*reduces, Pointwise(tuple(stores), loads)))
    nodes: list[Node] = [Loop(Axis.UNIT, sizes.of(space), (rows,))]
    after: list[Node] = []
    read = {node.args[0] for node in cell.dots}
    for store in stores:
        size = sizes.of(space)
        if store.kind == "state" and any(one.op == "state" and one.name == store.name for one in read):
            after.append(Convert(Vector("state", store.name, size)))
        if store.kind == "scratch" and store.value in read:
            after.append(Convert(Vector("scratch", store.name, size)))
        if store.kind == "scratch":
            after += [
                Mean(node, Vector("scratch", store.name, size))
                for node in cell.nodes
                if node.op == "mean" and node.args[0] is store.value
            ]
    if after:
        nodes.append(Loop(Axis.ROW, "rows", tuple(after)))
    return nodes
