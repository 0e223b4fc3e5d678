"""Whether a network can be a program, and the program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from shoal.recurrent.layers.layer import Layer, LayerSpec
from shoal.recurrent.layers.make import best_target, make_layer
from shoal.recurrent.network.graph import Graph
from shoal.recurrent.program.steps import Unsupported

if TYPE_CHECKING:
    from shoal.recurrent.layers.compiled import CompiledLayer
    from shoal.recurrent.llvm.layout import Layout
    from shoal.recurrent.llvm.target import Target
    from shoal.recurrent.program.program import Program


def program_of(graph: Graph, layers: Sequence[Layer]) -> Program | None:
    """The network as one compiled call; None where ONNX Runtime must run a part of it. `layers`: those of its recurrent
    nodes, in order, compiled already."""
    target = best_target()
    fixed = all(side >= 1 for one in graph.inputs for side in one.shape)
    if target is None or not fixed or not graph.segments or not graph.recurrences:
        return None
    try:
        return _made(graph, layers, target)
    except Unsupported:
        return None


def _made(graph: Graph, layers: Sequence[Layer], target: Target) -> Program:
    from shoal.recurrent.layers.compiled import CompiledLayer
    from shoal.recurrent.llvm.cache import user_cache
    from shoal.recurrent.llvm.dots import dot_of
    from shoal.recurrent.program.plan import plan
    from shoal.recurrent.program.program import Program
    from shoal.recurrent.program.steps import Map
    from shoal.recurrent.search.model import first_schedules

    cache = user_cache()
    known = {id(layer.spec): layer for layer in layers}

    def compiled(spec: LayerSpec) -> CompiledLayer:
        made = known.get(id(spec)) or make_layer(spec, target, first_schedules(spec, target), cache)
        if not isinstance(made, CompiledLayer):
            raise Unsupported("a layer that is interpreted")
        return made

    def states(spec: LayerSpec) -> tuple[int, Mapping[str, int]]:
        layer = compiled(spec)
        layout: Layout = layer.kernel(replace(layer.schedules.sequence, hoist=False)).layout
        if layout.converted:
            raise Unsupported(f"a recurrent layer whose state is also kept as {spec.kind}")
        return layout.state_bytes // 4, {name: at // 4 for name, at in layout.states.items()}

    kind = graph.recurrences[0].layers[0].kind
    dot = dot_of(kind, target)
    found = plan(graph, target.lanes, states, kind, whole=target.lanes if dot.converts else dot.pack)
    return Program(found, [None if isinstance(one, Map) else compiled(one.layer) for one in found.steps], target, cache)
