"""Who may do and see what."""

from __future__ import annotations

import asyncio

import pytest

from shoal.contract.models import ErrorView
from tests.control.api.conftest import House

pytestmark = pytest.mark.virtual_time

_SAMPLE = (
    "GET /v1/jobs", "POST /v1/jobs", "GET /v1/events?follow=true", "GET /metrics", "GET /v1/jobs/j-1",
    "DELETE /v1/tokens/tok-red",
)  # fmt: skip
_ON_A_JOB = (
    "GET /", "GET /logs", "GET /events", "GET /metrics", "GET /explain", "POST /cancel", "POST /suspend",
    "POST /resume",
)  # fmt: skip


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer  ", "Basic abc", "Bearer shoal_red_unknown", "Bearer é"]
)
async def test_without_a_valid_token_nothing_is_said(house: House, header: str | None) -> None:
    headers = {} if header is None else {"authorization": header.encode()}
    async with house.client(None) as client:
        for request in _SAMPLE:
            method, path = request.split()
            response = await client.request(method, path, headers=headers)
            assert response.status_code == 401, path
            assert response.headers["www-authenticate"].startswith("Bearer")
            assert ErrorView.model_validate(response.json()).error.code == "unauthenticated"


async def test_health_and_schema_need_no_token(house: House) -> None:
    async with house.client(None) as client:
        for path in ("/healthz", "/readyz", "/openapi.json", "/v1/manifests/schema"):
            assert (await client.get(path)).status_code == 200, path


async def test_another_tenants_job_does_not_exist(house: House) -> None:
    job = (await house.submit("red", name="secret-plan", seconds=100))["id"]
    async with house.client("blue") as client:
        for ref in (job, job[:8], "secret-plan"):
            for request in _ON_A_JOB:
                method, path = request.split()
                response = await client.request(method, f"/v1/jobs/{ref}{path.removesuffix('/')}")
                assert response.status_code == 404, (ref, path)
                assert response.json()["error"]["what"] == f"there is no job {ref!r}"
        assert (await client.get("/v1/jobs")).json()["jobs"] == []
        assert (await client.get("/v1/jobs?tenant=red")).status_code == 404
        seen = (await client.get("/v1/events")).json()["events"]
        assert {event["tenant"] for event in seen} == {"blue"}


async def test_a_tenant_sees_that_devices_are_taken_but_not_by_whom(house: House) -> None:
    mine = await house.submit("red", seconds=100, resources={"accelerators": 1})
    await house.submit("blue", seconds=100, resources={"accelerators": 1})
    async with house.client("red") as client:
        await client.get(f"/v1/jobs/{mine['id']}?wait_s=1")
        devices = (await client.get("/v1/nodes")).json()["nodes"][0]["devices"]
    async with house.client() as admin:
        all_of_them = (await admin.get("/v1/nodes")).json()["nodes"][0]["devices"]
    assert [device["free"] for device in devices] == [False, False]
    assert {device["job_id"] for device in devices} == {mine["id"], None}
    assert {device["tenant"] for device in all_of_them} == {"red", "blue"}


async def test_a_tenant_learns_that_it_waits_for_another_tenants_job_but_not_for_which(house: House) -> None:
    others = await house.submit("blue", seconds=100, expected_runtime="100s", resources={"accelerators": 1})
    own = await house.submit("red", seconds=50, expected_runtime="50s", resources={"accelerators": 1})
    await asyncio.sleep(1)
    waiting = (await house.submit("red", seconds=1, resources={"accelerators": 2}))["id"]
    await asyncio.sleep(1)
    urls = (f"/v1/jobs/{waiting}/explain", f"/v1/jobs/{waiting}", "/v1/jobs", "/v1/jobs?fold=true")
    async with house.client("red") as red, house.client() as admin:
        for url in urls:
            told, all_of_it = (await red.get(url)).text, (await admin.get(url)).text
            assert others["id"] not in told, url
            assert others["id"] in all_of_it, url
            assert "another tenant's job" in told, url
            assert own["id"] in told, url
        explained = (await red.get(urls[0])).json()
        assert "starts when jobs" in explained["summary"]
        assert explained["job_id"] == waiting


async def test_a_tenants_token_cannot_act_for_another_or_as_admin(house: House) -> None:
    async with house.client("red") as client:
        for response in (
            await client.post("/v1/jobs?tenant=blue", json={"name": "x", "command": ["run"]}),
            await client.post("/v1/jobs", json={"name": "x", "command": ["run"], "tenant": "blue"}),
            await client.post("/v1/tenants", json={"name": "green"}),
            await client.patch("/v1/tenants/red", json={"weight": 100}),
            await client.post("/v1/tenants/red/tokens"),
            await client.get("/v1/secrets?tenant=blue"),
            await client.put("/v1/secrets/key?tenant=blue", json={"value": "v"}),
            await client.get("/metrics"),
        ):
            assert response.status_code == 403, response.request.url
            assert response.json()["error"]["code"] == "forbidden"
        for response in (
            await client.get("/v1/tenants/blue"),
            await client.get("/v1/tenants/blue/tokens"),
            await client.delete("/v1/tokens/tok-blue"),
            await client.delete("/v1/tokens/tok-admin"),
        ):
            assert response.status_code == 404
        assert [one["name"] for one in (await client.get("/v1/tenants")).json()["tenants"]] == ["red"]


