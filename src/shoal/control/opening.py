"""Answers of a server before its routes are loaded: it is alive and ready; every other request waits for them.

The routes and the library that answers them take as long to load as all else of a start. Jobs are adopted and decided
about meanwhile, and a client that comes early waits as it would for a busy server.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.base.http.asgi import App
    from shoal.control.plane import ControlPlane

_ALIVE, _READY = b"ok\n", b"ready\n"


class Opening:
    """The application until `open` has the one that answers."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._app: asyncio.Future[App] = asyncio.get_running_loop().create_future()

    def open(self, app: App) -> None:
        self._app.set_result(app)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        text = None if self._app.done() else self._probe(scope)
        if text is None:
            app = await asyncio.shield(self._app)
            await app(scope, receive, send)
            return
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(text))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": text})

    def _probe(self, scope: Any) -> bytes | None:
        if scope["type"] != "http" or scope["method"] != "GET":
            return None
        if scope["path"] == "/healthz":
            return _ALIVE
        return _READY if scope["path"] == "/readyz" and self._plane.ready else None
