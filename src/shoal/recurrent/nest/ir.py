"""The loop-nest representation: what is computed, in which order, in tiles of which sizes.

Iterators: t over time steps, b over rows of a batch, h over hidden units, g over gates, r over the elements of a
reduction. Dot products, bias, non-linearity and element-wise work of a stage are one iteration over hidden units: the
values between them are registers (after "Serving Recurrent Neural Networks Efficiently with a Spatial Accelerator").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from shoal.recurrent.cells.cell import Cell
from shoal.recurrent.cells.symbols import HIDDEN, Expression, text_of
from shoal.recurrent.cells.symbols import walk as all_below


class Axis(StrEnum):
    TIME = "t"
    ROW = "b"
    UNIT = "h"


class Order(StrEnum):
    FORWARD = "forward"
    ALTERNATE = "alternate"
    """Forward in even time steps, backward in odd ones: what was read last is still in the cache."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Elements of the input vector, of the gates, and of the output where the cell projects it (else 0)."""

    input: int
    hidden: int
    projection: int = 0

    def of(self, space: str) -> int:
        return self.hidden if space == HIDDEN else self.projection


@dataclass(frozen=True, slots=True)
class Vector:
    """A vector of one row. `kind`: input, state (of the step before), or scratch (which a stage computes)."""

    kind: str
    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Reduce:
    """Dot products of several matrices with one vector: for each gate g, the sum over r of w[g, h, r] * vector[r]."""

    stage: int
    operand: Vector
    dots: tuple[Expression, ...]
    unroll: int = 1
    """Steps of the reduction that one turn of its loop does (ru)."""
    gates: int = 0
    """Dots that one pass over the vector sums; 0: all. With fewer, more rows share one read of a weight."""


@dataclass(frozen=True, slots=True)
class Store:
    """Where a value of the unit goes: `state` (of the next step), `scratch`, or `projected` (the hoisted product)."""

    kind: str
    name: str
    value: Expression


@dataclass(frozen=True, slots=True)
class Pointwise:
    """The element-wise work of a stage. `loads`: values of earlier stages, by the scratch vectors that keep them."""

    stores: tuple[Store, ...]
    loads: tuple[tuple[Expression, str], ...] = ()

    def order(self) -> list[Expression]:
        """What is evaluated, arguments first: dots, means and loads are there already and are not looked into."""
        loads = {node for node, _ in self.loads}
        roots = [store.value for store in self.stores]
        given = {node for node in all_below(roots) if node.op in ("dot", "mean") or node in loads}
        return all_below(roots, given)


@dataclass(frozen=True, slots=True)
class Convert:
    """A finished vector in the type that dot products read."""

    vector: Vector


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean of a finished vector, for the stages after it."""

    node: Expression
    vector: Vector


@dataclass(frozen=True, slots=True)
class Loop:
    """`step`: values of the iterator that one turn does at once, in registers. `vector`: units in one vector register
    (rv), where the iterator is h."""

    axis: Axis
    extent: int | str
    body: tuple[Node, ...]
    step: int = 1
    vector: int = 1
    order: Order = Order.FORWARD


Node = Loop | Reduce | Pointwise | Convert | Mean


@dataclass(frozen=True, slots=True)
class Nest:
    """A layer's program: the phases in order, and the names under which a stage's values are kept for later ones."""

    cell: Cell
    sizes: Sizes
    phases: tuple[Loop, ...]
    kept: tuple[tuple[Expression, str, str], ...]
    """(value, the scratch vector that holds it, its space) of what a later stage uses."""
    hoisted: tuple[Reduce, ...] = ()
    """The reductions that were moved out of the recurrence."""


def walk(nodes: tuple[Node, ...]) -> Iterator[Node]:
    """All nodes of a nest, outer ones first."""
    for node in nodes:
        yield node
        if isinstance(node, Loop):
            yield from walk(node.body)


def show(nest: Nest) -> str:
    """The nest as indented text."""
    return "\n".join(_lines(nest.phases, 0))


def _lines(nodes: tuple[Node, ...], depth: int) -> Iterator[str]:
    pad = "  " * depth
    for node in nodes:
        match node:
            case Loop():
                notes = [f"{node.step} at once"] * (node.step > 1) + [f"vectors of {node.vector}"] * (node.vector > 1)
                notes += ["alternating"] * (node.order is Order.ALTERNATE)
                yield f"{pad}for {node.axis} in {node.extent}" + (f"  [{', '.join(notes)}]" if notes else "")
                yield from _lines(node.body, depth + 1)
            case Reduce():
                gates = ", ".join(one.name for one in node.dots)
                notes = [f"{node.gates} gates at once"] * bool(node.gates)
                notes += [f"{node.unroll} steps unrolled"] * (node.unroll > 1)
                note = f"  [{', '.join(notes)}]" if notes else ""
                sums = f"sum over r in {node.operand.size} of w[g, h, r] * {node.operand.name}[r]"
                yield f"{pad}for g in ({gates}): {sums}{note}"
            case Pointwise():
                yield from (pad + line for line in _pointwise(node))
            case Convert():
                yield f"{pad}convert {node.vector.name}"
            case Mean():
                yield f"{pad}mean of {node.vector.name}"


def _pointwise(node: Pointwise) -> Iterator[str]:
    """The assignments of a stage; a value that is used more than once has a name of its own."""
    names = dict(node.loads)
    order = node.order()
    uses = [arg for one in order if one.op not in ("dot", "mean") and one not in names for arg in one.args]
    uses += [store.value for store in node.stores]
    for one in order:
        if one.args and one.op not in ("dot", "mean") and one not in names and uses.count(one) > 1:
            text = text_of(one, names)
            names[one] = f"t{len(names)}"
            yield f"{names[one]} = {text}"
    for store in node.stores:
        prime = "'" if store.kind == "state" else ""
        yield f"{store.name}{prime}[h] = {text_of(store.value, names)}"
