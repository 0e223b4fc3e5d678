"""The artefact .rnn: a graph with its weights, schedules and measured error in one zip file.

Entries: `manifest.json`, `weights/N.safetensors` for each layer, `segments/N.onnx`. Nothing in it is code: cells are
expressions as JSON, and kernels are compiled, or found in the cache, on the machine that loads it.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from shoal.recurrent.cells.cell import Cell
from shoal.recurrent.errors import BadNetwork
from shoal.recurrent.layers.layer import LayerSpec, Schedules
from shoal.recurrent.nest.interpret import Weights
from shoal.recurrent.nest.transform import Schedule
from shoal.recurrent.network.graph import Graph, Recurrence, Segment, Tensor
from shoal.recurrent.network.torch_file import sizes_of
from shoal.recurrent.numbers import NumberType

VERSION = 1
LARGEST_BYTES = 4 << 30
"""Of all entries together: a small file may claim any size."""
_MOST_TILES = 32
"""No schedule has larger tiles; a larger one would only make a huge kernel."""


@dataclass(frozen=True)
class Tuning:
    """What was found out about one layer. `tried` is for people: each candidate with both times."""

    schedules: Schedules
    tried: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Artefact:
    """`tunings`: one for each layer, in order. `facts`: where it came from, on which processor it was tuned, and how
    far it is from fp32."""

    graph: Graph
    tunings: tuple[Tuning, ...]
    facts: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


def layers_of(graph: Graph) -> list[LayerSpec]:
    """All layers, in the order of `tunings`."""
    return [layer for step in graph.recurrences for layer in step.layers]


def write(path: Path, artefact: Artefact) -> None:
    """Whole, or not at all. Raises OSError."""
    graph, part = artefact.graph, path.with_name(f".{path.name}.part")
    segments, layers = list(graph.segments), layers_of(graph)
    manifest = {
        "version": VERSION,
        "facts": dict(artefact.facts),
        "inputs": [[one.name, list(one.shape), one.kind] for one in graph.inputs],
        "outputs": [[one.name, list(one.shape), one.kind] for one in graph.outputs],
        "pairs": dict(graph.pairs),
        "remarks": list(graph.remarks),
        "steps": [_step_json(step) for step in graph.steps],
        "tunings": [tuning_json(one) for one in artefact.tunings],
    }
    try:
        with zipfile.ZipFile(part, "w", zipfile.ZIP_STORED) as file:
            file.writestr("manifest.json", json.dumps(manifest))
            for at, segment in enumerate(segments):
                file.writestr(f"segments/{at}.onnx", segment.model)
            for at, layer in enumerate(layers):
                tables = {f"matrix/{name}": one for name, one in layer.weights.matrices.items()}
                tables |= {f"parameter/{name}": one for name, one in layer.weights.parameters.items()}
                file.writestr(f"weights/{at}.safetensors", safetensors.numpy.save(tables))
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _step_json(step: Segment | Recurrence) -> dict[str, Any]:
    if isinstance(step, Segment):
        return {"inputs": list(step.inputs), "outputs": list(step.outputs),
                "operators": list(step.operators), "restarts": list(step.restarts)}  # fmt: skip
    layers = [
        {"cell": one.cell.as_json(), "kind": one.kind, "reverse": one.reverse, "input": one.sizes.input}
        for one in step.layers
    ]
    return {
        "name": step.name, "x": step.x, "y": step.y, "initial": dict(step.initial), "final": dict(step.final),
        "lengths": step.lengths, "batch_first": step.batch_first, "merged": step.merged, "layers": layers,
    }  # fmt: skip


def read(path: Path) -> Artefact:
    """Raises BadNetwork for what is no whole artefact."""
    try:
        with zipfile.ZipFile(path) as file:
            claimed = sum(entry.file_size for entry in file.infolist())
            if claimed > LARGEST_BYTES:
                raise BadNetwork(f"its entries claim {claimed} bytes", where=str(path))
            return _ArtefactReader(file, str(path)).read()
    except OSError as error:
        raise BadNetwork(f"it cannot be read: {error.strerror or error}", where=str(path)) from None
    except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, RuntimeError) as error:
        raise BadNetwork(f"this is no .rnn file: {error}", where=str(path)) from None
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, safetensors.SafetensorError) as error:
        raise BadNetwork(f"the artefact is damaged: {error!r}", where=str(path), hint="compile it again") from None


class _ArtefactReader:
    def __init__(self, file: zipfile.ZipFile, where: str) -> None:
        self._file, self._where = file, where
        self._segments = self._layers = 0

    def read(self) -> Artefact:
        data = json.loads(self._file.read("manifest.json"))
        if data["version"] != VERSION:
            raise BadNetwork(
                f"it has version {data['version']!r}, not {VERSION}", where=self._where, hint="compile it again"
            )
        graph = Graph(
            self._tensors(data["inputs"]),
            self._tensors(data["outputs"]),
            tuple(self._recurrence(one) if "layers" in one else self._segment(one) for one in data["steps"]),
            {str(first): str(last) for first, last in data["pairs"].items()},
            tuple(map(str, data["remarks"])),
        )
        tunings = tuple(tuning_of(one) for one in data["tunings"])
        if len(tunings) != len(layers_of(graph)):
            raise BadNetwork(f"{len(tunings)} tunings for {len(layers_of(graph))} layers", where=self._where)
        return Artefact(graph, tunings, dict(data["facts"]))

    @staticmethod
    def _tensors(data: Iterable[Any]) -> tuple[Tensor, ...]:
        return tuple(Tensor(str(name), tuple(map(int, shape)), str(np.dtype(kind))) for name, shape, kind in data)

    def _segment(self, data: Mapping[str, Any]) -> Segment:
        model = self._file.read(f"segments/{self._segments}.onnx")
        self._segments += 1
        inputs, outputs, operators, restarts = (
            tuple(map(str, data.get(key, ()))) for key in ("inputs", "outputs", "operators", "restarts")
        )
        return Segment(model, inputs, outputs, operators, restarts)

    def _recurrence(self, data: Mapping[str, Any]) -> Recurrence:
        layers = tuple(self._layer(one) for one in data["layers"])
        if not layers or any(
            one.cell.states != layers[0].cell.states or one.sizes != layers[0].sizes for one in layers
        ):
            raise BadNetwork("the directions of a layer differ", where=self._where)
        return Recurrence(
            str(data["name"]), layers, str(data["x"]), str(data["y"]), dict(data["initial"]), dict(data["final"]),
            str(data["lengths"]), bool(data["batch_first"]), bool(data["merged"]),
        )  # fmt: skip

    def _layer(self, data: Mapping[str, Any]) -> LayerSpec:
        cell = Cell.of_json(data["cell"])
        tensors = safetensors.numpy.load(self._file.read(f"weights/{self._layers}.safetensors"))
        self._layers += 1
        tables: dict[str, dict[str, Any]] = {"matrix": {}, "parameter": {}}
        for name, array in tensors.items():
            table, _, own = name.partition("/")
            tables[table][own] = np.ascontiguousarray(array, np.float32)
        wanted = {node.name for node in cell.dots}, set(cell.parameters)
        if (set(tables["matrix"]), set(tables["parameter"])) != wanted:
            raise BadNetwork("its weights are not those of the cell", where=self._where)
        sizes = sizes_of(cell, tables["matrix"], tables["parameter"], self._where)
        sizes = (
            replace(sizes, input=int(data["input"])) if not any(n.args[0].op == "input" for n in cell.dots) else sizes
        )
        return LayerSpec(
            cell, sizes, Weights(tables["matrix"], tables["parameter"]), NumberType(data["kind"]), bool(data["reverse"])
        )


def tuning_json(one: Tuning) -> dict[str, Any]:
    """As JSON can hold it."""
    return {
        "sequence": one.schedules.sequence.as_json(), "step": one.schedules.step.as_json(),
        "tried": [dict(tried) for tried in one.tried],
    }  # fmt: skip


def tuning_of(data: Mapping[str, Any]) -> Tuning:
    """What `tuning_json` wrote. Raises BadNetwork, KeyError or TypeError."""
    return Tuning(Schedules(_schedule(data["sequence"]), _schedule(data["step"])), tuple(data["tried"]))


def _schedule(data: Mapping[str, Any]) -> Schedule:
    found = Schedule(**data)
    tiles = (found.units, found.rows, found.unroll, found.steps)
    fits = all(isinstance(one, int) and 1 <= one <= _MOST_TILES for one in tiles)
    if not fits or found.units * found.rows > _MOST_TILES:
        raise BadNetwork(f"this is no schedule: {data!r:.200}")
    return found
