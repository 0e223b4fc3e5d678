"""silero-vad for a server that puts calls together by itself.

The network's file has the batch as the second axis of its LSTM's state, and the sampling rate as an input of its own;
servers expect the batch first everywhere. Turned round here, calls of different streams and tenants become one
execution, each with the state that its client carries: continuous batching of an LSTM, where it pays most.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.core import Unavailable
from shoal.inference import DataType, ModelSpec, TensorSpec, open_runtime

SPEECH_HZ = 16_000
SHA256 = "7ed98ddbad84ccac4cd0aeb3099049280713df825c610a8ed34543318f1b2c49"


class VoiceActivity:
    """A callable for Shoal: `input` (n, 576) and `state` (n, 2, 128) to `output` (n, 1) and `stateN`."""

    inputs = (TensorSpec("input", DataType.FP32, (-1, 576)), TensorSpec("state", DataType.FP32, (-1, 2, 128)))
    outputs = (TensorSpec("output", DataType.FP32, (-1, 1)), TensorSpec("stateN", DataType.FP32, (-1, 2, 128)))

    def __init__(self) -> None:
        path = Path(os.environ.get("SHOAL_MODELS") or "~/.cache/shoal/models").expanduser() / "silero-vad.onnx"
        if not path.is_file():
            raise Unavailable(f"{path} is absent", hint="python benchmarks/networks.py fetch silero-vad")
        self._network = open_runtime(ModelSpec("silero-vad", str(path), sha256=SHA256))
        self._rate = np.array(SPEECH_HZ, np.int64)

    def __call__(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        state = np.ascontiguousarray(arrays["state"].transpose(1, 0, 2))
        found = self._network.run({"input": arrays["input"], "state": state, "sr": self._rate}, ())
        return {"output": found["output"], "stateN": np.ascontiguousarray(found["stateN"].transpose(1, 0, 2))}

    def close(self) -> None:
        self._network.close()
