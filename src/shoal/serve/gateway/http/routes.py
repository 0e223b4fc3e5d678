"""The protocol's paths, and what each of them answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import orjson

from shoal.core import Forbidden
from shoal.inference.errors import BadRequest
from shoal.inference.types import Buffer
from shoal.serve.errors import NotReady
from shoal.serve.protocol import documents
from shoal.serve.protocol.errors import NoSuchCall

if TYPE_CHECKING:
    from shoal.serve.gateway.http.connection import HttpCall
    from shoal.serve.gateway.http.front import HttpFront


@dataclass(frozen=True, slots=True)
class HttpRoute:
    """Where a path leads. `act` returns a JSON-able document, bytes as they are, None for an empty answer, or, if it
    `waits`, a coroutine; an inference has no `act`. `public` asks for no token."""

    method: str
    act: Callable[[HttpFront, HttpCall, Buffer], Any] | None
    model: str = ""
    version: str | None = None
    region: str | None = None
    public: bool = False
    waits: bool = False


@lru_cache(maxsize=1024)
def find(target: bytes) -> HttpRoute:
    """The route of a request's target; a query is of no meaning here. Raises NoSuchCall."""
    path = target.partition(b"?")[0].decode("ascii", "replace")
    try:
        steps = [unquote(step, errors="strict") for step in path.strip("/").split("/")]
    except UnicodeDecodeError:
        raise BadRequest("the path is not UTF-8", where=f"{path!r:.80}") from None
    match steps:
        case ["v2"]:
            return HttpRoute("GET", _server)
        case ["v2", "health", "live"]:
            return HttpRoute("GET", _live, public=True)
        case ["v2", "health", "ready"]:
            return HttpRoute("GET", _ready, public=True)
        case ["v2", "models", "stats"]:
            return HttpRoute("GET", _statistics)
        case ["v2", "models", model]:
            return HttpRoute("GET", _metadata, model)
        case ["v2", "models", model, "versions", version]:
            return HttpRoute("GET", _metadata, model, version)
        case ["v2", "models", model, "infer"]:
            return HttpRoute("POST", None, model)
        case ["v2", "models", model, "versions", version, "infer"]:
            return HttpRoute("POST", None, model, version)
        case ["v2", "models", model, ("ready" | "stats" | "config") as what]:
            return HttpRoute("GET", _OF_MODEL[what], model)
        case ["v2", "models", model, "versions", version, ("ready" | "stats" | "config") as what]:
            return HttpRoute("GET", _OF_MODEL[what], model, version)
        case ["v2", "repository", "index"]:
            return HttpRoute("POST", _index)
        case ["v2", "repository", "models", model, "load"]:
            return HttpRoute("POST", _load, model, waits=True)
        case ["v2", "repository", "models", model, "unload"]:
            return HttpRoute("POST", _unload, model, waits=True)
        case ["v2", "systemsharedmemory", "status"]:
            return HttpRoute("GET", _region_status)
        case ["v2", "systemsharedmemory", "unregister"]:
            return HttpRoute("POST", _unregister)
        case ["v2", "systemsharedmemory", "region", name, "status"]:
            return HttpRoute("GET", _region_status, region=name)
        case ["v2", "systemsharedmemory", "region", name, "register"]:
            return HttpRoute("POST", _register, region=name)
        case ["v2", "systemsharedmemory", "region", name, "unregister"]:
            return HttpRoute("POST", _unregister, region=name)
        case ["metrics"]:
            return HttpRoute("GET", _metrics)
        case _:
            raise NoSuchCall("there is nothing here", where=f"{path:.200}")


def _live(_front: HttpFront, _call: HttpCall, _body: Buffer) -> Any:
    return {"live": True}


def _ready(front: HttpFront, _call: HttpCall, _body: Buffer) -> Any:
    if front.draining:
        raise NotReady("the server is being stopped")
    if not front.gateway.ready():
        raise NotReady("not every model is loaded")
    return {"ready": True}


def _server(_front: HttpFront, _call: HttpCall, _body: Buffer) -> Any:
    return documents.server()


def _metadata(front: HttpFront, call: HttpCall, _body: Buffer) -> Any:
    return documents.metadata(front.gateway.metadata(call.tenant, call.route.model, call.route.version))


def _config(front: HttpFront, call: HttpCall, _body: Buffer) -> Any:
    return documents.config(front.gateway.metadata(call.tenant, call.route.model, call.route.version))


def _model_ready(front: HttpFront, call: HttpCall, _body: Buffer) -> Any:
    if not front.gateway.model_ready(call.tenant, call.route.model, call.route.version):
        raise NotReady("the model is not loaded", where=f"model {call.route.model!r:.80}")
    return {"name": call.route.model, "ready": True}


def _statistics(front: HttpFront, call: HttpCall, _body: Buffer) -> Any:
    return documents.statistics(front.gateway.statistics(call.tenant, call.route.model or None, call.route.version))


_OF_MODEL = {"ready": _model_ready, "stats": _statistics, "config": _config}


def _index(front: HttpFront, call: HttpCall, body: Buffer) -> Any:
    ready_only = _document(body).get("ready", False)
    if type(ready_only) is not bool:
        raise BadRequest("must be true or false", where="ready")
    return documents.index(front.gateway.index(call.tenant, ready_only))


def _load(front: HttpFront, call: HttpCall, body: Buffer) -> Any:
    if _document(body).get("parameters"):
        raise BadRequest("a model is loaded as it was deployed", where="parameters", hint="deploy another version")
    return front.gateway.load(call.tenant, call.route.model)


def _unload(front: HttpFront, call: HttpCall, body: Buffer) -> Any:
    _document(body)  # `unload_dependents` is all that may be in it, and no model has any
    return front.gateway.unload(call.tenant, call.route.model)


def _region_status(front: HttpFront, call: HttpCall, _body: Buffer) -> Any:
    return documents.regions(front.shared.status(call.tenant, call.route.region))


def _register(front: HttpFront, call: HttpCall, body: Buffer) -> None:
    given = _document(body)
    key, offset, size = given.get("key"), given.get("offset", 0), given.get("byte_size")
    if type(key) is not str or type(offset) is not int or type(size) is not int:
        raise BadRequest("key (a string), byte_size and offset (integers) are needed", where="body")
    front.shared.register(call.tenant, call.route.region or "", key, offset, size)


def _unregister(front: HttpFront, call: HttpCall, _body: Buffer) -> None:
    front.shared.unregister(call.tenant, call.route.region)


def _metrics(front: HttpFront, call: HttpCall, _body: Buffer) -> bytes:
    if call.tenant:
        raise Forbidden("the metrics are of all tenants", hint="use the operator's token")
    return front.metrics()


def _document(body: Buffer) -> dict[str, Any]:
    """A JSON object; no body is an empty one."""
    if not body:
        return {}
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"not JSON: {error}", where="body") from None
    if type(document) is not dict:
        raise BadRequest("must be a JSON object", where="body")
    return document
