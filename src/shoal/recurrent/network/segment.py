"""A segment in ONNX Runtime."""

from __future__ import annotations

import os
from typing import Any

from shoal.recurrent.errors import BadInput, BadNetwork
from shoal.recurrent.layers.layer import Array
from shoal.recurrent.network.graph import Segment

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")


class RunningSegment:
    """Raises BadNetwork for a segment that ONNX Runtime cannot load."""

    def __init__(self, segment: Segment, threads: int) -> None:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            self._session: Any = ort.InferenceSession(segment.model, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # its exceptions have no common base of their own
            raise BadNetwork(f"onnxruntime cannot load a part of it: {str(error)[:300]}") from None
        self._inputs, self._outputs = segment.inputs, list(segment.outputs)

    def run(self, tensors: dict[str, Array]) -> None:
        """Read what it needs of the tensors, and add what it makes."""
        try:
            found = self._session.run(self._outputs, {name: tensors[name] for name in self._inputs})
        except Exception as error:
            raise BadInput(f"onnxruntime: {str(error)[:300]}") from None
        tensors.update(zip(self._outputs, found, strict=True))
