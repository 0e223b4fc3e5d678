"""Features from an ONNX file, against sums by hand."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from shoal.core import Invalid
from shoal.forecast.features import Counted, Features
from shoal.forecast.onnx_file import features_of


def weights(name: str, *shape: int) -> onnx.TensorProto:
    return helper.make_tensor(name, TensorProto.FLOAT, shape, bytes(4 * _product(shape)), raw=True)


def _product(shape: tuple[int, ...]) -> int:
    product = 1
    for one in shape:
        product *= one
    return product


def write(folder: Path, turned: int = 1) -> Path:
    """A convolution of 3 to 8 channels on 10 x 10 pixels, and a layer of 800 to 5."""
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Flatten", ["c"], ["f"]),
        helper.make_node("Gemm", ["f", "w", "b"], ["y"], transB=turned),
    ]
    graph = helper.make_graph(
        nodes, "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 10, 10])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 5])],
        [weights("k", 8, 3, 3, 3), weights("w", *((5, 800) if turned else (800, 5))), weights("b", 5)],
    )  # fmt: skip
    onnx.save(helper.make_model(graph), str(path := folder / "net.onnx"))
    return path


@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("batch", [1, 16])
def test_operations_parameters_and_tensors_are_counted(tmp_path: Path, turned: int, batch: int) -> None:
    forward = 2 * batch * (8 * 100 * 27 + 5 * 800)
    assert features_of(write(tmp_path, turned), batch=batch) == Counted(Features(3 * forward, 4221, 3), 4 * 4221)


def test_what_is_no_onnx_file_is_refused(tmp_path: Path) -> None:
    (path := tmp_path / "net.onnx").write_text("nothing")
    with pytest.raises(Invalid, match="is no ONNX file"):
        features_of(path, batch=1)


def test_an_empty_batch_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="one sample at least"):
        features_of(write(tmp_path), batch=0)
