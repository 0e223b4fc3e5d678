"""LitServe: JSON with the tensor in base64, as its requests are JSON documents. `serve_litserve.py --port P`."""

from __future__ import annotations

import base64
import sys
from typing import Any

import litserve
import network
import numpy as np


class Cnn(litserve.LitAPI):
    def setup(self, device: str) -> None:  # noqa: ARG002
        self.loaded = network.session()

    def decode_request(self, request) -> bytes:  # an annotation would be taken for what to parse the query with
        return base64.b64decode(request["x"])

    def predict(self, x: bytes) -> np.ndarray:
        return network.run(self.loaded, x)

    def encode_response(self, output: np.ndarray) -> dict[str, Any]:
        return {"y": output.tolist()}


if __name__ == "__main__":
    server = litserve.LitServer(Cnn(), accelerator="cpu", workers_per_device=1)
    server.run(
        host="127.0.0.1", port=int(sys.argv[2]), num_api_servers=1, generate_client_file=False, log_level="error"
    )
