"""Features of a model, read from an ONNX file without running it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from shoal.core import Invalid, Unavailable
from shoal.forecast.features import TRAINING, Counted, Features


def features_of(path: Path, *, batch: int) -> Counted:
    """Of a training step on `batch` samples: operations of convolutions and matrix products, parameters, and tensors
    that hold them. Unnamed first dimensions of inputs are the batch. Raises Invalid for what is no such file."""
    try:
        import onnx
        from onnx import shape_inference
    except ImportError:
        raise Unavailable("ONNX files cannot be read here", hint="pip install onnx") from None
    if batch < 1:
        raise Invalid(f"a batch has one sample at least, not {batch}")
    try:
        model = onnx.load(str(path), load_external_data=False)
        for one in model.graph.input:
            first = one.type.tensor_type.shape.dim[:1]
            if first and not first[0].dim_value:
                first[0].dim_value = batch
        graph = shape_inference.infer_shapes(model, data_prop=True).graph
    except Exception as error:
        raise Invalid(f"is no ONNX file that can be read: {error}", where=str(path)) from None
    shapes = {one.name: tuple(one.dims) for one in graph.initializer}
    sizes = [math.prod(shape) for shape in shapes.values() if math.prod(shape) > 0]
    weights = sum(
        math.prod(one.dims) * onnx.helper.tensor_dtype_to_np_dtype(one.data_type).itemsize for one in graph.initializer
    )
    for one in (*graph.input, *graph.value_info, *graph.output):
        shapes.setdefault(one.name, tuple(dim.dim_value for dim in one.type.tensor_type.shape.dim))
    flops = sum(_flops(node, shapes) for node in graph.node)
    if not flops or not sizes:
        raise Invalid("has no convolution or matrix product with weights and known shapes", where=str(path))
    return Counted(Features(TRAINING * flops, sum(sizes), len(sizes)), weights)


def _flops(node: Any, shapes: dict[str, tuple[int, ...]]) -> int:
    """Of the pass forward; a multiplication and an addition count as two."""
    if node.op_type not in ("Conv", "Gemm", "MatMul"):
        return 0
    weights, out = shapes.get(node.input[1], ()), shapes.get(node.output[0], ())
    if not weights or not out or 0 in (*weights, *out):
        raise Invalid(f"the shapes of {node.op_type} {node.name!r} are not known")
    if node.op_type == "Conv":  # weights: channels out, channels in of a group, kernel
        return 2 * math.prod(out) * math.prod(weights[1:])
    turned = node.op_type == "Gemm" and any(one.name == "transB" and one.i for one in node.attribute)
    return 2 * math.prod(out) * weights[-1 if turned or len(weights) == 1 else -2]
