"""Triton's own HTTP client, unmodified, against the HTTP front."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException

from shoal.base.http import Limits
from shoal.inference.errors import BadModel, ModelFailed
from shoal.serve.errors import RateLimited, ReplicaLost
from tests.serve.fakes import FakeBackend
from tests.serve.fronts import Fronts, serving

A = np.arange(16, dtype=np.int32).reshape(1, 16)
B = np.full((1, 16), 5, dtype=np.int32)


@pytest.fixture
def fronts() -> Iterator[Fronts]:
    with serving() as found:
        yield found


@pytest.fixture
def client(fronts: Fronts) -> Iterator[Any]:
    with triton.InferenceServerClient(f"127.0.0.1:{fronts.http_port}") as found:
        yield found


def given(name: str, array: Any, *, datatype: str = "INT32", binary: bool = True) -> Any:
    return triton.InferInput(name, list(array.shape), datatype).set_data_from_numpy(array, binary_data=binary)


def add_sub(*, binary: bool = True) -> list[Any]:
    return [given("INPUT0", A, binary=binary), given("INPUT1", B, binary=binary)]


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False, None])
def test_inference_in_every_form(client: Any, binary_in: bool, binary_out: bool | None) -> None:
    outputs = None
    if binary_out is not None:
        outputs = [triton.InferRequestedOutput(f"OUTPUT{n}", binary_data=binary_out) for n in (1, 0)]
    found = client.infer("add_sub", add_sub(binary=binary_in), outputs=outputs, request_id="r1")
    np.testing.assert_array_equal(found.as_numpy("OUTPUT0"), A + B)
    np.testing.assert_array_equal(found.as_numpy("OUTPUT1"), A - B)
    told = found.get_response()
    assert (told["id"], told["model_name"], told["model_version"]) == ("r1", "add_sub", "2")


def test_json_and_binary_in_one_request(client: Any) -> None:
    inputs = [given("INPUT0", A, binary=False), given("INPUT1", B, binary=True)]
    outputs = [
        triton.InferRequestedOutput("OUTPUT0", binary_data=True),
        triton.InferRequestedOutput("OUTPUT1", binary_data=False),
    ]
    found = client.infer("add_sub", inputs, outputs=outputs)
    np.testing.assert_array_equal(found.as_numpy("OUTPUT0"), A + B)
    np.testing.assert_array_equal(found.as_numpy("OUTPUT1"), A - B)


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("BOOL", "?"), ("UINT8", "u1"), ("INT64", "i8"), ("UINT64", "u8"), ("FP16", "f2"), ("FP32", "f4"), ("FP64", "f8")],
)
def test_types(client: Any, kind: str, dtype: str, binary: bool) -> None:
    array = np.array([0, 1, 1, 0], dtype)
    outputs = [triton.InferRequestedOutput("OUT", binary_data=binary)]
    found = client.infer(f"echo_{kind}", [given("IN", array, datatype=kind, binary=binary)], outputs=outputs)
    np.testing.assert_array_equal(found.as_numpy("OUT"), array)


@pytest.mark.parametrize("binary", [True, False])
def test_strings(client: Any, binary: bool) -> None:
    array = np.array([b"", "päö".encode(), b"x" * 300], object)
    outputs = [triton.InferRequestedOutput("OUT", binary_data=binary)]
    found = client.infer("echo_BYTES", [given("IN", array, datatype="BYTES", binary=binary)], outputs=outputs)
    assert [one if isinstance(one, bytes) else one.encode() for one in found.as_numpy("OUT")] == array.tolist()


def test_nothing_at_all_is_a_tensor_too(client: Any) -> None:
    found = client.infer("echo_FP32", [given("IN", np.zeros(0, "f4"), datatype="FP32")])
    assert found.as_numpy("OUT").shape == (0,)


def test_a_large_body(client: Any) -> None:
    array = np.random.default_rng(1).random(5 << 20, "f4")  # 20 MiB: received into pages of its own
    found = client.infer("echo_FP32", [given("IN", array, datatype="FP32")])
    np.testing.assert_array_equal(found.as_numpy("OUT"), array)


def test_classes(client: Any) -> None:
    image = np.zeros((2, 3, 48, 192), "f4")
    outputs = [triton.InferRequestedOutput("SCORES", class_count=2)]
    found = client.infer("image", [given("IMAGE", image, datatype="FP32")], outputs=outputs)
    assert found.as_numpy("SCORES").tolist() == [[b"0.400000:1", b"0.300000:3"]] * 2


def test_health_and_documents(client: Any, fronts: Fronts) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("add_sub")
    assert client.is_model_ready("add_sub", "1")
    assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
    told = client.get_model_metadata("add_sub")
    assert (told["platform"], told["versions"]) == ("callable_python", ["1", "2"])
    assert told["inputs"][0] == {"name": "INPUT0", "datatype": "INT32", "shape": [-1, 16]}
    config = client.get_model_config("add_sub", "1")
    assert (config["max_batch_size"], config["backend"]) == (8, "callable")
    assert config["input"][0] == {"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [16]}
    assert client.get_model_config("echo_BYTES")["output"][0] == {
        "name": "OUT",
        "data_type": "TYPE_STRING",
        "dims": [-1],
    }
    fronts.backend.unloaded.add("add_sub")
    assert client.is_server_live()
    assert not client.is_server_ready()
    assert not client.is_model_ready("add_sub")


def test_statistics(client: Any) -> None:
    client.infer("add_sub", add_sub())
    (told,) = client.get_inference_statistics("add_sub")["model_stats"]
    assert (told["inference_count"], told["execution_count"], told["last_inference"]) == (1, 1, 1_700_000_000_500)
    assert told["inference_stats"]["success"] == {"count": 1, "ns": 250_000_000}
    assert told["inference_stats"]["rejected"] == {"count": 3, "ns": 500_000_000}
    assert told["batch_stats"][0]["batch_size"] == 1
    assert len(client.get_inference_statistics()["model_stats"]) > 10


def test_the_repository(client: Any, fronts: Fronts) -> None:
    client.unload_model("add_sub")
    states = {entry["name"]: entry for entry in client.get_model_repository_index()}
    assert states["add_sub"] == {"name": "add_sub", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"}
    with pytest.raises(InferenceServerException, match="not loaded") as caught:
        client.infer("add_sub", add_sub())
    assert caught.value.status() == "503"
    client.load_model("add_sub")
    client.infer("add_sub", add_sub())
    with pytest.raises(InferenceServerException, match="as it was deployed"):
        client.load_model("add_sub", config="{}")
    fronts.backend.failing["add_sub"] = BadModel("no model in it", where="m.onnx")
    with pytest.raises(InferenceServerException, match=r"m\.onnx: no model in it") as caught:
        client.load_model("add_sub")
    assert caught.value.status() == "400"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RateLimited("too fast"), "429"),
        (ReplicaLost("it died"), "502"),
        (ModelFailed("division by zero"), "500"),
    ],
)
def test_refusals(client: Any, fronts: Fronts, error: Exception, status: str) -> None:
    fronts.backend.failing["add_sub"] = error
    with pytest.raises(InferenceServerException, match=str(error)) as caught:
        client.infer("add_sub", add_sub())
    assert caught.value.status() == status


def test_a_defect_is_an_internal_error_that_tells_nothing(
    client: Any, fronts: Fronts, caplog: pytest.LogCaptureFixture
) -> None:
    fronts.backend.failing["add_sub"] = ZeroDivisionError("secret")
    with pytest.raises(InferenceServerException, match="internal error") as caught:
        client.infer("add_sub", add_sub())
    assert caught.value.status() == "500"
    assert "secret" not in str(caught.value)
    assert "secret" in caplog.text


def test_unknown_models_and_wrong_inputs(client: Any) -> None:
    for name, version in [("nobody", ""), ("add_sub", "9")]:
        with pytest.raises(InferenceServerException, match="there is no") as caught:
            client.infer(name, add_sub(), model_version=version)
        assert caught.value.status() == "404"
    with pytest.raises(InferenceServerException, match="without input 'INPUT1'") as caught:
        client.infer("add_sub", add_sub()[:1])
    assert caught.value.status() == "400"


def test_timeouts_are_the_services(client: Any, fronts: Fronts) -> None:
    fronts.backend.held["add_sub"] = threading.Event()
    with pytest.raises(InferenceServerException, match="too late") as caught:
        client.infer("add_sub", add_sub(), timeout=30_000)
    assert caught.value.status() == "503"
    (seen,) = fronts.backend.seen
    assert (seen.timeout_s, seen.parameters) == (0.03, {})


def test_tokens(fronts: Fronts) -> None:
    fronts.backend.tokens.update({"t-ada": "ada", "t-bob": "bob", "t-root": ""})
    url = f"127.0.0.1:{fronts.http_port}"
    with triton.InferenceServerClient(url) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        for headers in (None, {"Authorization": "Bearer nobody"}, {"Authorization": "Basic t-ada"}):
            with pytest.raises(InferenceServerException, match="token") as caught:
                client.infer("add_sub", add_sub(), headers=headers)
            assert caught.value.status() == "401"
        with pytest.raises(InferenceServerException, match="there is no such model") as caught:
            client.get_model_metadata("add_sub", headers={"Authorization": "Bearer t-bob"})
        assert caught.value.status() == "404"
        client.infer("add_sub", add_sub(), headers={"Authorization": "Bearer t-ada"})
        client.infer("add_sub", add_sub(), headers={"authorization": "bearer t-root"})
    assert [request.tenant for request in fronts.backend.seen] == ["ada", ""]


def test_many_at_once(fronts: Fronts) -> None:
    with triton.InferenceServerClient(f"127.0.0.1:{fronts.http_port}", concurrency=4) as client:
        waiting = [client.async_infer("add_sub", add_sub(), request_id=str(n)) for n in range(40)]
        ids = [one.get_result().get_response()["id"] for one in waiting]
    assert ids == [str(n) for n in range(40)]


@pytest.fixture
def region() -> Iterator[Any]:
    handle = shm.create_shared_memory_region("r", f"/test-{secrets.token_hex(8)}", 512)
    yield handle
    shm.destroy_shared_memory_region(handle)


def test_shared_memory(client: Any, region: Any) -> None:
    shm.set_shared_memory_region(region, [A, B])
    assert "system_shared_memory" in client.get_server_metadata()["extensions"]
    client.register_system_shared_memory("r", region._shm_key, 512)
    assert client.get_system_shared_memory_status() == [
        {"name": "r", "key": region._shm_key, "offset": 0, "byte_size": 512}
    ]
    inputs = [triton.InferInput("INPUT0", [1, 16], "INT32"), triton.InferInput("INPUT1", [1, 16], "INT32")]
    inputs[0].set_shared_memory("r", 64)
    inputs[1].set_shared_memory("r", 64, offset=64)
    placed = triton.InferRequestedOutput("OUTPUT0")
    placed.set_shared_memory("r", 64, offset=256)
    found = client.infer("add_sub", inputs, outputs=[placed, triton.InferRequestedOutput("OUTPUT1")])
    np.testing.assert_array_equal(shm.get_contents_as_numpy(region, np.int32, [1, 16], 256), A + B)
    np.testing.assert_array_equal(found.as_numpy("OUTPUT1"), A - B)
    assert found.get_output("OUTPUT0")["parameters"]["shared_memory_offset"] == 256
    client.unregister_system_shared_memory("r")
    assert client.get_system_shared_memory_status() == []
    with pytest.raises(InferenceServerException, match="region 'r': not registered"):
        client.infer("add_sub", inputs)


def test_strings_in_shared_memory(client: Any, region: Any) -> None:
    packed = np.array([b"ab", b"c"], object)
    raw = b"\2\0\0\0ab\1\0\0\0c"
    region._mpsm_handle.buf[: len(raw)] = raw
    client.register_system_shared_memory("r", region._shm_key, 512)
    one = triton.InferInput("IN", [2], "BYTES")
    one.set_shared_memory("r", len(raw))
    assert client.infer("echo_BYTES", [one]).as_numpy("OUT").tolist() == packed.tolist()
    one.set_shared_memory("r", len(raw) - 1)
    with pytest.raises(InferenceServerException, match="claims 1 bytes"):
        client.infer("echo_BYTES", [one])


def test_a_client_that_goes_away_cancels_its_request() -> None:
    with serving(limits=Limits(half_closed_s=0.2, sweep_s=0.02)) as fronts:
        fronts.backend.held["add_sub"] = threading.Event()
        impatient = triton.InferenceServerClient(f"127.0.0.1:{fronts.http_port}", network_timeout=0.5)
        with pytest.raises(Exception, match="timed out"):
            impatient.infer("add_sub", add_sub())
        impatient.close()
        until = time.monotonic() + 30
        while fronts.backend.running or not fronts.backend.cancelled:
            assert time.monotonic() < until
            time.sleep(0.005)
        assert fronts.backend.cancelled == 1


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
@pytest.mark.parametrize("binary", [True, False])
def test_requests_may_be_compressed(client: Any, coding: str, binary: bool) -> None:
    data = np.arange(5000, dtype=np.float32)
    array = given("IN", data, datatype="FP32", binary=binary)
    found = client.infer(
        "echo_FP32", [array], request_compression_algorithm=coding, response_compression_algorithm=coding
    )
    np.testing.assert_array_equal(found.as_numpy("OUT"), data)


def test_the_fronts_also_run_on_the_loop_of_the_standard_library() -> None:
    import asyncio

    with (
        serving(FakeBackend(), new_loop=asyncio.new_event_loop) as fronts,
        triton.InferenceServerClient(f"127.0.0.1:{fronts.http_port}") as client,
    ):
        array = np.random.default_rng(1).random(1 << 20, "f4")
        found = client.infer("echo_FP32", [given("IN", array, datatype="FP32")])
        np.testing.assert_array_equal(found.as_numpy("OUT"), array)
