"""Ray Serve: bytes in and out through its HTTP proxy to one replica. `serve_ray.py --port P`."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import network
import ray
from ray import serve
from starlette.requests import Request
from starlette.responses import Response


@serve.deployment(num_replicas=1, max_ongoing_requests=16, ray_actor_options={"num_cpus": 0.5})
class Cnn:
    def __init__(self) -> None:
        self.loaded = network.session()

    async def __call__(self, request: Request) -> Response:
        return Response(network.run(self.loaded, await request.body()).tobytes())


if __name__ == "__main__":
    ray.init(
        address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, _temp_dir=str(Path("ray").absolute())
    )
    serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[2])})
    serve.run(Cnn.bind(), route_prefix="/infer")
    signal.pause()
