"""One gateway with replica processes and several tenants, asked through its public doors."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from onnx import TensorProto, helper, numpy_helper
from tritonclient.utils import InferenceServerException

from shoal.base.http import Limits
from shoal.core import Conflict, Forbidden, Invalid, Money
from shoal.inference.errors import BadModel, BadRequest, ModelFailed
from shoal.inference.types import ModelSpec
from shoal.serve.contract import Address, held
from shoal.serve.errors import BodyTooLarge, DeadlineMissed, NotReady, RateLimited, UnknownModel
from shoal.serve.gateway.process import GatewayProcess
from shoal.serve.gateway.standalone import Standalone
from shoal.serve.types import PriorityClass, Route
from tests.serve import models, usage_file
from tests.serve.client import InferenceClient
from tests.serve.gateway_kit import (
    ENDS_WITHIN_S,
    ONE,
    Live,
    Load,
    eventually,
    kill,
    lets_nobody_in,
    service,
    standalone,
)
from tests.serve.registry_kit import ended

TOKENS = {name: f"{name}s-token" for name in ("ada", "bob", "cleo", "dora")}
HIDDEN, STEPS, FEATURES = 256, 96, 32


def recurrent(path: Path) -> Path:
    """An LSTM's last state: x: FP32 [n, 96, 32], y: FP32 [n, 256]."""
    rng = np.random.default_rng(0)
    weights = [rng.normal(0, 0.1, (1, 4 * HIDDEN, width)).astype(np.float32) for width in (FEATURES, HIDDEN)]
    graph = helper.make_graph(
        [
            helper.make_node("Transpose", ["x"], ["steps"], perm=[1, 0, 2]),
            helper.make_node("LSTM", ["steps", "w", "r"], ["", "last"], hidden_size=HIDDEN),
            helper.make_node("Squeeze", ["last", "axis"], ["y"]),
        ],
        "recurrent",
        [models.value("x", TensorProto.FLOAT, ["n", STEPS, FEATURES])],
        [models.value("y", TensorProto.FLOAT, ["n", HIDDEN])],
        [numpy_helper.from_array(array, name) for array, name in zip(weights, "wr", strict=True)]
        + [numpy_helper.from_array(np.array([0]), "axis")],
    )
    return models.save(graph, path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("live")


@pytest.fixture(scope="module")
def live(folder: Path) -> Iterator[Live]:
    """`ada` has versions of a linear model with a canary and a shadow, and an LSTM; `bob` a linear model of the same
    name, one that fails on some inputs and one that kills its replica; `cleo` little memory; `dora` a rate limit and a
    damaged model."""

    def linear(name: str, seed: int) -> str:
        return str(models.linear(folder / f"{name}.onnx", seed=seed))

    for at in range(3):
        models.heavy(folder / f"heavy{at}.onnx", 8)
    (folder / "damaged.onnx").write_bytes(b"not a model")
    services = [
        service(
            "vision", [
                *(ModelSpec("linear", linear(f"v{at}", at), version=str(at)) for at in (1, 2, 3)),
                ModelSpec("lstm", str(recurrent(folder / "lstm.onnx")), max_batch=16, warmup=6),
            ],
            tenant="ada", routes=(("linear", Route((("1", 0.75), ("2", 0.25)), shadow="3", shadow_share=0.5)),),
        ),
        service(
            "text", [
                ModelSpec("linear", linear("bob", 7)),
                ModelSpec("gather", str(models.gather(folder / "gather.onnx"))),
                models.callable_spec("vanish"), models.callable_spec("nap"), models.wait_for_spec(),
            ],
            tenant="bob",
        ),
        service(
            "many", [ModelSpec(f"heavy{at}", str(folder / f"heavy{at}.onnx")) for at in range(3)],
            tenant="cleo", memory_bytes=30 << 20,
        ),
        service(
            "limited", [models.callable_spec("nap"), ModelSpec("damaged", str(folder / "damaged.onnx"))],
            tenant="dora", rate_limit=0.001, burst_s=0.05, priority_class=PriorityClass.BEST_EFFORT,
        ),
    ]  # fmt: skip
    with standalone(
        folder, services, tokens=TOKENS, admin_token="root", price_per_hour=Money.usd(3600), wait=False
    ) as found:
        for service_id in ("ada.vision", "bob.text", "cleo.many"):
            eventually(lambda service_id=service_id: found.service(service_id).ready)
        eventually(lambda: any(replica.failed for replica in found.service("dora.limited").replicas))
        yield found


@pytest.fixture
def ada(live: Live) -> InferenceClient:
    return live.client(TOKENS["ada"])


@pytest.fixture
def bob(live: Live) -> InferenceClient:
    return live.client(TOKENS["bob"])


@pytest.fixture
def cleo(live: Live) -> InferenceClient:
    return live.client(TOKENS["cleo"])


@pytest.fixture
def dora(live: Live) -> InferenceClient:
    return live.client(TOKENS["dora"])


@pytest.fixture
def admin(live: Live) -> InferenceClient:
    return live.client("root")


def counts(client: InferenceClient, model: str, version: str | None = None) -> dict[str, int]:
    (found,) = client.statistics(model, version)
    return {
        "executions": found["execution_count"],
        **{name: found["inference_stats"][name]["count"] for name in ("success", "fail")},
    }


# --- tenants ---


def test_a_tenant_sees_and_calls_only_its_own_models(ada: InferenceClient, bob: InferenceClient) -> None:
    assert {entry["name"] for entry in ada.index()} == {"linear", "lstm"}
    assert {entry["name"] for entry in bob.index()} == {"linear", "gather", "vanish", "nap", "wait_for"}
    w, b = models.linear_weights(7)
    np.testing.assert_allclose(bob.infer("linear", {"x": ONE})["y"], ONE @ w + b, rtol=1e-5)
    for call in (
        lambda: ada.infer("gather", {"x": np.array([1])}), lambda: ada.metadata("gather"),
        lambda: ada.statistics("gather"), lambda: ada.load("gather"), lambda: ada.unload("gather"),
        lambda: ada.model_ready("gather"),
    ):  # fmt: skip
        with pytest.raises(UnknownModel, match="there is no model 'gather'"):
            call()


def test_without_a_good_token_nothing_is_seen(live: Live) -> None:
    for token in (None, "wrong", ""):
        with pytest.raises(Forbidden):
            live.client(token).infer("linear", {"x": ONE})
        with pytest.raises(Forbidden):
            live.client(token).index()


def test_the_admin_sees_all_and_says_whose_it_means(admin: InferenceClient) -> None:
    assert len(admin.index()) == 4 + 5 + 3 + 2
    assert admin.infer("gather", {"x": np.array([3])})["y"][0] == 3
    with pytest.raises(UnknownModel, match="several tenants have a model 'linear': ada, bob"):
        admin.infer("linear", {"x": ONE})


# --- unmodified clients ---


def test_triton_clients_need_not_know(live: Live) -> None:
    w, b = models.linear_weights(2)
    for kind, port in ((tritonclient.http, live.process.http.port), (tritonclient.grpc, live.process.grpc.port)):
        headers = {"authorization": f"Bearer {TOKENS['ada']}"}  # the HTTP client adds its own
        with kind.InferenceServerClient(f"127.0.0.1:{port}") as client:
            assert client.is_server_live()
            given = kind.InferInput("x", [2, 4], "FP32")
            given.set_data_from_numpy(np.ones((2, 4), np.float32))
            for version in ("", "2"):
                assert client.is_model_ready("linear", version, headers=headers)
            answer = client.infer("linear", [given], "2", headers=headers)
            np.testing.assert_allclose(answer.as_numpy("y"), np.ones((2, 4)) @ w + b, rtol=1e-5)
            with pytest.raises(InferenceServerException, match="there is no version '9'"):
                client.infer("linear", [given], "9", headers=headers)
            with pytest.raises(InferenceServerException, match="needs a token"):
                client.infer("linear", [given])


# --- versions ---


def test_canary_shares_are_exact_and_a_shadow_sees_its_part(ada: InferenceClient) -> None:
    before = counts(ada, "linear", "3")["success"]
    answers = [ada.infer("linear", {"x": ONE}) for _ in range(40)]
    assert Counter(answer.version for answer in answers) == {"1": 30, "2": 10}
    for answer in answers:
        w, b = models.linear_weights(int(answer.version))
        np.testing.assert_allclose(answer["y"], ONE @ w + b, rtol=1e-5)
    eventually(lambda: counts(ada, "linear", "3")["success"] == before + 20)
    assert ada.infer("linear", {"x": ONE}, version="3").version == "3"
    assert ada.metadata("linear")["versions"] == ["1", "2", "3"]


# --- batches ---


def test_requests_to_a_recurrent_model_are_put_together(live: Live, ada: InferenceClient) -> None:
    (member,) = live.gateway.replica_set.of("ada.vision")
    replica = member.replica
    rng = np.random.default_rng(1)
    inputs = rng.normal(size=(48, 1, STEPS, FEATURES)).astype(np.float32)
    alone = [ada.infer("lstm", {"x": each})["y"] for each in inputs]
    before = counts(ada, "lstm")
    # What a quiet machine measures; on a busy one a pause may have said that batches do not pay.
    profile = live.gateway._profiles.of("ada/lstm/1")
    single_s = profile.expected_s(1)
    for _ in range(300):
        profile.observe(16, 2 * single_s)

    with ThreadPoolExecutor(len(inputs)) as callers:
        os.kill(replica.pid, signal.SIGSTOP)  # until they are there: how fast they come must not matter
        try:
            asked = [callers.submit(ada.infer, "lstm", {"x": each}) for each in inputs]
            eventually(lambda: live.gateway.waiting("ada/lstm/1") >= len(inputs) - 16 * replica.in_flight)
        finally:
            os.kill(replica.pid, signal.SIGCONT)
        answers = [each.result(ENDS_WITHIN_S) for each in asked]
    for answer, expected in zip(answers, alone, strict=True):
        np.testing.assert_allclose(answer["y"], expected, rtol=1e-4, atol=1e-5)
    after = counts(ada, "lstm")
    assert after["success"] - before["success"] == len(inputs)
    assert after["executions"] - before["executions"] < len(inputs) / 2


# --- what is refused ---


def test_a_wrong_input_is_explained(bob: InferenceClient) -> None:
    for inputs, complaint in (
        ({"z": ONE}, "the model has no input 'z'"),
        ({"x": ONE.astype(np.float64)}, "input 'x' is FP64, the model takes FP32"),
        ({"x": np.ones((1, 5), np.float32)}, r"shape \[1, 5\], the model takes \[-1, 4\]"),
        ({}, "there is no input"),
    ):
        with pytest.raises(BadRequest, match=complaint):
            bob.infer("linear", inputs)
    with pytest.raises(BadRequest, match="the model has no output 'z'"):
        bob.infer("linear", {"x": ONE}, outputs=["z"])


def test_what_the_model_does_not_like_is_its_own_error(bob: InferenceClient) -> None:
    before = counts(bob, "gather")
    with pytest.raises(ModelFailed):
        bob.infer("gather", {"x": np.array([99])})
    assert bob.infer("gather", {"x": np.array([9])})["y"][0] == 9
    after = counts(bob, "gather")
    assert (after["fail"] - before["fail"], after["success"] - before["success"]) == (1, 1)


def test_what_cannot_be_in_time_is_refused_before_its_turn(bob: InferenceClient, tmp_path: Path) -> None:
    ended: list[str] = []
    door = tmp_path / "door"

    def wait() -> None:
        bob.infer("wait_for", {"x": models.at_door(door)})
        ended.append("answered")

    waiter = threading.Thread(target=wait)
    waiter.start()
    eventually(models.awaited(door).exists)
    with pytest.raises(DeadlineMissed) as missed:
        bob.infer("wait_for", {"x": models.at_door(door)}, timeout_s=0.05)
    ended.append("refused")
    door.touch()
    waiter.join(ENDS_WITHIN_S)
    assert missed.value.retry_after_s > 0
    assert ended == ["refused", "answered"]


def raw(live: Live, token: str, model: str, seconds: float) -> tuple[int, dict[str, str], Any]:
    connection = http.client.HTTPConnection("127.0.0.1", live.process.http.port, timeout=ENDS_WITHIN_S)
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [seconds]}]}
    connection.request("POST", f"/v2/models/{model}/infer", json.dumps(body), {"Authorization": f"Bearer {token}"})
    response = connection.getresponse()
    found = response.status, {name.lower(): value for name, value in response.getheaders()}, json.load(response)
    connection.close()
    return found


