"""Puts the doors together into one ASGI application."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Receive, Scope, Send

from shoal import __version__
from shoal.control.api import arrays, errors, events, files, jobs, logs, machine, manifests, system, tenants
from shoal.control.api.context import Context, count_question, find_principal, require_own
from shoal.control.api.edge import Edge
from shoal.extension import describe

_ABOUT = """
Submit jobs, follow them, and ask why they wait.

Every request but `/healthz`, `/readyz` and the manifest's schema carries `Authorization: Bearer TOKEN`. A tenant's
token sees that tenant only; the admin's sees all and may act for any with `?tenant=`. Every error has the same shape
(`ErrorView`). Times are Unix seconds.
"""

_BUSY = "/v1/jobs"
_OPEN = {"/healthz", "/readyz", "/v1/manifests/schema"}


class Api(FastAPI):
    """FastAPI's application, but that submissions go past its layers, of which they need none and which take as long as
    a third of the rest of their way. `open` it when all is in it; what is for one of the `hosts` is no submission."""

    def open(self, context: Context, hosts: Sequence[BaseRoute]) -> None:
        self.router.routes[0:0] = self._hosts = list(hosts)
        route = Route(_BUSY, jobs.submit, methods=["POST"])
        self._found = {"app": self, "endpoint": route.endpoint, "route": route, "path_params": {}}
        self._submissions = Edge(ExceptionMiddleware(route.app, self.exception_handlers), context.metrics)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._submits(scope):
            await super().__call__(scope, receive, send)
            return
        scope.update(self._found)
        await self._submissions(scope, receive, send)

    def _submits(self, scope: Scope) -> bool:
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] != scope.get("root_path", "") + _BUSY:
            return False
        return all(host.matches(scope)[0] is Match.NONE for host in self._hosts)


def create_app(context: Context) -> FastAPI:
    # No page at /docs: FastAPI's loads its script from a public CDN, and a server here may have no network.
    app = Api(title="Shoal", version=__version__, description=_ABOUT, docs_url=None, redoc_url=None)
    app.state.context = context
    app.state.principal = find_principal
    app.state.question = count_question
    app.state.require_own = require_own
    app.state.api = events.ServerApi(context)
    app.state.extensions = context.plane.extensions
    errors.install(app)
    own = [door.router for door in (jobs, arrays, logs, files, events, manifests, tenants, system, machine)]
    installed = [router for extension in context.plane.extensions for router in extension.routers()]
    for router in (*own, *installed):
        app.router.routes.extend(router.routes)  # as they are: `include_router` analyses each a second time
    app.add_middleware(Edge, metrics=context.metrics)
    app.open(context, [host for extension in context.plane.extensions for host in extension.hosts()])
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def _openapi(app: FastAPI) -> dict[str, Any]:
    """The description, with the models and the bearer token in it."""
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        components = schema.setdefault("components", {})
        own = components.get("schemas", {})
        components["schemas"] = {**own, **describe.schemas([schema["paths"], own])}
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        for path, operations in schema["paths"].items():
            for operation in operations.values():
                operation.setdefault("security", [] if path in _OPEN else [{"token": []}])
        app.openapi_schema = schema
    return app.openapi_schema
