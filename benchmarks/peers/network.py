"""The network that every peer serves, as Shoal's own replicas run it: onnxruntime, one thread, no spinning.

Imported by the peers' servers, which run in an environment of their own; its file is named by `MODEL`.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import onnxruntime

INPUT, SHAPE = "x", (-1, 3, 48, 192)


def session() -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(os.environ["MODEL"], options, providers=["CPUExecutionProvider"])


def run(loaded: Any, raw: bytes) -> np.ndarray:
    """The outputs for little-endian floats in the order of `SHAPE`."""
    return loaded.run(None, {INPUT: np.frombuffer(raw, np.float32).reshape(SHAPE)})[0]
