"""Placement of a stage's calls: on the host, or on the device, by one minimum cut over work and copies."""

from __future__ import annotations

import math
from collections.abc import Callable

from shoal.offload.annotations.calls import Call, Deferred, Stage
from shoal.offload.annotations.types import Backend, Broadcast
from shoal.placement import Graph, Link, Node, Placement, place

Estimator = Callable[[int, Backend], float]
"""Seconds that a function takes for this number of elements at a backend."""

SITES = (Backend.CPU, Backend.GPU)
PCI_EXPRESS = Link(12e9, 2e-5)
"""A PCI Express 3.0 slot with 16 lanes, as a copy from ordinary memory uses it."""


def place_stage(stage: Stage, link: Link) -> Placement | None:
    """The site of each call: of the placement's nodes the first ones are arguments, then come the calls, then the
    results where they have to be. None where nothing can run on the device."""
    if not any(call.declaration.device is not None and call.declaration.estimator is not None for call in stage.calls):
        return None
    nodes: list[Node] = []
    position: dict[int, int] = {}
    for call in stage.calls:
        for where, value in call.arguments.items():
            kind = call.types[where]
            placeless = isinstance(kind, Broadcast) and kind.of is None
            if id(value) in position or placeless or (isinstance(value, Deferred) and value.pending):
                continue
            whole = stage.values[id(value)]
            position[id(value)] = len(nodes)
            site = SITES.index(Backend.GPU if kind.backend(whole) is Backend.GPU else Backend.CPU)
            nodes.append(Node("argument", (0.0, 0.0), out_bytes=kind.size(whole), pin=site))
    arguments = len(nodes)
    work = (
        kind.work(stage.values[id(call.arguments[where])]) for call in stage.calls for where, kind in call.types.items()
    )
    count = max(filter(None, work), default=1)
    for call in stage.calls:
        inputs = [position[id(value)] for value in call.arguments.values() if id(value) in position]
        size = max((nodes[each].out_bytes for each in inputs), default=0.0)
        declaration = call.declaration
        seconds = (0.0, math.inf)
        if declaration.estimator is not None:
            home = declaration.device is None or _writes_at_home(stage, call)
            there = math.inf if home else declaration.estimator(count, Backend.GPU)
            seconds = (declaration.estimator(count, Backend.CPU), there)
        if call.result_type.partial:
            size = 0.0
        handle = None if call.result is None else call.result()
        if handle is not None:
            position[id(handle)] = len(nodes)
        nodes.append(Node(declaration.name, seconds, tuple(dict.fromkeys(inputs)), size))
    for number, call in enumerate(stage.calls):
        handle = None if call.result is None else call.result()
        if handle is not None:
            wanted = SITES.index(handle.materialize or Backend.CPU)
            nodes.append(Node("result", (0.0, 0.0), (arguments + number,), pin=wanted))
    return place(Graph(tuple(nodes), tuple(each.value for each in SITES), {(0, 1): link, (1, 0): link}))


def _writes_at_home(stage: Stage, call: Call) -> bool:
    """Whether it writes into a value of the host: a copy on the device would be written in its place."""
    written = [(call.types[each], call.arguments[each]) for each in call.declaration.mutated if each in call.arguments]
    return any(kind.backend(stage.values[id(value)]) is not Backend.GPU for kind, value in written)


def sites_of(stage: Stage, placement: Placement | None) -> list[Backend]:
    """The site of each call."""
    if placement is None:
        return [Backend.CPU] * len(stage.calls)
    first = next((i for i, node in enumerate(placement.graph.nodes) if node.name != "argument"), 0)
    return [SITES[each] for each in placement.assignment[first : first + len(stage.calls)]]
