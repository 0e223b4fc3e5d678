"""Puts the doors together into one ASGI application."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.routing import Route

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

_OPEN = {"/healthz", "/readyz", "/v1/manifests/schema"}


def create_app(context: Context) -> FastAPI:
    # No page at /docs: FastAPI's loads its script from a public CDN, and a server here may have no network.
    app = FastAPI(title="Shoal", version=__version__, description=_ABOUT, docs_url=None, redoc_url=None)
    app.state.context = context
    app.state.principal = find_principal
    app.state.question = count_question
    app.state.require_own = require_own
    app.state.api = events.ServerApi(context)
    app.state.extensions = context.plane.extensions
    errors.install(app)
    for door in (jobs, arrays, logs, files, events, manifests, tenants, system, machine):
        app.include_router(door.router)
    for extension in context.plane.extensions:
        for router in extension.routers():
            app.include_router(router)
    # The same function again, ahead of FastAPI's wrapping, which costs as much as the rest of a submission's way here.
    app.router.routes.insert(0, Route("/v1/jobs", jobs.submit, methods=["POST"]))
    app.router.routes[0:0] = [host for extension in context.plane.extensions for host in extension.hosts()]
    app.add_middleware(Edge, metrics=context.metrics)
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
