"""Triton's own gRPC client, unmodified, against the gRPC front."""

from __future__ import annotations

import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.utils.shared_memory as shm
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

from shoal.core import Unavailable
from shoal.inference.errors import BadModel, ModelFailed
from shoal.serve.errors import NotReady, RateLimited, ReplicaLost
from shoal.serve.gateway.grpc import STREAM_WINDOW, GrpcFront
from tests.serve.fronts import Fronts, serving

A = np.arange(16, dtype=np.int32).reshape(1, 16)
B = np.full((1, 16), 5, dtype=np.int32)


@pytest.fixture
def fronts() -> Iterator[Fronts]:
    with serving(grpc=True, message=1 << 20) as found:
        yield found


@pytest.fixture
def client(fronts: Fronts) -> Iterator[Any]:
    with triton.InferenceServerClient(f"127.0.0.1:{fronts.grpc_port}") as found:
        yield found


def given(name: str, array: Any, datatype: str = "INT32") -> Any:
    return triton.InferInput(name, list(array.shape), datatype).set_data_from_numpy(array)


def add_sub() -> list[Any]:
    return [given("INPUT0", A), given("INPUT1", B)]


def test_inference(client: Any) -> None:
    found = client.infer("add_sub", add_sub(), request_id="r1", model_version="1")
    np.testing.assert_array_equal(found.as_numpy("OUTPUT0"), A + B)
    np.testing.assert_array_equal(found.as_numpy("OUTPUT1"), A - B)
    told = found.get_response()
    assert (told.id, told.model_name, told.model_version) == ("r1", "add_sub", "1")
    found = client.infer("add_sub", add_sub(), outputs=[triton.InferRequestedOutput("OUTPUT1")])
    assert found.as_numpy("OUTPUT0") is None
    np.testing.assert_array_equal(found.as_numpy("OUTPUT1"), A - B)


def test_strings_and_halves(client: Any) -> None:
    strings = np.array([b"", b"\xff\x00", b"x" * 300], object)
    assert client.infer("echo_BYTES", [given("IN", strings, "BYTES")]).as_numpy("OUT").tolist() == strings.tolist()
    halves = np.array([0.5, -2], "f2")
    np.testing.assert_array_equal(client.infer("echo_FP16", [given("IN", halves, "FP16")]).as_numpy("OUT"), halves)


def test_classes(client: Any) -> None:
    image = given("IMAGE", np.zeros((1, 3, 48, 192), "f4"), "FP32")
    found = client.infer("image", [image], outputs=[triton.InferRequestedOutput("SCORES", class_count=2)])
    assert found.as_numpy("SCORES").tolist() == [[b"0.400000:1", b"0.300000:3"]]


def test_health_and_documents(client: Any, fronts: Fronts) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("add_sub", "2")
    assert "system_shared_memory" in client.get_server_metadata().extensions
    told = client.get_model_metadata("add_sub", as_json=True)
    assert told["inputs"][0] == {"name": "INPUT0", "datatype": "INT32", "shape": ["-1", "16"]}
    config = client.get_model_config("add_sub").config
    assert (config.max_batch_size, config.backend, list(config.input[0].dims)) == (8, "callable", [16])
    assert triton.service_pb2  # the enum's name is Triton's
    assert client.get_model_config("echo_BYTES", as_json=True)["config"]["output"][0]["data_type"] == "TYPE_STRING"
    fronts.backend.unloaded.add("add_sub")
    assert not client.is_server_ready()
    assert not client.is_model_ready("add_sub")


def test_statistics_and_the_repository(client: Any) -> None:
    client.infer("add_sub", add_sub())
    (told,) = client.get_inference_statistics("add_sub").model_stats
    assert (told.inference_count, told.last_inference) == (1, 1_700_000_000_500)
    assert told.inference_stats.queue.ns == 250_000_000
    assert told.batch_stats[0].compute_infer.count == 1
    client.unload_model("add_sub")
    states = {entry.name: (entry.state, entry.reason) for entry in client.get_model_repository_index().models}
    assert states["add_sub"] == ("UNAVAILABLE", "unloaded")
    assert states["image"] == ("READY", "")
    client.load_model("add_sub")
    assert client.is_model_ready("add_sub")
    with pytest.raises(InferenceServerException, match="as it was deployed"):
        client.load_model("add_sub", config="{}")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RateLimited("too fast"), "RESOURCE_EXHAUSTED"),
        (ReplicaLost("it died"), "UNAVAILABLE"),
        (NotReady("it loads"), "UNAVAILABLE"),
        (ModelFailed("division by zero"), "INTERNAL"),
        (BadModel("no model"), "INVALID_ARGUMENT"),
    ],
)
def test_refusals(client: Any, fronts: Fronts, error: Exception, status: str) -> None:
    fronts.backend.failing["add_sub"] = error
    with pytest.raises(InferenceServerException, match=str(error)) as caught:
        client.infer("add_sub", add_sub())
    assert caught.value.status() == f"StatusCode.{status}"


