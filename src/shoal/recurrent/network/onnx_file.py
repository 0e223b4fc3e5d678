"""An ONNX file as a graph: read with care, fixed inputs resolved, recurrent nodes cut out.

A node's depth is the number of recurrent nodes on the longest way to it from an input. All other nodes of one depth are
one segment, and run between the recurrent nodes of that depth and of the next.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from shoal.recurrent.errors import BadNetwork
from shoal.recurrent.layers.layer import Array
from shoal.recurrent.network.graph import Graph, Recurrence, Segment, Tensor
from shoal.recurrent.network.onnx_node import OPERATORS, recurrence_of, unknown_weights
from shoal.recurrent.numbers import NumberType

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

LARGEST_BYTES = 2 << 30
"""Of a file and of its external data together: an ONNX message has no more, and memory is other tenants' too."""
_MOVES = frozenset(
    {"Cast", "Expand", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Tile", "Transpose", "Unsqueeze"}
)
"""Operators whose values are those of their first input."""


def read_graph(
    path: Path, *, kind: NumberType = NumberType.FP32, fixed: Mapping[str, float] | None = None,
    state: Mapping[str, str] | None = None, shape: Mapping[str, Sequence[int]] | None = None,
    largest_bytes: int = LARGEST_BYTES, without: str = "",
) -> Graph:  # fmt: skip
    """The graph of an ONNX file. `fixed` gives inputs a value for good, by name, `shape` a shape; `state` pairs inputs
    with outputs. `without`: why nothing can be compiled here, and ONNX Runtime gets all nodes. Raises BadNetwork."""
    import onnx

    model = _load(path, largest_bytes)
    _check_order(model.graph, str(path))
    _fix_inputs(model, fixed or {}, str(path))
    if any(_has_subgraphs(node) for node in model.graph.node):
        model = _folded(model, str(path))
    if shape:  # after the fixed inputs: ONNX Runtime fails on some files where it has both to resolve at once
        _fix_shapes(model, shape, str(path))
        model = _folded(model, str(path))
    try:
        inferred = onnx.shape_inference.infer_shapes(model)
    except Exception as error:  # its errors have no common base
        raise BadNetwork(f"the model is not valid: {_first_line(error)}", where=str(path)) from None
    return _Cutter(inferred, kind, str(path), state or {}, without).cut()


def _load(path: Path, largest_bytes: int) -> Any:
    import onnx
    from google.protobuf.message import DecodeError
    from onnx.external_data_helper import load_external_data_for_model

    try:
        size = path.stat().st_size
        if size > largest_bytes:
            raise BadNetwork(f"it has {size} bytes, more than {largest_bytes}", where=str(path))
        model = onnx.load_model_from_string(path.read_bytes())
    except OSError as error:
        raise BadNetwork(f"it cannot be read: {error.strerror}", where=str(path)) from None
    except DecodeError:
        raise BadNetwork("this is no ONNX file", where=str(path), hint="export it again") from None
    _check_external(model, path, largest_bytes - size)
    try:
        load_external_data_for_model(model, str(path.resolve().parent))
    except Exception as error:
        raise BadNetwork(f"its external data cannot be read: {_first_line(error)}", where=str(path)) from None
    return model


def _check_external(model: Any, path: Path, left: int) -> None:
    """External data lies in the model's own folder, and is not too large."""
    import onnx
    from onnx.external_data_helper import _get_all_tensors, uses_external_data

    folder = path.resolve().parent
    for tensor in _get_all_tensors(model):
        count = int(np.prod([max(0, side) for side in tensor.dims], dtype=np.float64))
        if tensor.data_type in (onnx.TensorProto.FLOAT, onnx.TensorProto.INT8) and count > LARGEST_BYTES:
            raise BadNetwork(f"the tensor {tensor.name!r} claims {count} numbers", where=str(path))
        if not uses_external_data(tensor):
            continue
        entries = {one.key: one.value for one in tensor.external_data}
        target = (folder / entries.get("location", "")).resolve()
        if not target.is_relative_to(folder) or not target.is_file():
            raise BadNetwork(
                f"the tensor {tensor.name!r} lies in {entries.get('location')!r}, no file of its folder",
                where=str(path),
            )
        length = entries.get("length", "")
        left -= int(length) if length.isdecimal() else target.stat().st_size
        if left < 0:
            raise BadNetwork(f"its external data has more than {LARGEST_BYTES} bytes", where=str(path))


def _check_order(graph: Any, where: str) -> None:
    """Each node reads what stands before it, and each output is made. All else is checked by who runs the part; the
    checker of the `onnx` package refuses files that lack the shape of an output, as many do."""
    known = {one.name for one in (*graph.input, *graph.initializer)} | {""}
    for node in graph.node:
        missing = [name for name in _reads(node) if name not in known]
        if missing:
            raise BadNetwork(
                f"{node.op_type} {node.name!r} reads {missing[0]!r}, which nothing makes before it", where=where
            )
        known.update(node.output)
    missing = [one.name for one in graph.output if one.name not in known]
    if missing or not graph.output:
        raise BadNetwork(f"nothing makes its output {missing[0]!r}" if missing else "it has no outputs", where=where)


def _fix_inputs(model: Any, fixed: Mapping[str, float], where: str) -> None:
    import onnx

    names = {one.name: one for one in model.graph.input}
    for name, value in fixed.items():
        if name not in names:
            raise BadNetwork(f"it has no input {name!r} to set", where=where, hint=f"its inputs: {', '.join(names)}")
        kind = names[name].type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        shape = [1 for _ in kind.shape.dim]
        model.graph.input.remove(names[name])
        array = np.full(shape, value, dtype)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))


