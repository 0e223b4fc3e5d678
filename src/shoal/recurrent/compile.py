"""From a graph to an artefact: the error of its number type, the search for each layer, and what was found."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from shoal.base.files import write_whole
from shoal.recurrent.errors import BadInput, BadNetwork, TooInexact
from shoal.recurrent.layers.layer import Array, LayerSpec
from shoal.recurrent.network.artefact import Tuning, layers_of, tuning_json, tuning_of
from shoal.recurrent.network.graph import Graph, Recurrence
from shoal.recurrent.network.network import MakeLayer, Network
from shoal.recurrent.network.onnx_node import with_kind
from shoal.recurrent.numbers import NumberType, relative_error

NOISE_STEPS = 32
"""Of the inputs that the error is measured on where no calibration data is given."""


def typed(graph: Graph, kind: NumberType) -> Graph:
    """The graph with all its weights of one type."""
    return replace(
        graph, steps=tuple(with_kind(one, kind) if isinstance(one, Recurrence) else one for one in graph.steps)
    )


def noise_for(graph: Graph, *, rows: int = 1, steps: int = NOISE_STEPS, seed: int = 0) -> dict[str, Array]:
    """Uniform noise for every input. Of a free length the first is the steps, any other the rows."""
    noise = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    for spec in graph.inputs:
        free = [steps if spec.name not in graph.pairs and spec.shape.count(-1) > 1 else rows, rows, rows, rows]
        shape = [side if side >= 0 else free.pop(0) for side in spec.shape]
        floating = np.issubdtype(np.dtype(spec.kind), np.floating)
        found[spec.name] = (noise.uniform(-1, 1, shape) if floating else np.full(shape, steps)).astype(spec.kind)
    return found


def error_of(graph: Graph, make: MakeLayer, data: Mapping[str, Array] | None) -> dict[str, Any]:
    """How far the outputs are from those of fp32: the root of the mean square, relative, the worst of all outputs."""
    inputs = dict(data) if data is not None else noise_for(graph)
    exact = Network(typed(graph, NumberType.FP32), make).run(inputs)
    found = Network(graph, make).run(inputs)
    worst = max(
        (relative_error(found[name], one) for name, one in exact.items() if np.issubdtype(one.dtype, np.floating)),
        default=0.0,
    )
    return {"relative_rms": worst, "measured_on": "noise" if data is None else "calibration data"}


def check_error(error: Mapping[str, Any], most: float, *, allowed: bool) -> None:
    """Raises TooInexact."""
    if not allowed and not error["relative_rms"] <= most:
        raise TooInexact(
            f"the outputs are off by {error['relative_rms']:.2g} (on {error['measured_on']}), more than {most:g}",
            hint="try --first-type bf16 or another --type, or accept it with --allow-error",
        )


def faster(
    graph: Graph, whole: Graph, make: MakeLayer, *, steps: int, seconds: float = 1.0,
    clock: Callable[[], float] = time.perf_counter,
) -> Graph:  # fmt: skip
    """`graph`, whose recurrent parts are compiled, or `whole`, which ONNX Runtime runs, where that takes less time: if
    little of a network is recurrent, to go from one to the other costs more than it brings. They run in turns, a step
    of a session where the network carries states, else a sequence; the least time of each counts."""
    if any(part.restarts for part in whole.segments):
        return graph  # it would have no sessions
    least: dict[int, float] = {}
    compiled = Network(graph, make)
    runs = [_one_call(one, steps) for one in (compiled, Network(whole, make))]
    began, turns = clock(), 0
    while turns < 5 or clock() - began < seconds:
        for at, run in enumerate(runs):
            start = clock()
            run()
            took = clock() - start
            if turns:  # the first turn warms up
                least[at] = min(least.get(at, math.inf), took)
        turns += 1
    if least[1] > 0.95 * least[0]:
        if compiled.program is None:
            return graph
        why = (
            f"all of it is one compiled call of {compiled.program.layers} kernels: {least[0] * 1e6:.0f} us, "
            f"{least[1] * 1e6:.0f} us in ONNX Runtime"
        )
        return replace(graph, remarks=(*graph.remarks, why))
    times = f"{least[1] * 1e6:.0f} us a call here, {least[0] * 1e6:.0f} us with compiled parts"
    why = f"all of it runs in ONNX Runtime: {times}"
    return replace(whole, remarks=(*graph.remarks, why))


def threads_for(
    net: Callable[[int], Network], most: int, *, steps: int, rows: int, seconds: float = 1.0,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Any]:  # fmt: skip
    """How many threads a call of `rows` sequences gets: 1, 2, 4 ... up to `most`, whichever took the least time; more
    only where they save a twentieth. `net`: the network with this number of them."""
    counts = sorted({*(1 << power for power in range(most.bit_length())), most})
    nets = [net(count) for count in counts]
    inputs = noise_for(nets[0].graph, rows=rows, steps=steps)
    least = [math.inf] * len(counts)
    began, turns = clock(), 0
    while turns < 5 or clock() - began < seconds:
        for at, one in enumerate(nets):
            start = clock()
            one.run(inputs)
            took = clock() - start
            least[at] = min(least[at], took) if turns else math.inf  # the first turn warms up
        turns += 1
    chosen = 0
    for at in range(1, len(counts)):
        if least[at] < 0.95 * least[chosen]:
            chosen = at
    return {"threads": counts[chosen], "threads_tried": dict(zip(map(str, counts), least, strict=True))}


def _one_call(net: Network, steps: int) -> Callable[[], Any]:
    streams = bool(net.graph.pairs) and all(one.streams for one in net.graph.recurrences)
    inputs = noise_for(net.graph, steps=1 if streams else steps)
    if not streams:
        return lambda: net.run(inputs)
    session, given = net.session(), {name: one for name, one in inputs.items() if name not in net.graph.pairs}
    return lambda: session.step(given)


def read_calibration(path: Path) -> dict[str, Array]:
    """Inputs by name, from an .npz file without objects. Raises BadInput."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, KeyError) as error:
        raise BadInput(f"this is no .npz file of arrays: {error}", where=str(path)) from None


def tune_all(
    graph: Graph,
    tune: Callable[[LayerSpec], Tuning],
    *,
    folder: Path | None = None,
    key: str = "",
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[Tuning, ...]:
    """A tuning for each layer; layers alike are tuned once. `folder` keeps them for each `key`, which names the machine
    and the effort."""
    known: dict[str, Tuning] = {}
    found = []
    for spec in layers_of(graph):
        name = hashlib.sha256(f"{key}\0{_digest(spec)}".encode()).hexdigest()
        if name not in known:
            path = None if folder is None else folder / f"{name}.tuning.json"
            kept = None if path is None else _read_tuning(path)
            progress(f"{spec.cell.name} {spec.sizes.hidden}: {'from an earlier search' if kept else 'searching'}")
            known[name] = kept or tune(spec)
            if kept is None and path is not None:
                _write_tuning(path, known[name])
        found.append(known[name])
    return tuple(found)


def _digest(spec: LayerSpec) -> str:
    """What the time of a layer depends on: not the values of its weights."""
    return json.dumps([spec.cell.as_json(), repr(spec.sizes), spec.kind], sort_keys=True)


def _read_tuning(path: Path) -> Tuning | None:
    try:
        return tuning_of(json.loads(path.read_text()))
    except (OSError, ValueError, KeyError, TypeError, BadNetwork):
        return None  # searched for again


def _write_tuning(path: Path, tuning: Tuning) -> None:
    with suppress(OSError):  # the artefact has it too
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(path, json.dumps(tuning_json(tuning)), durable=False)
