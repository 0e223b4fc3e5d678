from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from shoal.contract import models
from shoal.contract.bundle import pack
from shoal.serve.live.repository import ServiceRepository
from shoal.serve.models import ServiceDetail, ServiceExplanationView, ServiceList, ServiceView
from tests.control.api.conftest import House
from tests.control.simulation import services_of

pytestmark = pytest.mark.virtual_time

MANIFEST = {"name": "ocr", "models": [{"name": "text", "source": "/models/text.onnx"}], "slo": {"p99": "50ms"}}


async def deploy(house: House, who: str = "red", **fields: Any) -> dict[str, Any]:
    async with house.client(who) as client:
        response = await client.post("/v1/services", json={**MANIFEST, **fields})
    assert response.status_code in (200, 201), response.text
    found: dict[str, Any] = response.json()
    return found


async def ready(house: House, ref: str, who: str = "red") -> dict[str, Any]:
    async with house.client(who) as client:
        found: dict[str, Any] = (await client.get(f"/v1/services/{ref}?wait_s=60")).json()
    assert found["state"] == "READY", found
    return found


async def test_a_service_is_accepted_once_stored_and_shown_in_the_declared_shape(house: House) -> None:
    async with house.client("red") as client:
        response = await client.post("/v1/services", content=yaml.safe_dump({**MANIFEST, "kind": "service"}))
        made = response.json()
        assert response.status_code == 201
        assert response.headers["location"] == f"/v1/services/{made['id']}"
        assert (made["tenant"], made["state"], made["replicas"], made["slo_p99_s"]) == ("red", "DEPLOYING", 1, 0.05)
        assert ServiceRepository(house.plane.store).service(made["id"]) is not None
        shown = await ready(house, "ocr")
        assert (await client.get(response.headers["location"])).json()["id"] == made["id"]
    assert set(made) == set(ServiceView.model_fields)
    assert set(shown) == set(ServiceDetail.model_fields)
    detail = ServiceDetail.model_validate(shown)
    assert (detail.ready, detail.generation, detail.reason) == (1, 1, None)
    assert [(one.name, one.ready, one.state) for one in detail.members] == [("ocr-0-1", True, "RUNNING")]
    assert detail.endpoints is not None
    assert detail.endpoints.http == "http://127.0.0.1:1"
    assert detail.manifest["models"][0]["source"] == "/models/text.onnx"


async def test_deploying_again_updates_and_the_same_key_does_it_once(house: House) -> None:
    async with house.client("red") as client:
        first = await client.post("/v1/services", json=MANIFEST, headers={"Idempotency-Key": "k"})
        again = await client.post("/v1/services", json=MANIFEST, headers={"Idempotency-Key": "k"})
        changed = {**MANIFEST, "env": {"A": "b"}}
        clash = await client.post("/v1/services", json=changed, headers={"Idempotency-Key": "k"})
        update = await client.post("/v1/services", json=changed)
        listed = (await client.get("/v1/services")).json()["services"]
    assert [one.status_code for one in (first, again, clash, update)] == [201, 200, 409, 200]
    assert first.json()["id"] == again.json()["id"] == update.json()["id"]
    assert (update.json()["generation"], update.json()["deployment"]) == (2, 2)
    assert len(listed) == 1


async def test_a_wrong_manifest_is_refused_with_every_problem_and_nothing_is_stored(house: House) -> None:
    text = "name: OCR\nmodels:\n- {name: a, source: a.pkl}\nroutes:\n  b: {shares: {1: 1.0}}\n"
    async with house.client("red") as client:
        response = await client.post("/v1/services", content=text)
        job = await client.post("/v1/jobs", json={**MANIFEST, "kind": "service"})
        service = await client.post("/v1/services", json={"name": "x", "kind": "job", "command": ["true"]})
    error = models.ErrorView.model_validate(response.json()).error
    assert response.status_code == 422
    assert [(problem.where or "").removeprefix("manifest:") for problem in error.problems] == [
        "1: name", "3: models[0].source", "5: routes.b",
    ]  # fmt: skip
    assert "this is a service" in job.text
    assert "this is a job" in service.text
    assert services_of(house.plane).live() == []