def _fix_shapes(model: Any, shapes: Mapping[str, Sequence[int]], where: str) -> None:
    names = {one.name: one for one in model.graph.input}
    for name, shape in shapes.items():
        if name not in names:
            raise BadNetwork(f"it has no input {name!r}", where=where, hint=f"its inputs: {', '.join(names)}")
        sides = names[name].type.tensor_type.shape.dim
        fits = len(sides) == len(shape) and all(
            wanted >= 1 and (not side.HasField("dim_value") or side.dim_value == wanted)
            for side, wanted in zip(sides, shape, strict=True)
        )
        if not fits:
            own = [side.dim_value if side.HasField("dim_value") else "?" for side in sides]
            raise BadNetwork(f"the input {name!r} has the shape {own}, not {list(shape)}", where=where)
        for side, wanted in zip(sides, shape, strict=True):
            side.dim_value = wanted


def _has_subgraphs(node: Any) -> bool:
    return any(one.HasField("g") or one.graphs for one in node.attribute)


def _folded(model: Any, where: str) -> Any:
    """ONNX Runtime takes the branch of each `If` whose condition is constant, and folds what is."""
    import onnx
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.log_severity_level = 3
    with tempfile.TemporaryDirectory(prefix="shoal-recurrent-") as folder:
        options.optimized_model_filepath = str(Path(folder) / "folded.onnx")
        try:
            ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # its exceptions have no common base of their own
            raise BadNetwork(f"onnxruntime cannot load it: {_first_line(error)}", where=where) from None
        return onnx.load(options.optimized_model_filepath)


