"""The gateway's HTTP front: the Open Inference Protocol behind the general server."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from shoal.base.http import Limits
from shoal.base.http.front import Front
from shoal.serve.gateway.http.connection import InferenceConnection
from shoal.serve.gateway.shared_memory import SharedRegions

if TYPE_CHECKING:
    from shoal.serve.gateway.core import Gateway


class HttpFront(Front):
    """Serves a gateway over HTTP/1.1, on the event loop that runs when it is started.

    `shared` are the shared memory regions of tenants on this machine. `metrics` gives the text of GET /metrics, which
    only the operator may read.
    """

    def __init__(
        self, gateway: Gateway, *, shared: SharedRegions, metrics: Callable[[], bytes], limits: Limits | None = None
    ) -> None:
        super().__init__(limits or Limits())
        self.gateway = gateway
        self.shared = shared
        self.metrics = metrics

    def connection(self, network: str) -> InferenceConnection:
        return InferenceConnection(self, network)