async def test_files_have_to_be_uploaded_first(house: House, tmp_path: Path) -> None:
    (tmp_path / "text.onnx").write_text("a model")
    async with house.client("red") as client:
        local = {**MANIFEST, "models": [{"name": "text", "source": "text.onnx"}]}
        refused = await client.post("/v1/services", json=local)
        assert refused.status_code == 422
        assert refused.json()["error"]["where"] == "files"
        bundle = (await client.post("/v1/bundles", content=pack(tmp_path, ["text.onnx"]))).json()["bundle"]
        accepted = await client.post("/v1/services", json={**local, "bundle": bundle})
    assert accepted.status_code == 201
    found = await ready(house, "ocr")
    job = house.plane.job(found["members"][0]["job_id"])
    assert bundle in job.manifest


async def test_a_dry_run_takes_services_and_tells_what_would_be(house: House) -> None:
    async with house.client("red") as client:
        greedy = {**MANIFEST, "models": [{"name": "m", "source": "m.onnx"}], "resources": {"accelerators": "tpu:3"}}
        checked = await client.post("/v1/service-manifests/check", json={**greedy, "secrets": ["HUB"]})
        schema = await client.get("/v1/service-manifests/schema")
    view = models.CheckView.model_validate(checked.json())
    assert (view.name, view.tenant) == ("ocr", "red")
    assert [remark.code for remark in view.remarks] == ["impossible", "secret-missing"]
    assert schema.json()["title"] == "Shoal service manifest"
    assert services_of(house.plane).live() == []


async def test_scaling_and_undeploying(house: House) -> None:
    made = await deploy(house)
    async with house.client("red") as client:
        scaled = await client.post("/v1/services/ocr/scale?cause=rush", json={"replicas": 2})
        assert (scaled.status_code, scaled.json()["replicas"]) == (200, 2)
        assert (await ready(house, "ocr"))["ready"] == 2
        for body in ({"replicas": -1}, {"replicas": 1001}, {}, {"replicas": 1, "x": 2}):
            assert (await client.post("/v1/services/ocr/scale", json=body)).status_code == 422
        gone = await client.delete("/v1/services/ocr")
        assert gone.json()["state"] == "STOPPING"
        stopped = (await client.get(f"/v1/services/{made['id']}?wait_s=60")).json()
        assert (stopped["state"], stopped["members"]) == ("STOPPED", [])
        assert (await client.delete("/v1/services/ocr")).json()["state"] == "STOPPED"
        assert (await client.post("/v1/services/ocr/scale", json={"replicas": 1})).status_code == 409
        assert (await client.get("/v1/services")).json()["services"] == []
        past = (await client.get("/v1/services?state=STOPPED")).json()["services"]
        assert [one["id"] for one in past] == [made["id"]]


async def test_a_tenant_sees_and_changes_only_its_own(house: House) -> None:
    made = await deploy(house, "red")
    async with house.client("blue") as client:
        for method, path in (
            ("GET", ""), ("DELETE", ""), ("GET", "/explain"), ("GET", "/events"), ("POST", "/scale"),
        ):  # fmt: skip
            for ref in ("ocr", made["id"]):
                body = {"replicas": 0} if path == "/scale" else None
                response = await client.request(method, f"/v1/services/{ref}{path}", json=body)
                assert response.status_code == 404, (method, path, ref)
        assert (await client.get("/v1/services")).json()["services"] == []
        assert (await client.get("/v1/services?tenant=red")).status_code == 404
        assert (await client.post("/v1/services?tenant=red", json=MANIFEST)).status_code == 403
    await deploy(house, "blue")
    async with house.client("admin") as client:
        assert (await client.get("/v1/services/ocr")).status_code == 409
        assert (await client.get("/v1/services/ocr?tenant=red")).json()["id"] == made["id"]
        assert len((await client.get("/v1/services")).json()["services"]) == 2
    async with house.client(None) as client:
        assert (await client.get("/v1/services")).status_code == 401


async def test_replicas_are_jobs_that_listings_leave_out_unless_asked(house: House) -> None:
    made = await deploy(house)
    await ready(house, "ocr")
    job = await house.submit("red", "train", 1000)
    async with house.client("red") as client:
        assert [one["id"] for one in (await client.get("/v1/jobs")).json()["jobs"]] == [job["id"]]
        everything = (await client.get("/v1/jobs?owned=true")).json()["jobs"]
        assert {one["owner_id"] for one in everything} == {None, made["id"]}
        replica = (await client.get("/v1/jobs/ocr-0-1")).json()
        assert replica["id"] == f"{made['id']}-0"
        assert (await client.post(f"/v1/jobs/{replica['id']}/suspend")).status_code == 409