def test_compute_time_beyond_the_limit_is_refused_with_when_to_ask_again(live: Live, dora: InferenceClient) -> None:
    answers = [raw(live, TOKENS["dora"], "nap", 0.06) for _ in range(3)]
    assert answers[0][0] == 200
    status, headers, told = answers[-1]
    assert (status, told["code"]) == (429, "rate-limited")
    assert int(headers["retry-after"]) >= told["retry_after_s"] > 1
    assert "used up its 0.001 compute-seconds per second" in told["error"]
    with pytest.raises(RateLimited):
        dora.infer("nap", {"x": [[np.float32(0)]]})


# --- loading ---


def test_a_damaged_model_says_so_everywhere(live: Live, dora: InferenceClient) -> None:
    entry = next(entry for entry in dora.index() if entry["name"] == "damaged")
    assert entry["state"] == "UNAVAILABLE"
    assert "onnxruntime cannot load damaged.onnx" in entry["reason"]
    with pytest.raises(NotReady, match=r"onnxruntime cannot load damaged\.onnx"):
        dora.infer("damaged", {"x": ONE})
    with pytest.raises(BadModel, match=r"onnxruntime cannot load damaged\.onnx"):
        dora.load("damaged")
    status = live.service("dora.limited")
    (replica,) = status.replicas
    assert (replica.ready, replica.failed) == (False, True)
    assert "damaged.onnx" in replica.reason
    assert status.reason is None  # the other model can be asked
    assert {model.model: model.state for model in status.models} == {"nap": "READY", "damaged": "UNAVAILABLE"}
    assert not dora.ready()


