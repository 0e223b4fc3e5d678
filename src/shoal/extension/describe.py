"""How operations are described in OpenAPI. Schemas are made on demand, not at every start."""

from __future__ import annotations

import json
from typing import Any

from pydantic.json_schema import models_json_schema

from shoal.contract.manifest import JOB, Kind
from shoal.contract.models import ErrorView, View

Responses = dict[int | str, dict[str, Any]]

_EXPLAINED = {
    401: "no token, or one that is not known",
    403: "the token may not do this",
    404: "not found, or another tenant's",
    409: "contradicts the present state",
    410: "was removed for its age",
    413: "the body is over the limit",
    422: "the input is wrong; nothing was stored",
    429: "a limit is reached for now; see Retry-After",
    503: "cannot be done now; the request had no effect",
}

_PREFIX = "#/components/schemas/"
_shown: set[type[View]] = set()
_taken: set[Kind] = set()


def shows(model: type[View], status: int = 200, text: str = "done") -> Responses:
    """An operation answers with this model."""
    _shown.add(model)
    return {status: {"description": text, "content": {"application/json": {"schema": _ref(model.__name__)}}}}


def fails(*statuses: int) -> Responses:
    """An operation may answer with these errors; 401 and 429 are understood."""
    _shown.add(ErrorView)
    content = {"application/json": {"schema": _ref(ErrorView.__name__)}}
    return {status: {"description": _EXPLAINED[status], "content": content} for status in sorted({401, 429, *statuses})}


def takes_manifest(kind: Kind = JOB) -> dict[str, Any]:
    """An operation's body is a manifest."""
    _taken.add(kind)
    content = {
        "application/json": {"schema": _ref(kind.model.__name__)},
        "application/yaml": {"schema": {"type": "string"}},
    }
    return {"required": True, "content": content}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": _PREFIX + name}


def schemas() -> dict[str, Any]:
    """The schemas of everything that was mentioned, by name."""
    template = _PREFIX + "{model}"
    pairs: Any = [(model, "serialization") for model in sorted(_shown, key=lambda model: model.__name__)]
    _, found = models_json_schema(pairs, ref_template=template)
    made: dict[str, Any] = found.get("$defs", {})
    for kind in sorted(_taken, key=lambda kind: kind.name):
        manifest = json.loads(json.dumps(kind.schema()).replace("#/$defs/", _PREFIX))
        inner = manifest.pop("$defs", {})
        for key in ("$schema", "$id"):
            manifest.pop(key, None)
        made = {**made, **inner, kind.model.__name__: manifest}
    return made
