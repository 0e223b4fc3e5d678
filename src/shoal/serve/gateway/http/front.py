"""The gateway's HTTP front: the Open Inference Protocol behind the general server."""

from __future__ import annotations

from collections.abc import Callable

from shoal.base.http import Limits
from shoal.base.http.front import Front
from shoal.serve.gateway.backend import Backend
from shoal.serve.gateway.http.connection import InferenceConnection
from shoal.serve.gateway.http.limits import HttpLimits
from shoal.serve.gateway.http.routes import AppState
from shoal.serve.gateway.shared_memory import SharedRegions
from shoal.serve.protocol.regions import NoRegions, Regions


class HttpFront(Front):
    """Serves a backend over HTTP/1.1, on the event loop that runs when it is started.

    `metrics` gives the text of GET /metrics, which only the operator may read; `shared` are the shared memory regions
    of tenants on this machine, None if there are to be none.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        limits: Limits | None = None,
        metrics: Callable[[], bytes] | None = None,
        shared: SharedRegions | None = None,
    ) -> None:
        super().__init__(limits or HttpLimits())
        self.most_json = self.limits.json if isinstance(self.limits, HttpLimits) else HttpLimits().json
        self.state = AppState(backend, shared, metrics)
        self.regions: Regions = shared if shared is not None else NoRegions()

    def connection(self, network: str) -> InferenceConnection:
        return InferenceConnection(self, network)

    async def stop(self, drain_s: float = 10.0) -> None:
        self.state.draining = True
        await super().stop(drain_s)