def test_models_are_unloaded_and_loaded_on_request(live: Live, bob: InferenceClient) -> None:
    headers = {"authorization": f"Bearer {TOKENS['bob']}"}
    with tritonclient.http.InferenceServerClient(f"127.0.0.1:{live.process.http.port}") as client:
        client.unload_model("gather", headers=headers)
        (entry,) = [one for one in client.get_model_repository_index(headers=headers) if one["name"] == "gather"]
        assert (entry["state"], entry["reason"]) == ("UNAVAILABLE", "it was unloaded")
        assert not client.is_model_ready("gather", headers=headers)
        with pytest.raises(NotReady, match="it was unloaded"):
            bob.infer("gather", {"x": np.array([1])})
        client.load_model("gather", headers=headers)
        assert client.is_model_ready("gather", headers=headers)
    assert bob.infer("gather", {"x": np.array([1])})["y"][0] == 1
    with pytest.raises(UnknownModel):
        bob.load("nothing")


def test_models_that_do_not_fit_are_loaded_when_they_are_asked_for(cleo: InferenceClient) -> None:
    def states() -> dict[str, str]:
        return {entry["name"]: entry["state"] for entry in cleo.index()}

    x = np.ones((1, 1024), np.float32)
    assert states() == {"heavy0": "READY", "heavy1": "READY", "heavy2": "UNAVAILABLE"}
    (left_out,) = [entry for entry in cleo.index() if entry["state"] == "UNAVAILABLE"]
    assert left_out["reason"] == "it is loaded when it is asked for"
    assert cleo.model_ready("heavy2")
    cleo.infer("heavy2", {"x": x})
    after = states()  # which of the two went depends on how long each took to load: test_residency.py holds the choice
    assert after["heavy2"] == "READY"
    assert sorted(after.values()) == ["READY", "READY", "UNAVAILABLE"]
    for _ in range(3):  # and in turns, from several at once
        with Load(lambda: [cleo.infer(f"heavy{at}", {"x": x}) for at in range(3)], threads=2) as load:
            load.more(2)
        assert {*load.outcomes} == {"ok"}


