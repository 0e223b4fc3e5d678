"""mosec: a front in Rust, a worker process, bytes in and out. `serve_mosec.py --address A --port P`."""

from __future__ import annotations

import network
import numpy as np
from mosec import Server, Worker


class Cnn(Worker):
    def __init__(self) -> None:
        super().__init__()
        self.loaded = network.session()

    def deserialize(self, data: bytes) -> bytes:
        return data

    def serialize(self, data: np.ndarray) -> bytes:
        return data.tobytes()

    def forward(self, data: bytes) -> np.ndarray:
        return network.run(self.loaded, data)


if __name__ == "__main__":
    server = Server()
    server.append_worker(Cnn, num=1)
    server.run()
