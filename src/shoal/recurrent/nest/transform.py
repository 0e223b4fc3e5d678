"""Transformations of a loop nest, one function each, and the pipeline that a schedule selects of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from shoal.recurrent.cells.cell import Cell
from shoal.recurrent.nest.build import build
from shoal.recurrent.nest.ir import (
    Axis,
    Loop,
    Nest,
    Node,
    Order,
    Pointwise,
    Reduce,
    Sizes,
    Store,
    walk,
)


@dataclass(frozen=True, slots=True, order=True)
class Schedule:
    """One point of the space that the search goes through.

    `units`: vectors of hidden units at once (hu). `rows`: rows of a batch at once. `unroll`: steps of a reduction in
    one turn of its loop (ru). `hoist`: the input's products of all steps are done before the recurrence, `steps` of
    them at once. `alternate`: every second step sweeps over the weights backward. `gates` and `hoisted_gates`: dot
    products that one pass over a vector sums, in the recurrence and in the hoisted product; 0: all of a stage.
    """

    units: int = 2
    rows: int = 2
    unroll: int = 2
    hoist: bool = True
    steps: int = 3
    alternate: bool = False
    gates: int = 0
    hoisted_gates: int = 0

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def lower(cell: Cell, sizes: Sizes, schedule: Schedule, lanes: int) -> Nest:
    """The pipeline: a cell becomes the nest that the back ends take."""
    nest = build(cell, sizes)
    if schedule.hoist:
        nest = hoist_input(nest)
    nest = vectorise(nest, lanes)
    nest = tile(nest, Axis.UNIT, schedule.units)
    nest = tile(nest, Axis.ROW, schedule.rows)
    nest = unroll(nest, schedule.unroll)
    nest = split_gates(nest, schedule.gates, schedule.hoisted_gates)
    if schedule.hoist:
        nest = tile_projection(nest, schedule.steps)
    if schedule.alternate:
        nest = alternate(nest)
    return nest


def hoist_input(nest: Nest) -> Nest:
    """Move the products with the input out of the recurrence: a blocked product over all steps before it."""
    hoisted: list[Reduce] = []

    def without(node: Node) -> Node | None:
        if isinstance(node, Reduce) and node.operand.kind == "input":
            hoisted.append(node)
            return None
        return node

    phases = _rewrite(nest.phases, without)
    projections = []
    for reduce in hoisted:
        stores = tuple(Store("projected", dot.name, dot) for dot in reduce.dots)
        size = nest.sizes.of(reduce.dots[0].space)
        steps = Loop(Axis.TIME, "steps", (reduce, Pointwise(stores)))
        projections.append(Loop(Axis.UNIT, size, (steps,)))
    loops = tuple(one for one in phases if isinstance(one, Loop))
    return replace(nest, phases=(*projections, *loops), hoisted=tuple(hoisted))


def vectorise(nest: Nest, lanes: int) -> Nest:
    """Units in vectors of `lanes`."""
    return _on_loops(nest, lambda loop: replace(loop, vector=lanes) if loop.axis is Axis.UNIT else loop)


def tile(nest: Nest, axis: Axis, step: int) -> Nest:
    """`step` values of an iterator at once. The loops that convert whole vectors keep one row at a time."""

    def tiled(loop: Loop) -> Loop:
        fits = loop.axis is axis and any(isinstance(node, Reduce | Pointwise) for node in walk(loop.body))
        return replace(loop, step=step) if fits else loop

    return _on_loops(nest, tiled)


def unroll(nest: Nest, steps: int) -> Nest:
    """`steps` of each reduction in one turn of its loop. The sums are the same, in the same order."""

    def unrolled(node: Node) -> Node:
        return replace(node, unroll=steps) if isinstance(node, Reduce) else node

    return replace(nest, phases=_loops(_rewrite(nest.phases, unrolled)))


def split_gates(nest: Nest, gates: int, hoisted: int) -> Nest:
    """Fewer dot products in one pass over a vector, so that registers hold the sums of more rows."""

    def split(count: int) -> Callable[[Node], Node]:
        return lambda node: replace(node, gates=count) if isinstance(node, Reduce) else node

    phases = [
        replace(phase, body=_rewrite(phase.body, split(hoisted if phase.axis is Axis.UNIT else gates)))
        for phase in nest.phases
    ]
    return replace(nest, phases=tuple(phases))


def tile_projection(nest: Nest, steps: int) -> Nest:
    """`steps` time steps of the hoisted product at once, with one vector of units: its registers hold the steps."""
    phases = []
    for phase in nest.phases:
        if phase.axis is Axis.UNIT:
            inner = tuple(replace(one, step=steps) if isinstance(one, Loop) else one for one in phase.body)
            phases.append(replace(phase, step=1, body=inner))
        else:
            phases.append(phase)
    return replace(nest, phases=tuple(phases))


def alternate(nest: Nest) -> Nest:
    """Sweep over the units of the recurrence backward in every second step."""
    phases = []
    for phase in nest.phases:
        if phase.axis is Axis.TIME:
            body = tuple(
                replace(one, order=Order.ALTERNATE) if isinstance(one, Loop) and one.axis is Axis.UNIT else one
                for one in phase.body
            )
            phases.append(replace(phase, body=body))
        else:
            phases.append(phase)
    return replace(nest, phases=tuple(phases))


def _on_loops(nest: Nest, change: Callable[[Loop], Loop]) -> Nest:
    return replace(
        nest, phases=_loops(_rewrite(nest.phases, lambda node: change(node) if isinstance(node, Loop) else node))
    )


def _loops(nodes: tuple[Node, ...]) -> tuple[Loop, ...]:
    return tuple(node for node in nodes if isinstance(node, Loop))


def _rewrite(nodes: tuple[Node, ...], change: Callable[[Node], Node | None]) -> tuple[Node, ...]:
    made = []
    for node in nodes:
        if isinstance(node, Loop):
            node = replace(node, body=_rewrite(node.body, change))
        new = change(node)
        if new is not None:
            made.append(new)
    return tuple(made)