# --- faults ---


def test_a_replica_killed_under_load_costs_only_what_it_was_at(live: Live, bob: InferenceClient) -> None:
    name = "bob.text-0-1"
    with Load(lambda: bob.infer("linear", {"x": ONE}), threads=6) as load:
        for _ in range(2):
            pid = live.alone.replicas[name].pid
            kill(pid)
            eventually(lambda pid=pid: live.alone.replicas[name].pid not in (None, pid))
            load.more(50)
    assert {*load.outcomes} <= {"ok", "replica-lost"}  # those that waited, and came, were served by its successor
    assert load.outcomes["replica-lost"] <= 2 * 2  # at each kill what it was at, and what it was sent ahead
    eventually(lambda: live.service("bob.text").ready == (name,))


def test_a_request_that_kills_its_replica_takes_nobody_elses_along(live: Live, ada: InferenceClient) -> None:
    bob = live.client(TOKENS["bob"])
    with Load(lambda: ada.infer("linear", {"x": ONE}), threads=2) as load:
        status, _, told = raw(live, TOKENS["bob"], "vanish", 1.0)
        assert (status, told["code"]) == (502, "replica-lost")
        load.more()
    assert {*load.outcomes} == {"ok"}
    eventually(lambda: bob.infer("vanish", {"x": [[np.float32(0)]]})["y"].size == 1)