async def test_why_it_is_not_ready(house: House) -> None:
    await house.submit("red", "hog", 10_000, resources={"accelerators": 2}, priority_class="guaranteed")
    await asyncio.sleep(2)
    await deploy(house, resources={"accelerators": 1})
    await asyncio.sleep(2)
    async with house.client("red") as client:
        found = ServiceExplanationView.model_validate((await client.get("/v1/services/ocr/explain")).json())
        listed = ServiceList.model_validate((await client.get("/v1/services")).json()).services
    assert found.summary.startswith("DEPLOYING: 0 of 1 replica ready: ocr-0-1 waits: needs 1 a100, 0 free")
    assert [(cause.subject, cause.reason.code) for cause in found.causes] == [("replica ocr-0-1", "shape")]
    assert found.causes[0].change.endswith("ends")
    assert listed[0].reason is not None
    assert listed[0].reason.code == "waiting"


async def test_a_job_behind_a_service_is_promised_no_start(house: House) -> None:
    """Not even where its tenant's jobs are short: a replica ends only when somebody takes it back."""
    async with house.client("red") as client:
        for at in range(3):
            short = await house.submit("red", f"short{at}", 1.0)
            await client.get(f"/v1/jobs/{short['id']}?wait_s=60")
        await deploy(house, resources={"accelerators": 2})
        await ready(house, "ocr")
        waiting = await house.submit("red", "late", resources={"accelerators": 2})
        for _ in range(2):
            await asyncio.sleep(200)
            found = models.ExplanationView.model_validate(
                (await client.get(f"/v1/jobs/{waiting['id']}/explain")).json()
            )
            assert (found.estimated_start, found.estimate) == (None, "service ocr holds it")
            assert found.summary == "waits: needs 2 a100 on one node, 0 free; service ocr holds it"
            (shape,) = [cause for cause in found.causes if cause.blocking]
            assert shape.change == "scale or undeploy service ocr, or ask for less"
        await client.post("/v1/services/ocr/scale", json={"replicas": 0})
        await asyncio.sleep(60)
        assert (await client.get(f"/v1/jobs/{waiting['id']}")).json()["state"] == "SUCCEEDED"


async def test_its_events_are_its_own_and_its_replicas_and_end_with_it(house: House) -> None:
    made = await deploy(house)
    await ready(house, "ocr")
    async with house.client("red") as client:
        page = models.EventList.model_validate((await client.get("/v1/services/ocr/events")).json())
    kinds = [event.kind for event in page.events]
    assert kinds[0] == "service.deployed"
    assert "job.submitted" in kinds
    assert kinds[-1] == "service.state"
    assert {event.owner_id for event in page.events} == {made["id"]}
    path = f"/v1/services/{made['id']}/events"
    async with house.stream(path, "red", f"follow=true&after={page.next}") as stream:
        await stream.until(f"from {page.next}")
        async with house.client("red") as client:
            await client.delete("/v1/services/ocr?cause=over")
        text = (await stream.rest()).decode()
    assert '"new_state":"STOPPED"' in text.split("event: ")[-1]
    assert "over" in text


async def test_waiting_answers_when_it_is_settled_and_not_later(house: House) -> None:
    await deploy(house)
    began = house.plane.clock.now()
    async with house.client("red") as client:
        early = (await client.get("/v1/services/ocr?wait_s=0.5")).json()
        assert early["state"] == "DEPLOYING"
        await ready(house, "ocr")
        assert house.plane.clock.now() - began < 10
        await client.post("/v1/services", json={**MANIFEST, "models": [{"name": "text", "source": "/broken.onnx"}]})
        failed = (await client.get("/v1/services/ocr?wait_s=60")).json()
    assert failed["state"] == "DEGRADED"
    assert failed["reason"]["code"] == "model"


async def test_services_have_figures_for_prometheus(house: House) -> None:
    await deploy(house)
    await ready(house, "ocr")
    async with house.client("admin") as client:
        text = (await client.get("/metrics")).text
        status = (await client.get("/v1/status")).json()
    assert 'shoal_services{state="READY",tenant="red"} 1.0' in text
    assert 'shoal_service_ready_replicas{service="ocr",tenant="red"} 1.0' in text
    assert 'state="READY"' not in "".join(line for line in text.splitlines() if "shoal_job_steps" in line)
    assert [(one["name"], one["value"]) for one in status["components"]["serve"]] == [("services", 1)]
