from __future__ import annotations

import io
import json
from collections.abc import Sequence

import httpx
import pytest
from fastapi import FastAPI

from shoal.contract.models import ErrorView
from shoal.control import logsetup
from shoal.control.api import errors
from shoal.control.api.edge import Edge
from shoal.control.api.prometheus import Metrics
from shoal.control.extensions.loaded import Chosen, Extensions
from shoal.control.tokens import Unauthenticated
from shoal.core import Capability, Conflict, Forbidden, Invalid, NotFound, Overloaded, ShoalError, Unavailable
from shoal.extension import Extension, Section
from tests.control.api.conftest import House


@pytest.mark.parametrize(
    ("error", "status", "headers"),
    [
        (Invalid("w", where="f", hint="h", problems=(Invalid("p", where="q"),)), 422, {}),
        (NotFound("w"), 404, {}),
        (Conflict("w"), 409, {}),
        (Forbidden("w"), 403, {}),
        (Unauthenticated("w"), 401, {"www-authenticate": 'Bearer realm="shoal"'}),
        (errors.BodyTooLarge("w"), 413, {}),
        (Overloaded("w", retry_after_s=7.2), 429, {"retry-after": "7"}),
        (Unavailable("w"), 503, {"retry-after": "1"}),
        (ShoalError("w"), 500, {}),
    ],
)
async def test_each_error_has_its_status_and_all_have_one_shape(
    error: ShoalError, status: int, headers: dict[str, str]
) -> None:
    app = FastAPI()
    errors.install(app)

    @app.get("/")
    async def fail() -> None:
        raise error

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x") as client:
        response = await client.get("/")
    body = ErrorView.model_validate(response.json()).error
    assert response.status_code == status
    assert (body.code, body.what, body.where, body.hint) == (error.code, error.what, error.where, error.hint)
    assert len(body.problems) == (1 if status == 422 else 0)
    assert {name: response.headers[name] for name in headers} == headers


async def test_what_nobody_caught_is_a_500_whose_id_is_in_the_log_and_nothing_else_is_told() -> None:
    log = io.StringIO()
    logsetup.configure("info", stream=log)
    app, metrics = FastAPI(), Metrics()
    errors.install(app)
    app.add_middleware(Edge, metrics=metrics)
    token = "shoal_red_" + "x" * 43

    @app.get("/")
    async def fail() -> None:
        raise RuntimeError(f"inner figures and {token}")

    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        response = await client.get("/")
    error = ErrorView.model_validate(response.json()).error
    (line,) = log.getvalue().splitlines()
    entry = json.loads(line)
    assert response.status_code == 500
    assert entry["error_id"] in error.what
    assert "inner figures" not in response.text
    assert "inner figures" in entry["exception"]
    assert token not in line
    assert 'status="500"' in metrics.render().decode()


@pytest.mark.virtual_time
async def test_wrong_requests_name_the_place_that_is_wrong(house: House) -> None:
    async with house.client() as client:
        limit = await client.get("/v1/jobs?limit=many")
        state = await client.get("/v1/jobs?state=ASLEEP")
        weight = await client.post("/v1/tenants", json={"name": "x", "weight": -1, "quota": {"cpus": 3}})
        broken = await client.post("/v1/tenants", content=b"{", headers={"content-type": "application/json"})
        nowhere = await client.get("/v1/nothing")
        method = await client.delete("/v1/jobs")
    assert [response.status_code for response in (limit, state, weight, broken)] == [422] * 4
    assert limit.json()["error"]["where"] == "?limit"
    assert state.json()["error"]["where"] == "?state"
    assert [problem["where"] for problem in weight.json()["error"]["problems"]] == ["weight", "quota.cpus"]
    assert (nowhere.status_code, nowhere.json()["error"]["code"]) == (404, "not-found")
    assert (method.status_code, method.json()["error"]["code"]) == (405, "method-not-allowed")


@pytest.mark.virtual_time
async def test_a_body_over_the_limit_is_refused_whether_or_not_it_says_its_length(house: House) -> None:
    async def pieces() -> object:
        for _ in range(20):
            yield b"#" * 1000

    async with house.client("red") as client:
        declared = await client.post("/v1/jobs", content=b"#" * 20_000)
        chunked = await client.post("/v1/jobs", content=pieces())  # type: ignore[arg-type]
    assert declared.status_code == chunked.status_code == 413
    assert declared.json()["error"]["code"] == "too-large"


@pytest.mark.virtual_time
async def test_a_server_that_is_not_open_says_so_and_is_alive_all_the_same(house: House) -> None:
    house.plane.ready = False
    async with house.client() as client:
        assert (await client.get("/v1/jobs")).status_code == 503
        assert (await client.post("/v1/jobs", json={})).status_code == 503
        assert (await client.get("/readyz")).status_code == 503
        assert (await client.get("/healthz")).status_code == 200
    house.plane.ready = True


async def test_what_is_off_says_so_and_how_it_is_switched_on() -> None:
    class Silent(Extension):
        name = "silent"
        paths = ("/v1/silent", "/v1/hush")

    class Telling(Silent):
        name = "telling"
        paths = ("/v1/telling",)

        @classmethod
        def off(cls) -> Sequence[Capability]:
            return (Capability("telling", False, "off: `shoal up --tell`", "nothing is told"),)

    app = FastAPI()
    errors.install(app)
    off = [Chosen(kind, Section(enabled=False)) for kind in (Silent, Telling)]
    app.state.extensions = Extensions(off)
    said = {}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shoal") as client:
        for path in ("/v1/hush/1", "/v1/telling", "/v1/other"):
            response = await client.get(path)
            assert response.status_code == 404
            error = response.json()["error"]
            said[path] = (error["what"], error["hint"])
    assert said == {
        "/v1/hush/1": ("silent is off on this server", "`shoal up --set silent.enabled=on`"),
        "/v1/telling": ("telling is off on this server", "`shoal up --tell`"),
        "/v1/other": ("there is nothing at /v1/other", "see /openapi.json"),
    }
