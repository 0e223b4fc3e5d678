"""The protocol's client: what it writes, what it reads, and what it says when a server misbehaves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httptools
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tritonclient.http import InferenceServerClient
from tritonclient.utils import deserialize_bytes_tensor, triton_to_np_dtype

from shoal.core import Forbidden, Invalid, NotFound, ShoalError, Unavailable
from shoal.inference.types import DataType, TensorSpec
from shoal.measure.load import Encoding
from shoal.measure.load.generator import run
from shoal.measure.load.inputs import encode, given_inputs, inputs_from_file, random_inputs, zero_inputs
from shoal.measure.load.oip import Client, Counters, prepare
from shoal.measure.load.wire import Address, Pool, head
from shoal.measure.types import Failure, Inputs, Target
from tests.measure.servers import Fake, running_server

NEW = np.random.default_rng
X = TensorSpec("x", DataType.FP32, (-1, 4))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_server(Fake(models={"fake": 0.0, "other": 0.001})) as url:
        yield url


# -- what it writes ---------------------------------------------------------------------------------------------------


def decoded(body: bytes, json_length: int | None) -> dict[str, np.ndarray]:
    """A request's tensors, read by Triton's own library."""
    request = json.loads(body[:json_length])
    at = json_length or 0
    found = {}
    for tensor in request["inputs"]:
        if "data" in tensor:
            found[tensor["name"]] = np.array(tensor["data"]).reshape(tensor["shape"])
            continue
        size = tensor["parameters"]["binary_data_size"]
        raw, at = body[at : at + size], at + size
        if tensor["datatype"] == "BYTES":
            found[tensor["name"]] = deserialize_bytes_tensor(raw).reshape(tensor["shape"])
        else:
            half = tensor["datatype"] == "BF16"
            kind = np.uint16 if half else triton_to_np_dtype(tensor["datatype"])
            array = np.frombuffer(raw, dtype=kind).reshape(tensor["shape"])
            found[tensor["name"]] = (array.astype(np.uint32) << 16).view(np.float32) if half else array
    assert at == len(body) or json_length is None
    return found


@pytest.mark.parametrize("datatype", DataType)
@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 100), batch=st.integers(1, 4))
def test_binary_requests_are_read_by_tritons_library_as_they_were_made(
    datatype: DataType, seed: int, batch: int
) -> None:
    specs = (TensorSpec("a", datatype, (-1, 3)), TensorSpec("b", datatype, (2,)))
    for inputs in random_inputs(batch=batch, variety=2)(specs, NEW(seed)):
        found = decoded(*encode(inputs, specs, binary=True))
        assert found["a"].shape == (batch, 3)
        assert all(np.array_equal(found[name], inputs[name]) for name in ("a", "b"))


@pytest.mark.parametrize("datatype", sorted(set(DataType) - {DataType.FP16, DataType.BF16}))
def test_json_requests_hold_the_same_numbers(datatype: DataType) -> None:
    specs = (TensorSpec("a", datatype, (-1, 3)),)
    (inputs, *_) = random_inputs(batch=2)(specs, NEW(1))
    body, json_length = encode(inputs, specs, binary=False)
    assert json_length is None
    wanted = inputs["a"].astype(str) if datatype == "BYTES" else inputs["a"]
    assert np.array_equal(decoded(body, None)["a"].astype(wanted.dtype), wanted)


def test_half_floats_have_no_json() -> None:
    with pytest.raises(Invalid, match="no JSON for FP16"):
        encode({"a": np.zeros(1, np.float16)}, (TensorSpec("a", DataType.FP16, (1,)),), binary=False)


def test_random_inputs_vary_and_repeat_with_their_seed() -> None:
    made = random_inputs(variety=3)((X,), NEW(5))
    again = random_inputs(variety=3)((X,), NEW(5))
    assert len({one["x"].tobytes() for one in made}) == 3
    assert all(np.array_equal(one["x"], other["x"]) for one, other in zip(made, again, strict=True))
    assert not zero_inputs(batch=2)((X, TensorSpec("t", DataType.BYTES, (1,))), NEW(0))[0]["x"].any()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: random_inputs()((TensorSpec("x", DataType.FP32, (-1, 3, -1)),), NEW(0)),
            "free dimensions.*as in x:64x3x64",
        ),
        (lambda: random_inputs(shapes={"x": (2, 5)})((X,), NEW(0)), r"\[2, 5\] does not fit the input 'x', \[-1, 4\]"),
        (lambda: random_inputs(shapes={"y": (1,)})((X,), NEW(0)), "no input 'y' .it has x"),
        (lambda: random_inputs(batch=0)((X,), NEW(0)), "a batch of 0 is empty"),
        (lambda: given_inputs([])((X,), NEW(0)), "not one example"),
        (lambda: given_inputs([{"z": np.zeros(1)}])((X,), NEW(0)), "example 0: it has the inputs z; the model takes x"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(make: Callable[[], object], words: str) -> None:
    with pytest.raises(Invalid, match=words.replace("as in x:64x3x64", "")):
        make()


def examples(path: Path) -> list[Inputs]:
    return list(inputs_from_file(path)((X,), NEW(0)))


def test_examples_come_from_files(tmp_path: Path) -> None:
    values = np.arange(8, dtype=np.float32).reshape(2, 1, 4)
    np.savez(tmp_path / "a.npz", x=values)
    tensors = [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": row.ravel().tolist()} for row in values]
    (tmp_path / "a.json").write_text(json.dumps([{"inputs": [one]} for one in tensors]))
    for name in ("a.npz", "a.json"):
        found = examples(tmp_path / name)
        assert [one["x"].tolist() for one in found] == values.tolist()


@pytest.mark.parametrize(
    "text",
    [
        "{", '{"inputs": [{"name": "x"}]}', "[1]", '{"inputs": 3}',
        '{"inputs": [{"name": "x", "datatype": "UINT8", "shape": [1], "data": [300]}]}',
    ],
)  # fmt: skip
def test_bad_example_files_are_refused_by_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(Invalid, match=r"bad\.json"):
        examples(path)


@pytest.mark.parametrize("kind", ["empty", "cut", "npy"])
def test_bad_arrays_are_refused_by_name(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "bad.npz"
    if kind == "npy":
        with path.open("wb") as file:
            np.save(file, np.zeros(3))
    else:
        np.savez(path, x=np.zeros((2, 1, 4)))
        path.write_bytes(path.read_bytes()[: 100 if kind == "cut" else 0])
    with pytest.raises(Invalid, match=r"bad\.npz"):
        examples(path)


def test_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"none\.npz"):
        inputs_from_file(tmp_path / "none.npz")


def test_pickles_in_examples_are_not_loaded(tmp_path: Path) -> None:
    np.savez(tmp_path / "evil.npz", x=np.array([{"a": 1}], dtype=object))
    with pytest.raises(Invalid, match="allow_pickle=False"):
        examples(tmp_path / "evil.npz")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("localhost:8000", "http://localhost:8000"),
        ("http://h", "http://h:80"),
        ("https://h/", "https://h:443"),
        ("http://[::1]:9/v2/", "http://[::1]:9"),
        ("http://h:1/serving/a@b", "http://h:1/serving/a@b"),
    ],
)
def test_addresses(url: str, shown: str) -> None:
    assert str(Address.parse(url)) == shown


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://h",
        "http://",
        "http://h:x",
        "http://h?a",
        "http://h:0",
        "http://me:secret@h",
        "http://h/a b",
        "ftp://me:secret@h",
        "http://me:secret@h:x",
        "http://me:secret@h/a b",
    ],
)
def test_what_is_no_address_is_refused_without_its_secrets(url: str) -> None:
    with pytest.raises(Invalid) as caught:
        Address.parse(url)
    assert "secret" not in str(caught.value)


def test_a_token_cannot_smuggle_a_header_and_is_not_shown() -> None:
    with pytest.raises(Invalid, match="'Authorization' holds characters") as caught:
        head(Address("h", 1), "GET", "/v2", headers={"Authorization": "Bearer a\r\nX: b"})
    assert "Bearer" not in str(caught.value)
    assert "hush" not in repr(Target("http://h", "m", token="hush"))


# -- what it reads ----------------------------------------------------------------------------------------------------


def test_a_server_introduces_itself_and_its_models(url: str) -> None:
    async def ask() -> None:
        async with Client(url) as client:
            assert await client.takes_binary()
            assert await client.inputs("fake") == (X,)
            assert await client.model_ready("fake", "1")
            assert not await client.model_ready("fake", "2")
            assert await client.models() == ("fake", "other")

    run(ask())


def test_statistics_tell_queue_from_compute(url: str) -> None:
    async def ask() -> None:
        prepared = await prepare(Target(url, "other"))
        async with Client(url) as client:
            before = await client.statistics("other")
            for _ in range(3):
                await client.infer(prepared.requests[0])
            after = await client.statistics("other")
            assert before is not None
            assert after is not None
            times = after.since(before)
            assert times is not None
            assert (times.requests, times.executions, times.batch) == (3, 3, 1.0)
            assert times.compute_s == pytest.approx(0.001)
            assert await client.statistics("nobody") is None
            assert before.since(after) is None

    run(ask())


def test_tritons_own_client_and_ours_see_the_same_model(url: str) -> None:
    theirs = InferenceServerClient(url.removeprefix("http://")).get_model_metadata("fake")

    async def ask() -> str:
        async with Client(url) as client:
            return (await client.inputs("fake"))[0].name

    assert run(ask()) == theirs["inputs"][0]["name"]


@pytest.mark.parametrize(("json_only", "binary"), [(True, False), (False, True)])
def test_the_encoding_is_the_one_that_the_server_speaks(json_only: bool, binary: bool) -> None:
    with running_server(Fake(json_only=json_only)) as url:
        assert run(prepare(Target(url, "fake"))).binary is binary
        assert not run(prepare(Target(url, "fake", "1"), encoding=Encoding.JSON)).binary
        if json_only:
            with pytest.raises(Invalid, match="json_invalid"):
                run(prepare(Target(url, "fake"), encoding=Encoding.BINARY))


def test_refusals_are_typed_and_say_what_to_do(url: str) -> None:
    with pytest.raises(NotFound, match=r"no model 'nope'.*it has fake, other"):
        run(prepare(Target(url, "nope")))
    with pytest.raises(NotFound, match="no version 7"):
        run(prepare(Target(url, "fake", "7")))
    with pytest.raises(Invalid, match="the model has no name"):
        run(prepare(Target(url, "")))
    with pytest.raises(Unavailable, match="no server can be reached"):
        run(prepare(Target("http://127.0.0.1:1", "fake")))
    with running_server(Fake(token="right")) as closed:
        assert run(prepare(Target(closed, "fake", token="right"))).requests
        with pytest.raises(Forbidden, match="give a token") as caught:
            run(prepare(Target(closed, "fake", token="wrong")))
        assert "wrong" not in str(caught.value)


# -- servers that misbehave -------------------------------------------------------------------------------------------


@asynccontextmanager
async def raw_server(answers: list[bytes], *, close: bool = False) -> AsyncIterator[str]:
    """Answers each request with the next of `answers`, as they are; the last over and over."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests = 0

        class Heard:
            def on_message_complete(self) -> None:
                nonlocal requests
                requests += 1

        parser = httptools.HttpRequestParser(Heard())
        answered = 0
        while data := await reader.read(65536):
            parser.feed_data(data)
            while answered < requests:
                answered += 1
                writer.write(answers.pop(0) if len(answers) > 1 else answers[0])
                if close:
                    writer.close()
                    return
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def told(url: str, count: int, *, timeout_s: float = 5.0) -> asyncio.Future[list[tuple[int, bytes]]]:
    async def send() -> list[tuple[int, bytes]]:
        address = Address.parse(url)
        pool = Pool(address, timeout_s=timeout_s)
        await pool.open()
        found: list[tuple[int, bytes]] = []
        for _ in range(count):
            ended: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()

            def done(token: asyncio.Future[tuple[int, bytes]], status: int, _: float, body: bytes) -> None:
                token.set_result((status, body))

            pool.send(head(address, "GET", "/v2"), ended, done, want_body=True)
            found.append(await ended)
        await pool.close()
        found.append((pool.opened, b"opened"))
        return found

    return asyncio.ensure_future(send())


PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


async def test_connections_are_kept_unless_the_server_wants_them_closed() -> None:
    async with raw_server([PLAIN]) as url:
        assert await told(url, 3) == [(200, b"ok")] * 3 + [(1, b"opened")]
    last = PLAIN.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n")
    async with raw_server([last]) as url:
        assert await told(url, 3) == [(200, b"ok")] * 3 + [(3, b"opened")]


async def test_interim_answers_are_passed_over() -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    async with raw_server([hints + PLAIN]) as url:
        assert await told(url, 2) == [(200, b"ok")] * 2 + [(1, b"opened")]


async def test_chunked_answers_are_put_together() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n"
    async with raw_server([chunked]) as url:
        assert (await told(url, 2))[:2] == [(200, b"ok")] * 2


@pytest.mark.parametrize(
    ("answer", "close", "failure"),
    [
        (b"SSH-2.0-OpenSSH\r\n", False, Failure.GARBLED),
        (PLAIN + PLAIN, False, Failure.GARBLED),
        (b"", True, Failure.LOST),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhal", True, Failure.LOST),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhal", False, Failure.TIMEOUT),
    ],
    ids=["not-http", "two-answers", "closed", "half", "slow"],
)
async def test_failures_are_told_apart_and_the_next_request_is_unharmed(
    answer: bytes, close: bool, failure: Failure
) -> None:
    async with raw_server([answer, PLAIN], close=close) as url:
        found = await told(url, 2, timeout_s=1.0 if failure is Failure.TIMEOUT else 30.0)
    assert found[1] == (200, b"ok")
    if answer != PLAIN + PLAIN:
        assert found[0][0] == failure
        assert found[2] == (2, b"opened")


async def test_other_services_are_not_taken_for_an_inference_server() -> None:
    page = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>"
    async with raw_server([page]) as url:
        with pytest.raises(ShoalError, match="not the Open Inference Protocol's"):
            await prepare(Target(url, "m"))
    odd = b'HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{"name": "fake"}'[:-1]
    async with raw_server([odd]) as url:
        with pytest.raises(ShoalError):
            await prepare(Target(url, "m"), timeout_s=0.5)


def test_counters_without_news_are_none() -> None:
    assert Counters(5, 5, 1.0, 1.0).since(Counters(5, 5, 1.0, 1.0)) is None


async def test_an_unreadable_list_of_models_hides_no_refusal() -> None:
    missing = b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}"
    async with raw_server([missing, PLAIN]) as url, Client(url) as client:
        with pytest.raises(NotFound, match="no model 'nope'"):
            await client.inputs("nope")