def test_the_gateway_outlives_clients_that_go_away(live: Live, bob: InferenceClient) -> None:
    body = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [0.05]}]}).encode()
    head = (
        f"POST /v2/models/nap/infer HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKENS['bob']}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", live.process.http.port)) as gone:
            gone.sendall(head.encode() + body)
    assert bob.infer("nap", {"x": [[np.float32(0)]]})["y"].size == 1
    eventually(lambda: sum(live.gateway.waiting(key) for key in live.gateway.stats) == 0)


# --- what it says of itself ---


def test_the_status_says_what_is_served(live: Live, ada: InferenceClient) -> None:
    before = live.service("ada.vision").requests
    ada.infer("linear", {"x": ONE})
    eventually(lambda: live.service("ada.vision").requests > before)
    found = live.service("ada.vision")
    assert (found.reason, found.ready) == (None, ("ada.vision-0-1",))
    assert [(one.model, one.version, one.state) for one in found.models] == [
        ("linear", "1", "READY"), ("linear", "2", "READY"), ("linear", "3", "READY"), ("lstm", "1", "READY"),
    ]  # fmt: skip
    assert found.p50_s is not None
    assert found.p99_s is not None
    assert 0 < found.p50_s <= found.p99_s
    assert found.rate_per_s > 0
    status = live.status()
    assert (status.http, status.generation) == (live.process.http, 1)
    assert status.grpc.port == live.process.grpc.port
    assert {one.id for one in status.services} == {"ada.vision", "bob.text", "cleo.many", "dora.limited"}


def test_answers_say_where_the_time_went(live: Live) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", live.process.http.port, timeout=ENDS_WITHIN_S)
    body = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": list(ONE.shape), "data": ONE.tolist()}]})
    connection.request("POST", "/v2/models/linear/infer", body, {"Authorization": f"Bearer {TOKENS['bob']}"})
    response = connection.getresponse()
    response.read()
    connection.close()
    assert response.status == 200
    assert re.fullmatch(r"queue;dur=\d+\.\d{3}, compute;dur=\d+\.\d{3}", response.headers["Server-Timing"])


def test_metrics_are_the_operators(live: Live, ada: InferenceClient) -> None:
    ada.infer("linear", {"x": ONE}, version="1")
    connection = http.client.HTTPConnection("127.0.0.1", live.process.http.port, timeout=ENDS_WITHIN_S)
    for token, status in ((TOKENS["ada"], 403), ("root", 200)):
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        text = response.read().decode()
        assert response.status == status
    connection.close()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    for wanted in (
        'shoal_serve_requests_total{model="linear",outcome="success",tenant="ada",version="1"} ',
        'shoal_serve_requests_total{model="damaged",outcome="failed",tenant="dora",version="1"} ',
        'shoal_serve_latency_seconds{model="linear",quantile="0.99",tenant="ada",version="1"} ',
        'shoal_serve_replicas{ready="true",service="bob.text"} 1.0',
        'shoal_serve_replicas{ready="true",service="dora.limited"} 0.0',
        'shoal_serve_waiting{model="lstm",tenant="ada",version="1"} 0.0',
    ):
        assert any(line.startswith(wanted) for line in lines), (wanted, text)


# --- who may not serve ---


