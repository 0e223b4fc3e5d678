"""Services through the clients, against a scripted transport."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import httpx
import pytest

from shoal.core import Invalid, ShoalError, Unavailable
from tests.sdk.test_client import Server, ok

SERVICE = {
    "id": "s-1", "tenant": "red", "name": "ocr", "state": "DEPLOYING", "settled": False, "version": 1,
    "generation": 1, "deployment": 1,
    "replicas": 1, "ready": 0, "priority_class": "guaranteed", "created_at": 1.0, "updated_at": 1.0,
}  # fmt: skip
BUNDLE = "sha256:" + "a" * 64


def state(name: str, text: str | None = None) -> httpx.Response:
    reason = {"code": "x", "text": text} if text else None
    settled = name in ("READY", "FAILED", "STOPPED")
    return ok({**SERVICE, "state": name, "reason": reason, "settled": settled})


def test_a_deployment_carries_a_key_and_is_repeated_with_it() -> None:
    server = Server(httpx.ConnectError("no"), httpx.ReadError("cut"), ok(SERVICE, 201))
    with server.client() as client:
        made = client.services.deploy({"name": "ocr", "models": [{"name": "m", "source": "/srv/m.onnx"}]}, tenant="red")
    assert (made.id, made.state) == ("s-1", "DEPLOYING")
    assert len({request.headers["idempotency-key"] for request in server.requests}) == 1
    assert {request.url.path for request in server.requests} == {"/v1/services"}
    assert server.requests[0].url.params["tenant"] == "red"


def test_models_and_files_are_packed_uploaded_and_named(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"weights")
    (tmp_path / "labels.txt").write_text("a b")
    path = tmp_path / "service.yaml"
    path.write_text("name: ocr\nmodels:\n- {name: m, source: m.onnx}\nfiles: [labels.txt]\n")
    server = Server(ok({"bundle": BUNDLE, "size_bytes": 1}, 201), ok(SERVICE, 201))
    with server.client() as client:
        client.services.deploy(path)
    upload, deployment = server.requests
    with tarfile.open(fileobj=io.BytesIO(upload.content)) as archive:
        assert archive.getnames() == ["labels.txt", "m.onnx"]
    sent = json.loads(deployment.content)
    assert (sent["bundle"], sent["files"], sent["models"][0]["source"]) == (BUNDLE, [], "m.onnx")


def test_what_is_wrong_is_told_before_anything_is_sent(tmp_path: Path) -> None:
    path = tmp_path / "service.yaml"
    path.write_text("name: ocr\nmodels:\n- {name: m, source: m.pkl}\n")
    server = Server()
    with server.client() as client:
        with pytest.raises(Invalid, match="is a pickle") as refused:
            client.services.deploy(path)
        assert refused.value.where == f"{path}:3: models[0].source"
        path.write_text("name: ocr\nmodels:\n- {name: m, source: m.onnx}\n")
        with pytest.raises(Invalid, match=r"no file matches 'm\.onnx'"):
            client.services.deploy(path)
    assert server.requests == []


def test_a_model_that_is_too_large_to_upload_is_told_how(tmp_path: Path) -> None:
    from shoal.contract import bundle

    (tmp_path / "m.onnx").write_bytes(b"x" * 2000)
    with pytest.raises(Invalid, match="over the limit") as refused:
        bundle.pack(tmp_path, ["m.onnx"], limit_bytes=1000, too_much="by its path")
    assert refused.value.hint == "by its path"


def test_waiting_ends_when_it_is_ready_or_will_not_be() -> None:
    server = Server(state("DEGRADED"), state("READY"), state("FAILED", "model m: damaged"), state("STOPPING"))
    with server.client() as client:
        assert client.services.wait_ready("ocr").state == "READY"
        assert [request.url.path for request in server.requests] == ["/v1/services/ocr", "/v1/services/s-1"]
        assert {request.url.params["wait_s"] for request in server.requests} == {"25.0"}
        with pytest.raises(ShoalError, match="service ocr is FAILED: model m: damaged") as failed:
            client.services.wait_ready("ocr")
        assert failed.value.hint == "`shoal explain ocr` tells more"
        with pytest.raises(ShoalError, match="service ocr is STOPPING"):
            client.services.wait_ready("ocr")


def test_waiting_gives_up_in_time_and_says_what_is_missing() -> None:
    server = Server(state("DEPLOYING", "ocr-0-1 waits: needs 2 a100"), state("READY"))
    with server.client() as client:
        with pytest.raises(Unavailable, match="still DEPLOYING after 0 s: ocr-0-1 waits: needs 2 a100"):
            client.services.wait_ready("ocr", timeout_s=0)
        with pytest.raises(Unavailable, match="still READY after 0 s"):
            client.services.wait_stopped("ocr", timeout_s=0)


def test_waiting_for_the_end_of_one_that_was_not_asked_to_end_does_not_rush() -> None:
    server = Server(state("READY"), state("STOPPING"), state("STOPPED"))
    with server.client() as client:
        assert client.services.wait_stopped("ocr").state == "STOPPED"
    assert len(server.requests) == 3


def test_every_request_goes_where_the_server_expects_it() -> None:
    explanation = {"service_id": "s-1", "name": "ocr", "state": "READY", "summary": "READY"}
    server = Server(
        ok({"services": [SERVICE]}), ok(SERVICE), ok(SERVICE), ok(SERVICE), ok(explanation),
        ok({"events": [], "next": 0}), ok({"jobs": []}),
    )  # fmt: skip
    with server.client() as client:
        assert client.services.list(state=["READY"], tenant="red").services[0].name == "ocr"
        client.services.get("a?b")
        client.services.scale("ocr", 3, cause="rush")
        client.services.undeploy("ocr")
        assert client.services.explain("ocr").causes == []
        client.services.event_page("ocr")
        client.jobs(owned=True)
    sent = [(request.method, request.url.raw_path.decode()) for request in server.requests]
    assert sent == [
        ("GET", "/v1/services?tenant=red&state=READY&limit=100"), ("GET", "/v1/services/a%3Fb"),
        ("POST", "/v1/services/ocr/scale?cause=rush"), ("DELETE", "/v1/services/ocr"),
        ("GET", "/v1/services/ocr/explain"), ("GET", "/v1/services/ocr/events?limit=500"),
        ("GET", "/v1/jobs?limit=100&owned=true"),
    ]  # fmt: skip
    assert json.loads(server.requests[2].content) == {"replicas": 3}


def event(seq: int, kind: str, new_state: str, **fields: Any) -> dict[str, Any]:
    return {"seq": seq, "at": 1.0, "kind": kind, "actor": "keeper", "new_state": new_state, **fields}


def test_following_a_service_ends_with_it_and_not_with_a_replica() -> None:
    pages = [
        [event(3, "service.state", "READY"), event(4, "job.state", "CANCELLED", job_id="s-1-0")],
        [event(6, "service.state", "STOPPED")],
    ]
    server = Server(*[ok({"events": page, "next": page[-1]["seq"]}) for page in pages])
    with server.client() as client:
        assert [one.seq for one in client.services.events("ocr", follow=True)] == [3, 4, 6]


async def test_the_async_client_does_the_same(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"weights")
    server = Server(ok({"bundle": BUNDLE, "size_bytes": 1}, 201), ok(SERVICE, 201), state("READY"), ok(SERVICE))
    async with server.async_client() as client:
        made = await client.services.deploy(
            {"name": "ocr", "models": [{"name": "m", "source": "m.onnx"}]}, base=tmp_path
        )
        assert (await client.services.wait_ready(made.id)).state == "READY"
        assert (await client.services.scale("ocr", 2)).name == "ocr"


def test_an_attribute_that_no_package_brings_is_an_error_and_those_brought_are_listed() -> None:
    with Server().client() as client:
        assert {"services", "schedule", "submit"} <= set(dir(client))
        assert client.services is client.services
        with pytest.raises(AttributeError, match="Client has no attribute 'servicse'"):
            _ = client.servicse


def test_the_live_state_is_asked_for() -> None:
    server = Server(httpx.Response(200, text="lines"))
    with server.client() as client:
        assert client.schedule.snapshot() == "lines"
    assert server.requests[0].url.path == "/v1/schedule/snapshot"
