"""silero-vad for a server that puts calls together by itself.

The network's file has the batch as the second axis of its LSTM's state, and the sampling rate as an input of its own;
servers expect the batch first everywhere. Turned round here, calls of different streams and tenants become one
execution, each with the state that its client carries: continuous batching of an LSTM, where it pays most.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.core import Unavailable
from shoal.demo.models.catalogue import find
from shoal.demo.models.fetch import cached, default_cache
from shoal.demo.models.sounds import SPEECH_HZ
from shoal.serve import ModelSpec, open_runtime


class VoiceActivity:
    """A callable for `shoal.serve`: `input` (n, 576) and `state` (n, 2, 128) to `output` (n, 1) and `stateN`."""

    def __init__(self) -> None:
        model = find("silero-vad")
        path = cached(model)
        if path is None:
            raise Unavailable(
                f"{model.file} is not in {default_cache()}", hint=f"python -m shoal.demo.models fetch {model.name}"
            )
        self.inputs, self.outputs = model.inputs, model.outputs
        self._network = open_runtime(ModelSpec(model.name, str(path), sha256=model.sha256))
        self._rate = np.array(SPEECH_HZ, np.int64)

    def __call__(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        state = np.ascontiguousarray(arrays["state"].transpose(1, 0, 2))
        found = self._network.run({"input": arrays["input"], "state": state, "sr": self._rate}, ())
        return {"output": found["output"], "stateN": np.ascontiguousarray(found["stateN"].transpose(1, 0, 2))}

    def close(self) -> None:
        self._network.close()