def test_a_second_gateway_in_the_directory_is_refused_and_harms_nothing(
    live: Live, folder: Path, ada: InferenceClient
) -> None:
    assert held(folder)
    with pytest.raises(Conflict, match="a gateway serves this directory already"):
        live.run(GatewayProcess(folder).start())
    assert ada.infer("linear", {"x": ONE})["y"].shape == (1, 3)


def test_a_gateway_that_cannot_start_leaves_nothing_behind(live: Live, tmp_path: Path) -> None:
    taken = Address("127.0.0.1", live.process.http.port)
    spec = service("s", [ModelSpec("m", "/m")])
    for doors in ({"http": taken}, {"grpc": taken}):
        alone = Standalone(tmp_path, [spec], slots=1, **doors)
        with pytest.raises(Exception, match="cannot be listened on"):
            live.run(alone.start())
        assert not held(tmp_path)
        assert not (tmp_path / "gateway.sock").exists()
        live.run(alone.stop())
    (tmp_path / "empty").mkdir()
    with pytest.raises(Invalid, match="there is no configuration to follow"):
        live.run(GatewayProcess(tmp_path / "empty").start())
    assert not held(tmp_path / "empty")


def test_what_makes_no_sense_is_refused_before_anything_starts(tmp_path: Path) -> None:
    spec = service("s", [ModelSpec("m", "/m")])
    with pytest.raises(Invalid, match="two services of a tenant have the same name"):
        Standalone(tmp_path, [spec, spec], slots=1)
    with pytest.raises(Invalid, match="a service has at least one model"):
        Standalone(tmp_path, [service("s", [])], slots=1)


def test_in_the_end_everything_is_answered_written_down_and_gone(tmp_path: Path) -> None:
    spec = service("s", [models.callable_spec("nap"), models.wait_for_spec()])
    door = tmp_path / "door"

    def open_late() -> None:
        """Once nobody else is let in."""
        eventually(lambda: lets_nobody_in(client))
        door.touch()

    with standalone(tmp_path, [spec], price_per_hour=Money.usd(3600), drain_s=ENDS_WITHIN_S) as alone:
        pid = alone.alone.replicas["ada.s-0-1"].pid
        client, answers = alone.client(), []
        asking = [
            threading.Thread(target=lambda: answers.append(client.infer("wait_for", {"x": models.at_door(door)}))),
            threading.Thread(target=lambda: answers.append(client.infer("nap", {"x": [[np.float32(0.2)]]}))),
            threading.Thread(target=open_late),
        ]
        asking[0].start()
        eventually(models.awaited(door).exists)
        asking[1].start()
        (member,) = alone.gateway.replica_set.of("ada.s")
        eventually(lambda: alone.gateway.waiting("ada/nap/1") + member.replica.in_flight == 2)
        asking[2].start()
    for thread in asking:
        thread.join(ENDS_WITHIN_S)
    assert [answer["y"].size for answer in answers] == [1, 1]
    assert pid is not None
    assert ended(pid)
    assert not held(tmp_path)
    assert not (tmp_path / "gateway.sock").exists()
    records = usage_file.read(tmp_path / "usage.jsonl")
    assert sum(share.use_s for record in records for share in record.shares) >= 0.2
    assert [total.tenant for total in alone.status().usage] == ["ada"]


def test_the_largest_request_is_a_setting_of_both_doors(tmp_path: Path) -> None:
    spec = service("s", [ModelSpec("linear", str(models.linear(tmp_path / "linear.onnx", seed=1)))])
    with standalone(tmp_path, [spec], limits=Limits(body=100_000)) as live:
        big = {"x": np.zeros((10_000, 8), np.float32)}
        with live.client() as client:
            with pytest.raises(BodyTooLarge, match="100000 are the most"):
                client.infer("linear", big)
            client.infer("linear", {"x": np.zeros((1, 4), np.float32)})
        with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{live.process.grpc.port}") as client:
            tensor = tritonclient.grpc.InferInput("x", [10_000, 8], "FP32")
            tensor.set_data_from_numpy(big["x"])
            with pytest.raises(InferenceServerException) as refused:
                client.infer("linear", [tensor])
            assert refused.value.status() == "StatusCode.RESOURCE_EXHAUSTED"
