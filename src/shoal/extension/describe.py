"""Descriptions of operations in OpenAPI. Schemas are made on demand, not at every start."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic.json_schema import models_json_schema

from shoal.contract.manifest import JOB, Kind, other_kinds
from shoal.contract.models import ErrorView
from shoal.contract.view import View

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


def shows(model: type[View], status: int = 200, text: str = "done") -> Responses:
    """An operation answers with this model."""
    return {status: {"description": text, "content": {"application/json": {"schema": _ref(model.__name__)}}}}


def fails(*statuses: int) -> Responses:
    """An operation may answer with these errors; 401 and 429 are understood."""
    content = {"application/json": {"schema": _ref(ErrorView.__name__)}}
    return {status: {"description": _EXPLAINED[status], "content": content} for status in sorted({401, 429, *statuses})}


def takes_manifest(kind: Kind = JOB) -> dict[str, Any]:
    """An operation's body is a manifest."""
    content = {
        "application/json": {"schema": _ref(kind.model.__name__)},
        "application/yaml": {"schema": {"type": "string"}},
    }
    return {"required": True, "content": content}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": _PREFIX + name}


def schemas(document: Any) -> dict[str, Any]:
    """The schemas of all that the document refers to, by name: answers are views, bodies are manifests."""
    named = set(_references(document))
    kinds = {kind.model.__name__: kind for kind in (JOB, *other_kinds())}
    views = {model.__name__: model for model in _below(View)}
    pairs: Any = [(views[name], "serialization") for name in sorted(named & views.keys())]
    _, found = models_json_schema(pairs, ref_template=_PREFIX + "{model}")
    made: dict[str, Any] = found.get("$defs", {})
    for name in sorted(named & kinds.keys()):
        manifest = json.loads(json.dumps(kinds[name].schema()).replace("#/$defs/", _PREFIX))
        inner = manifest.pop("$defs", {})
        for key in ("$schema", "$id"):
            manifest.pop(key, None)
        made = {**made, **inner, name: manifest}
    return made


def _references(part: Any) -> Iterator[str]:
    if isinstance(part, Mapping):
        target = part.get("$ref")
        if isinstance(target, str):
            yield target.removeprefix(_PREFIX)
        for inner in part.values():
            yield from _references(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from _references(inner)


def _below(model: type[View]) -> Iterator[type[View]]:
    for one in model.__subclasses__():
        yield one
        yield from _below(one)
