"""Routes that are analysed at their first request answer as FastAPI's own do."""

from __future__ import annotations

from typing import Annotated

import pytest
from fastapi import APIRouter, FastAPI, Query
from starlette.testclient import TestClient

from shoal.extension.routing import LateRoute, Router


def app_of(router: APIRouter) -> FastAPI:
    @router.get("/things/{number}")
    async def thing(number: int, more: Annotated[int, Query(ge=0)] = 0) -> dict[str, int]:
        """One thing."""
        return {"number": number + more}

    @router.post("/things", status_code=201)
    async def make(body: dict[str, int]) -> int:
        return len(body)

    app = FastAPI()
    app.router.routes.extend(router.routes)
    return app


ASKED = [
    ("GET", "/of/things/3?more=4", None), ("GET", "/of/things/3?more=-4", None), ("GET", "/of/things/x", None),
    ("HEAD", "/of/things/3", None), ("PUT", "/of/things", None), ("GET", "/of/nothing", None),
    ("POST", "/of/things", {"a": 1}), ("POST", "/of/things", {"a": "b"}), ("GET", "/openapi.json", None),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "body"), ASKED)
def test_they_answer_as_others(method: str, path: str, body: object) -> None:
    late, at_once = (
        TestClient(app_of(kind(prefix="/of", tags=["x"]))).request(method, path, json=body)
        for kind in (Router, APIRouter)
    )
    assert (late.status_code, late.content, late.headers) == (at_once.status_code, at_once.content, at_once.headers)


def test_only_what_is_asked_for_is_analysed() -> None:
    app = app_of(Router(prefix="/of"))
    late = [route for route in app.routes if isinstance(route, LateRoute)]
    assert len(late) == 2
    assert TestClient(app).get("/of/things/3").json() == {"number": 3}
    assert ["dependant" in vars(route) for route in late] == [True, False]
    with pytest.raises(AttributeError, match="no_such"):
        _ = late[1].no_such  # type: ignore[attr-defined]