def test_a_defect_is_an_internal_error_that_tells_nothing(
    client: Any, fronts: Fronts, caplog: pytest.LogCaptureFixture
) -> None:
    fronts.backend.failing["add_sub"] = ZeroDivisionError("secret")
    with pytest.raises(InferenceServerException, match="internal error") as caught:
        client.infer("add_sub", add_sub())
    assert caught.value.status() == "StatusCode.INTERNAL"
    assert "secret" not in str(caught.value)
    assert "secret" in caplog.text


def test_a_refusal_says_when_to_come_back(fronts: Fronts) -> None:
    fronts.backend.failing["echo_INT8"] = RateLimited("too fast", retry_after_s=1.2)
    message = service_pb2.ModelInferRequest(model_name="echo_INT8", raw_input_contents=[b"12"])
    message.inputs.add(name="IN", datatype="INT8", shape=[2])
    with grpc.insecure_channel(f"127.0.0.1:{fronts.grpc_port}") as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            stub.ModelInfer(message)
        assert {("retry-after", "2"), ("shoal-error", "rate-limited")} <= set(caught.value.trailing_metadata())
        message.raw_input_contents[0] = b"1"
        with pytest.raises(grpc.RpcError, match="takes 2 bytes, but 1 are given") as caught:
            stub.ModelInfer(message)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        with pytest.raises(grpc.RpcError) as caught:
            stub.TraceSetting(service_pb2.TraceSettingRequest())
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_unknown_models(client: Any) -> None:
    for name, version in [("nobody", ""), ("add_sub", "9")]:
        with pytest.raises(InferenceServerException, match="there is no") as caught:
            client.infer(name, add_sub(), model_version=version)
        assert caught.value.status() == "StatusCode.NOT_FOUND"


def test_an_unknown_model_is_not_ready(client: Any) -> None:
    assert client.is_model_ready("nobody") is False
    assert client.is_model_ready("add_sub", "9") is False
    assert client.is_model_ready("add_sub") is True


def test_a_deadline_is_the_services_too(client: Any, fronts: Fronts) -> None:
    fronts.backend.held["add_sub"] = threading.Event()
    with pytest.raises(InferenceServerException, match="too late"):
        client.infer("add_sub", add_sub(), timeout=30_000)
    with pytest.raises(InferenceServerException) as caught:
        client.infer("add_sub", add_sub(), client_timeout=1.0)
    assert caught.value.status() == "StatusCode.DEADLINE_EXCEEDED"  # whoever of the two noticed first
    first, second = fronts.backend.seen
    assert first.timeout_s == 0.03
    assert second.timeout_s is not None
    assert 0 < second.timeout_s < 1.1  # gRPC rounds it up
    wait_until_idle(fronts)


def wait_for(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.005)


def wait_until_idle(fronts: Fronts) -> None:
    wait_for(lambda: fronts.backend.running == 0)


def test_a_cancelled_call_ends_the_work_on_it(client: Any, fronts: Fronts) -> None:
    fronts.backend.held["add_sub"] = threading.Event()
    answers: queue.Queue[Any] = queue.Queue()
    context = client.async_infer("add_sub", add_sub(), callback=lambda result, error: answers.put(error))
    wait_for(lambda: fronts.backend.running == 1)
    context.cancel()
    assert "cancelled" in str(answers.get(timeout=30)).lower()
    wait_until_idle(fronts)
    assert fronts.backend.cancelled == 1


def test_tokens(client: Any, fronts: Fronts) -> None:
    fronts.backend.tokens.update({"t-ada": "ada", "t-bob": "bob"})
    assert client.is_server_live()
    for headers in (None, {"authorization": "Bearer nobody"}, {"authorization": "Basic t-ada"}):
        with pytest.raises(InferenceServerException, match="token") as caught:
            client.infer("add_sub", add_sub(), headers=headers)
        assert caught.value.status() == "StatusCode.UNAUTHENTICATED"
    with pytest.raises(InferenceServerException, match="there is no such model"):
        client.get_model_metadata("add_sub", headers={"authorization": "Bearer t-bob"})
    client.infer("add_sub", add_sub(), headers={"authorization": "Bearer t-ada"})
    assert [request.tenant for request in fronts.backend.seen] == ["ada"]


def test_too_large_a_message(client: Any) -> None:
    with pytest.raises(InferenceServerException, match="larger than max") as caught:
        client.infer("echo_FP32", [given("IN", np.zeros(1 << 19, "f4"), "FP32")])
    assert caught.value.status() == "StatusCode.RESOURCE_EXHAUSTED"


