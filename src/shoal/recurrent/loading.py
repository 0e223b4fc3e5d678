"""The door of the library: a file becomes a network that runs on this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from shoal.recurrent.cells.cell import Cell
from shoal.recurrent.errors import BadNetwork
from shoal.recurrent.layers.layer import Layer, LayerSpec, Schedules
from shoal.recurrent.layers.make import best_target, make_layer
from shoal.recurrent.llvm.cache import KernelCache, user_cache
from shoal.recurrent.llvm.target import Target
from shoal.recurrent.network.artefact import Tuning
from shoal.recurrent.network.graph import Graph
from shoal.recurrent.network.network import MAX_SESSIONS, Network
from shoal.recurrent.numbers import NumberType

MOST_THREADS = 64
"""Of one call. An artefact may not ask for more."""


def read(
    path: Path,
    *,
    fixed: Mapping[str, float] | None = None,
    state: Mapping[str, str] | None = None,
    shape: Mapping[str, Sequence[int]] | None = None,
    cell: Cell | str | None = None,
    kind: NumberType = NumberType.FP32,
    without: str = "",
) -> Graph:
    """The graph of an .onnx or .safetensors file. `without`: why ONNX Runtime gets all nodes of an ONNX file; here also
    where no code can be made. Raises BadNetwork."""
    if path.suffix == ".safetensors":
        from shoal.recurrent.network.torch_file import read_graph

        if fixed or state or shape:
            raise BadNetwork("only an ONNX file has inputs to set and states to pair", where=str(path))
        return read_graph(path, cell=cell, kind=kind)
    if path.suffix != ".onnx":
        raise BadNetwork("this is no .onnx, .safetensors or .rnn file", where=str(path))
    from shoal.recurrent.network.onnx_file import read_graph as read_onnx

    if best_target() is None:
        without = "no code can be made here (pip install llvmlite)"
    return read_onnx(path, kind=kind, fixed=fixed, state=state, shape=shape, without=without)


def maker(
    target: Target | None, cache: KernelCache, plan: Callable[[LayerSpec, Target], Schedules]
) -> Callable[[LayerSpec], Layer]:
    """What makes each layer of a network: `plan` says its schedules."""

    def make(spec: LayerSpec) -> Layer:
        from shoal.recurrent.layers.layer import InterpretedLayer

        return InterpretedLayer(spec) if target is None else make_layer(spec, target, plan(spec, target), cache)

    return make


def tuned(graph: Graph, tunings: Sequence[Tuning], threads: int = 1, *, max_sessions: int = MAX_SESSIONS) -> Network:
    """A network with the schedules of its tunings, one for each layer."""
    left = iter(tunings)
    make = maker(best_target(), user_cache(), lambda _spec, _target: next(left).schedules)
    return Network(graph, make, threads=threads, max_sessions=max_sessions)


def load_artefact(path: Path, *, threads: int | None = None, max_sessions: int = MAX_SESSIONS) -> Network:
    """An .rnn file with the schedules that it was tuned to. Raises BadNetwork."""
    from shoal.recurrent.network.artefact import read as read_artefact

    found = read_artefact(path)
    chosen = found.facts.get("threads")
    best = chosen if isinstance(chosen, int) and 1 <= chosen <= MOST_THREADS else threads or 1
    return tuned(found.graph, found.tunings, best if threads is None else min(threads, best), max_sessions=max_sessions)


def load(
    path: str | Path,
    *,
    set: Mapping[str, float] | None = None,
    state: Mapping[str, str] | None = None,
    shape: Mapping[str, Sequence[int]] | None = None,
    cell: Cell | str | None = None,
    type: str = "fp32",
    first_type: str | None = None,
    threads: int | None = None,
    max_sessions: int = MAX_SESSIONS,
) -> Network:
    """A network that is ready to run.

    `path`: an .onnx file, a .safetensors state dict (`cell` names its cell, or is one), or an .rnn artefact. `set`
    fixes inputs of an ONNX file, `shape` their shapes: with all of them fixed, small parts that are not recurrent are
    compiled too. `state` pairs inputs with the outputs that are their next values. `type` of the weights: fp32, bf16,
    int8 or int4; `first_type` of those of the first recurrent node, where they differ. `threads`: of one call at most;
    None: one, or as many as the artefact was found to be fastest with. Raises BadNetwork.
    """
    from shoal.recurrent.search.model import first_schedules

    if Path(path).suffix == ".rnn":
        return load_artefact(Path(path), threads=threads, max_sessions=max_sessions)
    graph = read(Path(path), fixed=set, state=state, shape=shape, cell=cell, kind=NumberType(type))
    if first_type is not None:
        from shoal.recurrent.network.onnx_node import first_typed

        graph = first_typed(graph, NumberType(first_type))
    return Network(
        graph, maker(best_target(), user_cache(), first_schedules), threads=threads or 1, max_sessions=max_sessions
    )