async def test_the_admin_acts_for_any_tenant_by_parameter_or_manifest_but_not_two_at_once(house: House) -> None:
    manifest = {"name": "x", "command": ["run"]}
    async with house.client() as admin:
        by_parameter = await admin.post("/v1/jobs?tenant=red", json=manifest)
        by_manifest = await admin.post("/v1/jobs", json={**manifest, "tenant": "blue"})
        both = await admin.post("/v1/jobs?tenant=red", json={**manifest, "tenant": "blue"})
        nobody = await admin.post("/v1/jobs?tenant=green", json=manifest)
    assert by_parameter.json()["tenant"] == "red"
    assert by_manifest.json()["tenant"] == "blue"
    assert both.status_code == 422
    assert nobody.status_code == 404


async def test_a_new_token_opens_at_once_and_a_revoked_one_no_more(house: House) -> None:
    async with house.client() as admin:
        made = (await admin.post("/v1/tenants/red/tokens", json={"label": "laptop"})).json()
        assert made["token"].startswith("shoal_red_")
        headers = {"authorization": f"Bearer {made['token']}"}
        async with house.client(None) as client:
            assert (await client.get("/v1/jobs", headers=headers)).status_code == 200
            assert (await admin.delete(f"/v1/tokens/{made['id']}")).status_code == 204
            assert (await client.get("/v1/jobs", headers=headers)).status_code == 401
        listed = (await admin.get("/v1/tenants/red/tokens")).json()["tokens"]
    assert [token["revoked_at"] is not None for token in listed if token["id"] == made["id"]] == [True]
    assert all("token" not in token for token in listed)
    stored = house.plane.store.tokens()
    assert all(made["token"] not in repr(token) for token in stored)


async def test_the_last_admin_token_cannot_be_revoked(house: House) -> None:
    async with house.client() as admin:
        assert (await admin.delete("/v1/tokens/tok-admin")).status_code == 409
        assert (await admin.get("/v1/jobs")).status_code == 200


async def test_tenants_are_made_changed_and_limits_lifted_one_by_one(house: House) -> None:
    async with house.client() as admin:
        made = await admin.post("/v1/tenants", json={"name": "green", "weight": 2, "quota": {"cpu_milli": 4000}})
        assert made.status_code == 201
        assert (await admin.post("/v1/tenants", json={"name": "green"})).status_code == 409
        assert (await admin.post("/v1/tenants", json={"name": "admin"})).status_code == 422
        wish = {"quota": {"cpu_milli": None, "by_type": {"a100": 4}}, "max_priority_class": "best-effort"}
        changed = await admin.patch("/v1/tenants/green", json=wish)
        shown = (await admin.get("/v1/tenants/green")).json()
        assert (await admin.patch("/v1/tenants/nobody", json={"weight": 2})).status_code == 404
    assert changed.json() == shown
    assert shown["weight"] == 2
    assert shown["quota"]["cpu_milli"] is None
    assert shown["quota"]["by_type"] == {"a100": 4}
    assert shown["max_priority_class"] == "best-effort"
    assert shown["sandbox"] == "none"


async def test_a_sandbox_that_the_engine_cannot_give_is_refused_and_changes_nothing(house: House) -> None:
    async with house.client() as admin:
        refused = await admin.post("/v1/tenants", json={"name": "green", "sandbox": "user"})
        assert refused.status_code == 503
        assert refused.json()["error"]["where"] == "sandbox"
        assert (await admin.get("/v1/tenants/green")).status_code == 404
        assert (await admin.post("/v1/tenants", json={"name": "green", "sandbox": "jail"})).status_code == 422
        assert (await admin.post("/v1/tenants", json={"name": "green"})).status_code == 201
        assert (await admin.patch("/v1/tenants/green", json={"sandbox": "bubblewrap"})).status_code == 503
        assert (await admin.get("/v1/tenants/green")).json()["sandbox"] == "none"


async def test_secrets_are_set_listed_by_name_and_deleted_but_never_shown(house: House) -> None:
    async with house.client("red") as client:
        assert (await client.put("/v1/secrets/key", json={"value": "hunter2"})).status_code == 204
        listed = await client.get("/v1/secrets")
        assert [one["name"] for one in listed.json()["secrets"]] == ["key"]
        assert "hunter2" not in listed.text
        assert (await client.delete("/v1/secrets/key")).status_code == 204
        assert (await client.delete("/v1/secrets/key")).status_code == 404
        assert (await client.put("/v1/secrets/bad name", json={"value": "v"})).status_code == 422
        events = (await client.get("/v1/events")).text
    assert "hunter2" not in events