def stream(client: Any, names: list[str], headers: dict[str, str] | None = None) -> list[tuple[Any, Any]]:
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    client.start_stream(callback=lambda result, error: answers.put((result, error)), headers=headers)
    for at, name in enumerate(names):
        client.async_stream_infer(name, add_sub(), request_id=str(at))
    found = [answers.get(timeout=30) for _ in names]
    client.stop_stream()
    return found


def test_a_stream_is_answered_in_order_and_survives_refusals(client: Any, fronts: Fronts) -> None:
    held = fronts.backend.held["add_sub"] = threading.Event()
    threading.Timer(0.1, held.set).start()
    names = ["add_sub", "nobody", *["add_sub"] * 18]
    found = stream(client, names)
    assert [error is not None for _, error in found] == [name == "nobody" for name in names]
    assert "there is no such model" in str(found[1][1])
    assert [result.get_response().id for result, error in found if error is None] == [
        str(at) for at, name in enumerate(names) if name != "nobody"
    ]


def test_a_stream_works_on_no_more_than_its_window(client: Any, fronts: Fronts) -> None:
    fronts.backend.held["add_sub"] = threading.Event()
    client.start_stream(callback=lambda result, error: None)
    for _ in range(STREAM_WINDOW + 8):
        client.async_stream_infer("add_sub", add_sub())
    wait_for(lambda: fronts.backend.running >= STREAM_WINDOW)
    time.sleep(0.05)
    assert fronts.backend.running == STREAM_WINDOW
    client.stop_stream(cancel_requests=True)
    wait_until_idle(fronts)


def test_shared_memory(client: Any) -> None:
    region = shm.create_shared_memory_region("r", f"/test-{secrets.token_hex(8)}", 512)
    try:
        shm.set_shared_memory_region(region, [A, B])
        client.register_system_shared_memory("r", region._shm_key, 512)
        assert client.get_system_shared_memory_status().regions["r"].byte_size == 512
        inputs = [triton.InferInput("INPUT0", [1, 16], "INT32"), triton.InferInput("INPUT1", [1, 16], "INT32")]
        inputs[0].set_shared_memory("r", 64)
        inputs[1].set_shared_memory("r", 64, offset=64)
        placed = triton.InferRequestedOutput("OUTPUT0")
        placed.set_shared_memory("r", 64, offset=256)
        found = client.infer("add_sub", inputs, outputs=[placed, triton.InferRequestedOutput("OUTPUT1")])
        np.testing.assert_array_equal(shm.get_contents_as_numpy(region, np.int32, [1, 16], 256), A + B)
        np.testing.assert_array_equal(found.as_numpy("OUTPUT1"), A - B)
        with pytest.raises(InferenceServerException, match="already registered") as caught:
            client.register_system_shared_memory("r", region._shm_key, 512)
        assert caught.value.status() == "StatusCode.ALREADY_EXISTS"
        client.unregister_system_shared_memory()
        assert not client.get_system_shared_memory_status().regions
    finally:
        shm.destroy_shared_memory_region(region)


def test_a_port_that_is_taken(fronts: Fronts) -> None:
    with pytest.raises(Unavailable, match=rf"127\.0\.0\.1:{fronts.grpc_port}: the port cannot be listened on"):
        fronts.run(lambda: GrpcFront(fronts.backend, shared=fronts.shared).start(port=fronts.grpc_port))


def test_a_message_of_many_empty_parts_is_refused_unread(client: Any, fronts: Fronts) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{fronts.grpc_port}") as channel:
        call = channel.unary_unary(
            "/inference.GRPCInferenceService/ModelInfer", request_serializer=bytes, response_deserializer=bytes
        )
        with pytest.raises(grpc.RpcError) as refused:
            call(b"\x32\x00" * 400_000)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "fields" in refused.value.details()
    np.testing.assert_array_equal(client.infer("add_sub", add_sub()).as_numpy("OUTPUT0"), A + B)


@pytest.mark.parametrize("call", ["ModelInfer", "ModelMetadata", "RepositoryIndex", "ModelStreamInfer"])
def test_garbage_is_the_callers_error(fronts: Fronts, call: str) -> None:
    garbage = b"\xff\xff\xff nonsense"
    with grpc.insecure_channel(f"127.0.0.1:{fronts.grpc_port}") as channel:
        path = f"/inference.GRPCInferenceService/{call}"
        if call == "ModelStreamInfer":
            answers = channel.stream_stream(path)(iter([garbage]), timeout=20)
            assert f"{len(garbage)} bytes that are no ModelInferRequest".encode() in b"".join(answers)
            return
        with pytest.raises(grpc.RpcError) as refused:
            channel.unary_unary(path)(garbage, timeout=20)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert f"{len(garbage)} bytes that are no {call}Request" in refused.value.details()
