"""The outermost layer: counts requests, and turns an uncaught exception into a 500 with an id that is in the log."""

from __future__ import annotations

import secrets
import time

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shoal.control.api.errors import error_response
from shoal.control.api.prometheus import Metrics

log = structlog.get_logger("shoal.api")


class Edge:
    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 0

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        began = time.perf_counter()
        try:
            await self._app(scope, receive, watched)
        except Exception:
            error_id = secrets.token_hex(6)
            log.exception("unhandled", error_id=error_id, method=scope["method"], path=scope["path"])
            if status:
                raise
            status = 500
            response = error_response(
                500,
                "internal",
                f"the server failed at this request (error {error_id})",
                hint=f"the admin finds the cause in the server's log under {error_id}",
            )
            await response(scope, receive, send)
        finally:
            self._metrics.request(scope["method"], _template(scope), status, time.perf_counter() - began)


def _template(scope: Scope) -> str:
    """The route's pattern, never an arbitrary path: the number of time series must stay bounded."""
    pattern = getattr(scope.get("route"), "path", None)
    if isinstance(pattern, str):
        return pattern
    return str(scope["path"]) if scope.get("endpoint") and not scope.get("path_params") else "other"
