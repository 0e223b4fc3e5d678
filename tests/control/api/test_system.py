from __future__ import annotations

import asyncio
import json
import re

import pytest

from shoal import __version__
from shoal.contract import models
from shoal.contract.pages import Figure, Page, PageList
from tests.control.api.conftest import House

pytestmark = pytest.mark.virtual_time


async def test_every_view_has_exactly_the_fields_that_are_declared(house: House) -> None:
    job = await house.submit(seconds=1.5)
    waiting = await house.submit(resources={"cpus": 500})
    await asyncio.sleep(5)
    async with house.client() as client:
        made = (await client.post("/v1/tenants/red/tokens")).json()
        for path, key, model in (
            (f"/v1/jobs/{job['id']}", None, models.JobDetail),
            (f"/v1/jobs/{job['id']}", "attempts", models.AttemptView),
            ("/v1/jobs", "jobs", models.JobView),
            ("/v1/jobs", None, models.JobList),
            ("/v1/events", "events", models.EventView),
            ("/v1/events", None, models.EventList),
            (f"/v1/jobs/{waiting['id']}/explain", None, models.ExplanationView),
            (f"/v1/jobs/{waiting['id']}/explain", "causes", models.BlockerView),
            ("/v1/tenants", "tenants", models.TenantView),
            ("/v1/tenants/red/tokens", "tokens", models.TokenView),
            ("/v1/nodes", "nodes", models.NodeView),
            ("/v1/secrets?tenant=red", None, models.SecretList),
        ):
            body = (await client.get(path)).json()
            values = body if key is None else body[key]
            for value in values if isinstance(values, list) else [values]:
                assert set(value) == set(model.model_fields), path
                model.model_validate(value)
        assert set(made) == set(models.NewTokenView.model_fields)
        devices = (await client.get("/v1/nodes")).json()["nodes"][0]["devices"]
    assert set(devices[0]) == set(models.DeviceView.model_fields)


async def test_the_description_is_whole_and_every_operation_in_it_is_described(house: House) -> None:
    async with house.client(None) as client:
        text = (await client.get("/openapi.json")).text
    document = json.loads(text)
    schemas = document["components"]["schemas"]
    mentioned = set(re.findall(r'"#/components/schemas/([^"]+)"', text))
    assert mentioned <= set(schemas)
    assert "HTTPValidationError" not in schemas
    assert "JobManifest" in schemas
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert operation["summary"], path
            needs_token = operation["security"] == [{"token": []}]
            assert needs_token == ("401" in operation["responses"]), (method, path)


async def test_status_shows_the_admin_everything_and_a_tenant_its_own(house: House) -> None:
    await house.submit("red", resources={"cpus": 500})
    await house.submit("blue", resources={"cpus": 500})
    async with house.client() as admin, house.client("red") as red:
        whole = models.StatusView.model_validate((await admin.get("/v1/status")).json())
        own = (await red.get("/v1/status")).json()
    assert (whole.version, whole.ready, whole.jobs) == (__version__, True, {"QUEUED": 2})
    assert own["jobs"] == {"QUEUED": 1}
    assert "capabilities" not in own


async def test_pages_are_for_admins_and_for_the_tenant_that_looks(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    on = {one.name: one for one in house.plane.extensions}

    def page(tenant: str | None) -> Page:
        return Page(title="Services", figures=[Figure(name="seen by", value=tenant or "all")])

    def broken(tenant: str | None) -> Page:
        raise RuntimeError(f"no page for {tenant}")

    monkeypatch.setattr(on["serve"], "page", page)
    monkeypatch.setattr(on["schedule"], "page", broken)
    async with house.client() as admin, house.client("red") as red:
        for client, seen in ((admin, "all"), (red, "red")):
            every = PageList.model_validate((await client.get("/v1/pages")).json()).pages
            assert "schedule" not in every, "one that fails leaves the others"
            assert every["serve"].figures[0].value == seen
            assert Page.model_validate((await client.get("/v1/pages/serve")).json()) == every["serve"]
            status = models.StatusView.model_validate((await client.get("/v1/status")).json())
            assert status.components["serve"] == every["serve"].figures
            missing = await client.get("/v1/pages/schedule")
            assert missing.status_code == 404
            assert "serve" in missing.json()["error"]["hint"]


async def test_metrics_count_jobs_waits_and_attempts(house: House) -> None:
    for _ in range(3):
        await house.submit("red", seconds=4, resources={"accelerators": 1})
    await asyncio.sleep(30)
    async with house.client() as admin:
        await admin.get("/v1/jobs/no-such-job")
        text = (await admin.get("/metrics")).text
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert lines['shoal_jobs_submitted_total{tenant="red"}'] == "3.0"
    assert lines['shoal_jobs{state="SUCCEEDED",tenant="red"}'] == "3.0"
    assert lines['shoal_attempts_ended_total{outcome="succeeded",tenant="red"}'] == "3.0"
    assert lines['shoal_queue_wait_seconds_count{tenant="red"}'] == "3.0"
    # Two devices, three jobs: two start at once, the third waits for the first to end.
    assert lines['shoal_queue_wait_seconds_bucket{le="1.0",tenant="red"}'] == "2.0"
    assert lines['shoal_http_requests_total{method="POST",route="/v1/jobs",status="201"}'] == "3.0"
    assert lines['shoal_http_requests_total{method="GET",route="/v1/jobs/{ref}",status="404"}'] == "1.0"
    assert not any("no-such-job" in line for line in lines)


async def test_only_an_admin_drains_a_node_and_a_tenant_sees_why(house: House) -> None:
    async with house.client() as admin, house.client("red") as red:
        (name,) = [node["name"] for node in (await admin.get("/v1/nodes")).json()["nodes"]]
        for act in ("drain", "undrain"):
            refused = await red.post(f"/v1/nodes/{name}/{act}")
            assert refused.status_code == 403
            assert "node" in refused.json()["error"]["what"]
        (node,) = (await admin.post(f"/v1/nodes/{name}/drain", json={"because": "a new fan"})).json()["nodes"]
        assert (node["schedulable"], node["closed"]) == (False, "drained: a new fan")
        assert (await red.get("/v1/nodes")).json()["nodes"][0]["closed"] == "drained: a new fan"
        (node,) = (await admin.post(f"/v1/nodes/{name}/undrain")).json()["nodes"]
        assert (node["schedulable"], node["closed"]) == (True, "")
        assert (await admin.post(f"/v1/nodes/{name}/drain")).json()["nodes"][0]["closed"] == "drained"
        for path, code in ((f"/v1/nodes/{name}x/drain", 404), (f"/v1/nodes/{name}x/undrain", 404)):
            assert (await admin.post(path)).status_code == code
        assert (await admin.post(f"/v1/nodes/{name}/drain", json={"because": "x" * 201})).status_code == 422
