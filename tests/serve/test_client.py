"""The Python clients against the real fronts, and against servers that misbehave."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.base.http import Limits
from shoal.core import Invalid, ShoalError, Unavailable
from shoal.serve.client import InferenceClient, sync
from shoal.serve.errors import (
    BadModel,
    BadRequest,
    DeadlineMissed,
    ModelFailed,
    NotReady,
    RateLimited,
    ReplicaLost,
    TooLarge,
    UnknownModel,
)
from shoal.serve.gateway.shared_memory import SharedRegions
from shoal.serve.protocol.errors import Unauthorized
from shoal.serve.tensors import to_tensor
from shoal.serve.types import DataType
from tests.serve.fronts import Fronts, serving

A = np.arange(16, dtype=np.int32).reshape(1, 16)
B = np.full((1, 16), 5, dtype=np.int32)
INPUTS = {"INPUT0": A, "INPUT1": B}


@pytest.fixture
def fronts() -> Iterator[Fronts]:
    with serving() as found:
        yield found


@pytest.fixture
def client(fronts: Fronts) -> Iterator[InferenceClient]:
    with InferenceClient(fronts.url) as found:
        yield found


def test_arrays_in_and_arrays_out(client: InferenceClient) -> None:
    found = client.infer("add_sub", INPUTS, id="r1")
    np.testing.assert_array_equal(found["OUTPUT0"], A + B)
    np.testing.assert_array_equal(found["OUTPUT1"], A - B)
    assert (found.model, found.version, found.id) == ("add_sub", "2", "r1")
    assert set(client.infer("add_sub", INPUTS, outputs=["OUTPUT1"], version="1")) == {"OUTPUT1"}


@pytest.mark.parametrize(
    "array",
    [
        np.array([True, False]),
        np.array([1, 2], "u8"),
        np.array([0.5, np.nan, -np.inf], "f2"),
        np.array([b"", b"\xff", b"abc"], object),
        np.zeros(0, "f8"),
        np.arange(20, dtype="i8")[::2],
        np.arange(4, dtype=">i4"),
    ],
)
def test_arrays_of_all_kinds(client: InferenceClient, array: Any) -> None:
    kind = to_tensor("IN", array).datatype
    found = client.infer(f"echo_{kind}", {"IN": array})["OUT"]
    np.testing.assert_array_equal(found, array)
    assert found.dtype.newbyteorder("=") == array.dtype.newbyteorder("=")


def test_text_becomes_bytes_and_lists_become_arrays(client: InferenceClient) -> None:
    assert client.infer("echo_BYTES", {"IN": ["ä", "b"]})["OUT"].tolist() == ["ä".encode(), b"b"]
    assert client.infer("echo_FP64", {"IN": [1.0, 2.0]})["OUT"].tolist() == [1.0, 2.0]


def test_bf16_as_a_tensor(client: InferenceClient) -> None:
    halves = to_tensor("any", np.array([1.5, -2], "f4"), DataType.BF16)
    assert client.infer("echo_BF16", {"IN": halves})["OUT"].tolist() == [1.5, -2]


def test_what_cannot_be_sent_is_said_here(client: InferenceClient, fronts: Fronts) -> None:
    with pytest.raises(BadRequest, match="input 'IN': the protocol has no datatype for an array of complex128"):
        client.infer("echo_FP32", {"IN": np.array([1j])})
    assert fronts.backend.seen == []


def test_the_other_calls(client: InferenceClient, fronts: Fronts) -> None:
    assert client.live()
    assert client.ready()
    assert client.model_ready("add_sub", "1")
    assert client.server()["name"] == "shoal"
    assert client.metadata("add_sub")["inputs"][1]["name"] == "INPUT1"
    client.infer("add_sub", INPUTS)
    assert client.statistics("add_sub")[0]["inference_count"] == 1
    assert len(client.statistics()) == len(client.index()) > 10
    client.unload("add_sub")
    assert not client.ready()
    assert not client.model_ready("add_sub")
    assert "add_sub" not in [entry["name"] for entry in client.index(ready_only=True)]
    client.load("add_sub")
    assert client.model_ready("add_sub")
    fronts.backend.failing["add_sub"] = BadModel("no model in it")
    with pytest.raises(BadModel, match="no model in it"):
        client.load("add_sub")


@pytest.mark.parametrize(
    "error",
    [
        BadRequest("a"), TooLarge("b"), UnknownModel("c"), RateLimited("d", retry_after_s=0.03), DeadlineMissed("e"),
        NotReady("f"), ReplicaLost("g"), ModelFailed("h"), Unavailable("i"),
    ],
)  # fmt: skip
def test_the_servers_errors_are_raised_here(client: InferenceClient, fronts: Fronts, error: ShoalError) -> None:
    fronts.backend.failing["add_sub"] = error
    with pytest.raises(type(error)) as caught:
        client.infer("add_sub", INPUTS)
    assert type(caught.value) is type(error)
    assert str(caught.value) == str(error)
    if isinstance(caught.value, RateLimited):
        assert caught.value.retry_after_s == 0.03


def test_tokens(fronts: Fronts) -> None:
    fronts.backend.tokens["t-ada"] = "ada"
    with InferenceClient(fronts.url) as client, pytest.raises(Unauthorized, match="needs a token"):
        client.infer("add_sub", INPUTS)
    with InferenceClient(fronts.url, token="t-ada") as client:
        client.infer("add_sub", INPUTS)
    assert fronts.backend.seen[0].tenant == "ada"


def test_a_timeout_is_the_servers_to_keep(client: InferenceClient, fronts: Fronts) -> None:
    fronts.backend.held["add_sub"] = threading.Event()
    with pytest.raises(DeadlineMissed, match="too late"):
        client.infer("add_sub", INPUTS, timeout_s=0.05, parameters={"trace": True})
    (seen,) = fronts.backend.seen
    assert (seen.timeout_s, seen.parameters) == (0.05, {"trace": True})


def test_impatience(fronts: Fronts) -> None:
    fronts.backend.held["add_sub"] = threading.Event()
    with InferenceClient(fronts.url, patience_s=0.5) as client:
        with pytest.raises(Unavailable, match="no answer"):
            client.infer("add_sub", INPUTS)
        fronts.backend.held.clear()
        client.infer("add_sub", INPUTS, timeout_s=30.0)  # on another connection


def test_threads_share_a_client(client: InferenceClient) -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        for step in range(20):
            array = np.full(100 + number, number * 100 + step)
            if client.infer("echo_INT64", {"IN": array})["OUT"].tolist() != array.tolist():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert 1 <= len(client._free) <= 6


def test_a_connection_that_the_server_closed_is_replaced() -> None:
    with serving(limits=Limits(idle_s=0.5, sweep_s=0.01)) as fronts, InferenceClient(fronts.url) as client:
        for _ in range(3):
            client.infer("add_sub", INPUTS)
            while client._free[0].channel.is_open():
                pass


def test_a_refused_body_is_told_though_it_was_not_all_taken() -> None:
    with serving(limits=Limits(body=1000)) as fronts, InferenceClient(fronts.url) as client:
        with pytest.raises(TooLarge, match="1000 are the most"):
            client.infer("echo_FP64", {"IN": np.zeros(4 << 20)})
        client.infer("echo_FP64", {"IN": np.zeros(4)})


def test_a_unix_socket_and_a_prefix(tmp_path: Path) -> None:
    with serving(unix=tmp_path / "s") as fronts:
        with InferenceClient(f"unix://{tmp_path}/s") as client:
            np.testing.assert_array_equal(client.infer("add_sub", INPUTS)["OUTPUT0"], A + B)
        with InferenceClient(f"{fronts.url}/behind/a/proxy") as client, pytest.raises(ShoalError, match="nothing here"):
            client.server()


@pytest.mark.parametrize("url", ["", "localhost:8000", "ftp://x", "http://", "http://a:b", "unix:"])
def test_no_url(url: str) -> None:
    with pytest.raises(Invalid, match="URL"):
        InferenceClient(url)


def test_nobody_there() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        client = InferenceClient(f"http://127.0.0.1:{unused.getsockname()[1]}")
        assert not client.live()
        with pytest.raises(Unavailable, match="no connection"):
            client.infer("add_sub", INPUTS)


@pytest.mark.parametrize(
    ("error", "waits"), [(RateLimited("x", retry_after_s=7), [7, 7]), (ReplicaLost("x"), [0.05, 0.1])]
)
def test_retries_of_what_is_safe(
    fronts: Fronts, monkeypatch: pytest.MonkeyPatch, error: ShoalError, waits: list[float]
) -> None:
    fronts.backend.failing["add_sub"] = error
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 2:
            fronts.backend.failing.clear()

    monkeypatch.setattr(sync, "sleep", sleep)
    with InferenceClient(fronts.url, retries=2) as client:
        client.infer("add_sub", INPUTS)
    assert waited == waits
    assert len(fronts.backend.seen) == 3


@pytest.mark.parametrize("error", [DeadlineMissed("x"), ModelFailed("x"), BadRequest("x")])
def test_no_retries_of_anything_else(fronts: Fronts, error: ShoalError) -> None:
    fronts.backend.failing["add_sub"] = error
    with InferenceClient(fronts.url, retries=5) as client, pytest.raises(type(error)):
        client.infer("add_sub", INPUTS)
    assert len(fronts.backend.seen) == 1


def test_no_retries_unless_told_to(client: InferenceClient, fronts: Fronts) -> None:
    fronts.backend.failing["add_sub"] = ReplicaLost("x")
    with pytest.raises(ReplicaLost):
        client.infer("add_sub", INPUTS)
    assert len(fronts.backend.seen) == 1


@contextlib.contextmanager
def misbehaving(act: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that does one thing with each connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    made, _ = server.accept()
                    with made:
                        made.recv(1 << 20)
                        act(made)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize(
    ("raw", "complaint"),
    [
        (b"", "hung up without an answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}", "hung up without an answer"),
        (b"SSH-2.0-OpenSSH\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "cannot be understood"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "cannot be understood"),
        (
            b"HTTP/1.1 200 OK\r\nInference-Header-Content-Length: 9\r\nContent-Length: 2\r\n\r\n{}",
            "cannot be understood",
        ),
        (b"HTTP/1.1 503 No\r\nContent-Length: 9\r\n\r\n<h1>No</h", "status 503"),
    ],
)
def test_servers_that_misbehave(raw: bytes, complaint: str) -> None:
    with (
        misbehaving(lambda made: made.sendall(raw)) as url,
        InferenceClient(url, patience_s=5) as client,
        pytest.raises(Unavailable, match=complaint),
    ):
        client.infer("add_sub", INPUTS)


def test_an_answer_in_chunks_from_a_proxy() -> None:
    body = b'{"model_name":"m","outputs":[{"name":"y","datatype":"INT8","shape":[2],"data":[1,2]}]}'
    raw = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n"
    with misbehaving(lambda made: made.sendall(raw % (len(body), body))) as url, InferenceClient(url) as client:
        assert client.infer("m", {"x": [1]})["y"].tolist() == [1, 2]


def ours() -> list[str]:
    return [path.name for path in Path("/dev/shm").glob(f"client-{os.getpid()}-*")]


def test_inputs_in_shared_memory(fronts: Fronts) -> None:
    regions = fronts.shared
    with InferenceClient(fronts.url, shared_memory=True) as client:
        np.testing.assert_array_equal(client.infer("add_sub", INPUTS)["OUTPUT0"], A + B)
        (first,) = regions.status("")
        assert ours() == []  # only the server and this client can still reach it
        np.testing.assert_array_equal(client.infer("add_sub", INPUTS)["OUTPUT1"], A - B)
        assert regions.status("") == [first]
        large = np.arange(100_000)
        np.testing.assert_array_equal(client.infer("echo_INT64", {"IN": large})["OUT"], large)
        (second,) = regions.status("")
        assert second.size > 800_000
        assert client.infer("echo_BYTES", {"IN": [b"a", b"bc"]})["OUT"].tolist() == [b"a", b"bc"]
    assert regions.status("") == []
    assert ours() == []


def test_inputs_are_sent_where_shared_memory_is_not_taken(caplog: pytest.LogCaptureFixture) -> None:
    with (
        serving(shared=SharedRegions(most_regions=0)) as fronts,
        InferenceClient(fronts.url, shared_memory=True) as client,
    ):
        for _ in range(2):
            np.testing.assert_array_equal(client.infer("add_sub", INPUTS)["OUTPUT0"], A + B)
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert ["takes no inputs in shared memory" in record.message for record in warnings] == [True]
    assert ours() == []