class _Cutter:
    def __init__(self, model: Any, kind: NumberType, where: str, state: Mapping[str, str], without: str) -> None:
        import onnx

        self.without = without
        self.onnx, self.model, self.graph, self.kind, self.where = onnx, model, model.graph, kind, where
        self.initializers = {one.name: one for one in self.graph.initializer}
        self.constants = {
            node.output[0]: node
            for node in self.graph.node
            if node.op_type == "Constant" and node.domain in ("", "ai.onnx")
        }
        self.remarks: list[str] = []
        self.pairs = {**self._pairs_of_nodes(), **self._checked(state)}

    def cut(self) -> Graph:
        nodes = [node for node in self.graph.node if node.output[:1] != [] and node.output[0] not in self.constants]
        makers = {name: node for node in nodes for name in node.output}
        ours: dict[int, Recurrence] = {}
        for node in nodes:
            found = self._recurrence(node)
            if found is not None:
                first = {state: "" if self._zero(name, makers) else name for state, name in found.initial.items()}
                ours[id(node)] = replace(found, initial=first)
            self._remark_nested(node)
        nodes = self._without_squeezes(nodes, ours)
        self.reads = {id(node): _taken(ours[id(node)]) if id(node) in ours else _reads(node) for node in nodes}
        self.makes = {id(node): _made(ours[id(node)]) if id(node) in ours else list(node.output) for node in nodes}
        nodes = self._needed(nodes)
        depth = self._depths(nodes, ours)
        steps: list[Segment | Recurrence] = []
        for level in range(max(depth.values(), default=0) + 1):
            rest = [node for node in nodes if depth[id(node)] == level and id(node) not in ours]
            if rest:
                steps.append(self._segment(rest, nodes))
            steps += [ours[id(node)] for node in nodes if depth[id(node)] == level and id(node) in ours]
        inputs = tuple(self._tensor(one) for one in self.graph.input if one.name not in self.initializers)
        outputs = tuple(self._tensor(one) for one in self.graph.output)
        return Graph(inputs, outputs, tuple(steps), self.pairs, tuple(self.remarks))

    def _zero(self, name: str, makers: Mapping[str, Any]) -> bool:
        """Whether a tensor is zero whatever the inputs are, as exporters write the state that a sequence begins with. A
        layer begins so by itself, and then goes on in a session."""
        known = self.constant(name) if name else None
        if known is not None:
            return not known.any()
        node = makers.get(name)
        if node is not None and node.op_type == "ConstantOfShape":
            return all(not self.onnx.numpy_helper.to_array(one.t).any() for one in node.attribute)
        return node is not None and node.op_type in _MOVES and self._zero(node.input[0], makers)

    def _without_squeezes(self, nodes: list[Any], ours: dict[int, Recurrence]) -> list[Any]:
        """Exporters take the axis of directions off a layer's output with a node of its own: our layers do that."""
        outputs = {one.name for one in self.graph.output}
        readers: dict[str, list[Any]] = {}
        for node in nodes:
            for name in _reads(node):
                readers.setdefault(name, []).append(node)
        dropped = set()
        for key, step in ours.items():
            after = readers.get(step.y, [])
            alone = len(after) == 1 and after[0].op_type == "Squeeze" and step.y not in outputs
            if alone and len(step.layers) == 1 and not step.batch_first and self._axes(after[0]) == [1]:
                ours[key] = replace(step, y=after[0].output[0], merged=True)
                dropped.add(id(after[0]))
        return [node for node in nodes if id(node) not in dropped]

    def _axes(self, node: Any) -> list[int]:
        """Of a Squeeze: an attribute in old opsets, an input in new ones."""
        given = self.constant(node.input[1]) if len(node.input) > 1 else None
        return [int(one) for one in (node.attribute[0].ints if node.attribute else () if given is None else given)]

    def _needed(self, nodes: list[Any]) -> list[Any]:
        """Without those whose outputs nothing reads."""
        wanted, kept = {one.name for one in self.graph.output}, []
        for node in reversed(nodes):
            if wanted.intersection(self.makes[id(node)]):
                kept.append(node)
                wanted.update(self.reads[id(node)])
        return kept[::-1]

    def constant(self, name: str) -> Array | None:
        """A constant of the graph, by name."""
        if name in self.initializers:
            return np.asarray(self.onnx.numpy_helper.to_array(self.initializers[name]))
        node = self.constants.get(name)
        if node is None or node.attribute[0].name != "value":
            return None
        return np.asarray(self.onnx.numpy_helper.to_array(node.attribute[0].t))

    def _recurrence(self, node: Any) -> Recurrence | None:
        if node.op_type not in OPERATORS or node.domain not in ("", "ai.onnx", "com.microsoft"):
            return None
        free = unknown_weights(node, self.constant)
        if free or self.without:
            why = self.without or f"{', '.join(free)} is computed"
            self.remarks.append(f"{node.op_type} {_name(node)!r} stays with ONNX Runtime: {why}")
            return None
        return recurrence_of(node, self.constant, self.kind)

    def _remark_nested(self, node: Any) -> None:
        for attribute in node.attribute:
            for graph in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                for inner in graph.node:
                    if inner.op_type in OPERATORS:
                        self.remarks.append(
                            f"{inner.op_type} {_name(inner)!r} stays with ONNX Runtime: it is inside the "
                            f"{node.op_type} {_name(node)!r}"
                        )
                    self._remark_nested(inner)

    def _depths(self, nodes: list[Any], ours: Mapping[int, Recurrence]) -> dict[int, int]:
        at: dict[str, int] = {}
        depth: dict[int, int] = {}
        for node in nodes:  # they stand in topological order, which the checker has seen to
            depth[id(node)] = max((at.get(name, 0) for name in self.reads[id(node)]), default=0)
            for name in self.makes[id(node)]:
                at[name] = depth[id(node)] + (id(node) in ours)
        return depth

    def _segment(self, nodes: list[Any], everything: list[Any]) -> Segment:
        """A model of these nodes, with what they need of constants."""
        made = {name for node in nodes for name in node.output if name}
        reads = {name for node in nodes for name in self.reads[id(node)] if name} - made
        outside = {name for node in everything if node not in nodes for name in self.reads[id(node)]}
        wanted = outside | {one.name for one in self.graph.output}
        inputs = sorted(name for name in reads if name not in self.initializers and name not in self.constants)
        outputs = sorted(made & wanted)
        helper = self.onnx.helper
        known = {one.name: one for one in (*self.graph.input, *self.graph.output, *self.graph.value_info)}
        graph = helper.make_graph(
            [*(self.constants[name] for name in sorted(reads & self.constants.keys())), *nodes],
            "segment",
            [
                known.get(name) or helper.make_tensor_value_info(name, self.onnx.TensorProto.FLOAT, None)
                for name in inputs
            ],
            [helper.make_empty_tensor_value_info(name) for name in outputs],
            [self.initializers[name] for name in sorted(reads & self.initializers.keys())],
        )
        model = helper.make_model(graph, opset_imports=self.model.opset_import, functions=self.model.functions)
        model.ir_version = self.model.ir_version
        return Segment(
            model.SerializeToString(), tuple(inputs), tuple(outputs), tuple(sorted({node.op_type for node in nodes})),
            tuple(_name(node) for node in nodes for one in self._inside(node) if self._restarts(one)),
        )  # fmt: skip

    def _inside(self, node: Any) -> Iterator[Any]:
        """The node and those of its graphs."""
        yield node
        for attribute in node.attribute:
            for graph in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                for inner in graph.node:
                    yield from self._inside(inner)

    def _restarts(self, node: Any) -> bool:
        """Whether the node has a state that nothing carries on."""
        if node.op_type not in OPERATORS:
            return False
        makers = {name: one for one in self.graph.node for name in one.output}
        first = [name for name in list(node.input)[5:7] if name]
        forward = all(one.s == b"forward" for one in node.attribute if one.name == "direction")
        return not forward or not first or any(self._zero(name, makers) for name in first)

    def _tensor(self, info: Any) -> Tensor:
        kind = info.type.tensor_type
        if not info.type.HasField("tensor_type") or not kind.elem_type:
            raise BadNetwork(f"{info.name!r} is no tensor", where=self.where)
        shape = tuple(side.dim_value if side.HasField("dim_value") else -1 for side in kind.shape.dim)
        return Tensor(info.name, shape, str(np.dtype(self.onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))))

    def _pairs_of_nodes(self) -> dict[str, str]:
        """Inputs that are a node's first state, and the outputs that are its last one."""
        inputs, outputs = {one.name for one in self.graph.input}, {one.name for one in self.graph.output}
        return {
            first: last
            for node in self.graph.node
            if node.op_type in OPERATORS
            for first, last in zip(list(node.input)[5:7], list(node.output)[1:3], strict=False)
            if first in inputs and last in outputs
        }

    def _checked(self, state: Mapping[str, str]) -> Mapping[str, str]:
        inputs, outputs = {one.name for one in self.graph.input}, {one.name for one in self.graph.output}
        for first, last in state.items():
            if first not in inputs or last not in outputs:
                raise BadNetwork(f"there is no state from input {first!r} to output {last!r}", where=self.where)
        return state


def _taken(step: Recurrence) -> list[str]:
    """The tensors that a recurrent node of ours reads."""
    return [name for name in (step.x, step.lengths, *step.initial.values()) if name]


def _made(step: Recurrence) -> list[str]:
    """The tensors that it makes."""
    return [name for name in (step.y, *step.final.values()) if name]


def _name(node: Any) -> str:
    return str(node.name or node.output[0])


def _reads(node: Any) -> list[str]:
    """The tensors that a node reads, those that its graphs take from outside among them."""
    found = list(node.input)
    for attribute in node.attribute:
        for graph in [attribute.g] if attribute.HasField("g") else attribute.graphs:
            own = {one.name for one in (*graph.input, *graph.initializer)}
            own |= {name for inner in graph.node for name in inner.output}
            names = [name for inner in graph.node for name in _reads(inner)] + [one.name for one in graph.output]
            found += [name for name in names if name not in own]
    return found


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:300]
