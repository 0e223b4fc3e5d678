"""Puts the doors together into one ASGI application."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from shoal import __version__
from shoal.control.api import errors, events, jobs, logs, manifests, system, tenants
from shoal.control.api.context import Context
from shoal.control.api.edge import Edge

_ABOUT = """
Submit training jobs, follow them, and ask why they wait.

Every request but `/healthz`, `/readyz` and the manifest's schema carries `Authorization: Bearer TOKEN`. A tenant's
token sees that tenant only; the admin's sees all and may act for any with `?tenant=`. Every error has the same shape
(`ErrorView`). Times are Unix seconds.
"""

_OPEN = {"/healthz", "/readyz", "/v1/manifests/schema"}


def create_app(context: Context) -> FastAPI:
    app = FastAPI(title="Shoal", version=__version__, description=_ABOUT, redoc_url=None)
    app.state.context = context
    errors.install(app)
    for router in (jobs.router, logs.router, events.router, manifests.router, tenants.router, system.router):
        app.include_router(router)
    app.add_middleware(Edge, metrics=context.metrics)
    context.metrics.watch(lambda: system.gauges(context))
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def _openapi(app: FastAPI) -> dict[str, Any]:
    """The description with the bearer token in it, and without the validation errors that FastAPI would send."""
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        schema["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        for path, operations in schema["paths"].items():
            for operation in operations.values():
                operation["security"] = [] if path in _OPEN else [{"token": []}]
        app.openapi_schema = schema
    return app.openapi_schema
