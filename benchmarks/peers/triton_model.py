"""What Triton's Python backend runs (see serve_triton.py)."""

from __future__ import annotations

import os
import sys
from typing import Any

sys.path[:0] = os.environ["MODEL_IMPORTS"].split(os.pathsep)  # the backend's interpreter has none of its own

import network  # noqa: E402
import triton_python_backend_utils as pb_utils  # noqa: E402


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:  # noqa: ARG002
        self.loaded = network.session()

    def execute(self, requests: list[Any]) -> list[Any]:
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", self._run(request))]) for request in requests]

    def _run(self, request: Any) -> Any:
        array = pb_utils.get_input_tensor_by_name(request, network.INPUT).as_numpy()
        return self.loaded.run(None, {network.INPUT: array})[0]
