"""The HTTP front against raw sockets: odd, broken, slow and hostile clients. Each gets an answer or is hung up on."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import gzip
import json
import random
import shutil
import socket
import struct
import subprocess
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from shoal.base.http import Limits
from shoal.core import Unavailable
from shoal.serve.errors import RateLimited
from shoal.serve.gateway.http import connection
from tests.serve.fakes import FakeBackend
from tests.serve.fronts import Fronts, serving

SMALL = Limits(head=2048, body=1 << 20, held=3 << 20, connections=80, per_address=40, linger_s=10.0, sweep_s=0.02)
QUICK = replace(
    SMALL, idle_s=0.3, head_s=0.3, body_s=0.3, slowest_bytes_per_s=1 << 20, answer_s=0.6, linger_s=0.3
)  # fmt: skip


@dataclass
class Told:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> str:
        return str(json.loads(self.body)["error"])


@pytest.fixture
def fronts() -> Iterator[Fronts]:
    with serving() as found:
        yield found


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fronts]:
    """It gives little room, and all the time that a client may need on a busy machine."""
    monkeypatch.setattr(connection, "MOST_JSON", 4096)
    with serving(limits=SMALL) as found:
        yield found


@pytest.fixture
def quick() -> Iterator[Fronts]:
    """It is out of patience soon."""
    with serving(limits=QUICK) as found:
        yield found


def read(sock: socket.socket, *, head_only: bool = False) -> Told | None:
    """The next answer; None if the server hung up instead."""
    file = sock.makefile("rb", buffering=0)

    def line() -> bytes:
        found = b""
        while not found.endswith(b"\r\n"):
            one = file.read(1)
            if not one:
                return found
            found += one
        return found[:-2]

    with contextlib.suppress(ConnectionError):
        first = line()
        if not first:
            return None
        headers = {}
        while text := line():
            name, _, value = text.decode().partition(": ")
            headers[name.lower()] = value
        body = b""
        size = 0 if head_only else int(headers.get("content-length", 0))
        while len(body) < size:
            part = file.read(size - len(body))
            if not part:
                return None
            body += part
        return Told(int(first.split()[1]), headers, body)
    return None


def hung_up(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except ConnectionError:
        return True


def reset_at_close(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def ask(fronts: Fronts, raw: bytes, *, head_only: bool = False) -> Told:
    with fronts.connect() as sock:
        sock.sendall(raw)
        told = read(sock, head_only=head_only)
        assert told is not None
        return told


def echo(data: list[float], *, id_: str = "", headers: str = "", kind: str = "FP32", model: str = "") -> bytes:
    entry = {"name": "IN", "datatype": kind, "shape": [len(data)], "data": data}
    model = model or f"echo_{kind}"
    body = json.dumps({"id": id_, "inputs": [entry]}).encode()
    return (
        f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode()
        + body
    )


def binary(size: int, *, headers: str = "") -> bytes:
    entry = {"name": "IN", "datatype": "UINT8", "shape": [size], "parameters": {"binary_data_size": size}}
    header = json.dumps({"inputs": [entry], "parameters": {"binary_data_output": True}}).encode()
    head = (
        f"POST /v2/models/echo_UINT8/infer HTTP/1.1\r\nHost: x\r\n{headers}"
        f"Inference-Header-Content-Length: {len(header)}\r\nContent-Length: {len(header) + size}\r\n\r\n"
    )
    return head.encode() + header + random.Random(size).randbytes(size)


def chunked(body: bytes, sizes: list[int]) -> bytes:
    raw = b""
    while body:
        part, body = body[: sizes[0]], body[sizes[0] :]
        sizes = sizes[1:] or [len(body) or 1]
        raw += b"%x;note=1\r\n%b\r\n" % (len(part), part)
    return raw + b"0\r\nTrailer: x\r\n\r\n"


def as_chunks(request: bytes, sizes: list[int]) -> bytes:
    head, _, body = request.partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"content-length")]
    return b"\r\n".join([*lines, b"Transfer-Encoding: chunked", b"", b""]) + chunked(body, sizes)


def output(told: Told) -> list[float]:
    found: list[float] = json.loads(told.body)["outputs"][0]["data"]
    return found


def test_two_pipelined_requests_are_answered_in_order(fronts: Fronts) -> None:
    held = fronts.backend.held["echo_FP64"] = threading.Event()
    with fronts.connect() as sock:
        sock.sendall(
            echo([1.0], id_="slow", kind="FP64")
            + echo([2.0], id_="fast")
            + b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"
        )
        wait_for(lambda: fronts.backend.running == 1)
        assert [one.id for one in fronts.backend.seen] == ["slow"]
        held.set()
        told = [read(sock) for _ in range(3)]
    assert [one and one.status for one in told] == [200, 200, 200]
    assert [json.loads(one.body)["id"] for one in told[:2] if one] == ["slow", "fast"]


def test_a_pipeline_longer_than_the_buffer(small: Fronts) -> None:
    with small.connect() as sock:
        sender = threading.Thread(target=sock.sendall, args=(b"".join(echo([float(n)]) for n in range(200)),))
        sender.start()
        found = [output(told) for _ in range(200) if (told := read(sock))]
        sender.join()
    assert found == [[float(n)] for n in range(200)]


@pytest.mark.parametrize("step", [1, 7, 100])
def test_bytes_may_come_in_any_pieces(fronts: Fronts, step: int) -> None:
    requests = b"\r\n" + echo([1.5, 2.5]) + as_chunks(echo([3.5]), [5, 1, 40]) + echo([4.5])
    with fronts.connect() as sock:
        for at in range(0, len(requests), step):
            sock.sendall(requests[at : at + step])
        assert [output(told) for _ in range(3) if (told := read(sock))] == [[1.5, 2.5], [3.5], [4.5]]


@pytest.mark.parametrize("size", [0, 1, 10_000, 300_000, 5 << 20])
def test_binary_bodies_of_all_sizes_come_back(fronts: Fronts, size: int) -> None:
    request = binary(size)
    with fronts.connect() as sock:
        for sent in (request, as_chunks(request, [7, 100_000])):
            sender = threading.Thread(target=sock.sendall, args=(sent,))
            sender.start()
            told = read(sock)
            sender.join()
            assert told is not None
            assert told.status == 200, told.body
            header = int(told.headers["inference-header-content-length"])
            assert told.body[header:] == request[len(request) - size :]


def test_keep_alive_is_as_asked_for(fronts: Fronts) -> None:
    live = "GET /v2/health/live HTTP/{}\r\nHost: x\r\n{}\r\n"
    for version, header, stays in [
        ("1.1", "", True),
        ("1.1", "Connection: close\r\n", False),
        ("1.0", "", False),
        ("1.0", "Connection: Keep-Alive\r\n", True),
    ]:
        with fronts.connect() as sock:
            sock.sendall(live.format(version, header).encode())
            told = read(sock)
            assert told is not None
            assert told.status == 200
            assert told.headers.get("connection") == (
                "close" if not stays else "keep-alive" if version == "1.0" else None
            )
            if stays:
                sock.sendall(live.format(version, header).encode())
                assert read(sock) is not None
            else:
                assert hung_up(sock)


def test_head_is_get_without_the_body(fronts: Fronts) -> None:
    with fronts.connect() as sock:
        sock.sendall(b"HEAD /v2 HTTP/1.1\r\nHost: x\r\n\r\nGET /v2 HTTP/1.1\r\nHost: x\r\n\r\n")
        first, second = read(sock, head_only=True), read(sock)
    assert first is not None
    assert second is not None
    assert int(first.headers["content-length"]) == len(second.body) > 0
    assert second.headers["date"].endswith("GMT")


def test_100_continue_before_the_body(fronts: Fronts) -> None:
    head, _, body = echo([1.0], headers="Expect: 100-continue\r\n").partition(b"\r\n\r\n")
    with fronts.connect() as sock:
        sock.sendall(head + b"\r\n\r\n")
        first = read(sock)
        assert first is not None
        assert first.status == 100
        sock.sendall(body)
        second = read(sock)
        assert second is not None
        assert output(second) == [1.0]


def test_a_refused_body_is_not_asked_for(fronts: Fronts) -> None:
    request = (
        b"POST /v2/models/x/infer HTTP/1.1\r\nHost:\r\nExpect: 100-continue\r\nContent-Length: 99999999999\r\n\r\n"
    )
    told = ask(fronts, request)
    assert (told.status, told.headers["connection"]) == (413, "close")


@pytest.mark.parametrize(
    ("raw", "status", "complaint"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, "HTTP/1.1"),
        (b"hello\r\n\r\n", 400, "HTTP/1.1"),
        (b"GET /v2\r\n\r\n", 400, "HTTP/1.1"),
        (b"GET /v2 HTTP/1.1\r\nHost: x\r\nbroken header\r\n\r\n", 400, "HTTP/1.1"),
        (b"GET /v2 HTTP/1.1\r\nHost: x\r\nA: b\r\n folded\r\n\r\n", 400, "HTTP/1.1"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "HTTP/1.1"),
        (b"POST /v2 HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400, ""),
        (b"POST /v2 HTTP/1.1\r\nHost: x\r\nContent-Length: 1x\r\n\r\n", 400, ""),
        (b"POST /v2 HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", 400, ""),
        (b"POST /v2 HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400, ""),
        (b"POST /v2 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 400, "ambiguous"),
        (
            b"POST /v2 HTTP/1.1\r\nHost:\r\nContent-Encoding: br\r\nContent-Length: 1\r\n\r\n",
            415,
            "gzip and deflate are taken",
        ),
        (b"POST /v2 HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: ten\r\n\r\n", 400, "'ten' is no number"),
        (b"GET /v2 HTTP/1.1\r\nHost: x\r\nAuthorization: a\r\nAuthorization: b\r\n\r\n", 400, "given twice"),
        (b"GET /v2 HTTP/1.1\r\n\r\n", 400, "names its host"),
        (
            b"POST /v2 HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: 1\r\n"
            b"Inference-Header-Content-Length: 2\r\n\r\n",
            400,
            "given twice",
        ),
        (b"GET /v3 HTTP/1.1\r\nHost: x\r\n\r\n", 404, "/v3: there is nothing here"),
        (b"GET /v2/models/a/b/c HTTP/1.1\r\nHost: x\r\n\r\n", 404, "there is nothing here"),
        (b"GET /v2/models/%ff HTTP/1.1\r\nHost: x\r\n\r\n", 400, "not UTF-8"),
        (b"GET /v2/models/add%5fsub/infer HTTP/1.1\r\nHost: x\r\n\r\n", 405, "use POST"),
        (b"POST /v2/health/live HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 405, "use GET"),
        (b"POST /v2/repository/index HTTP/1.1\r\nHost:\r\nContent-Length: 2\r\n\r\n[]", 400, "must be a JSON object"),
        (
            b'POST /v2/repository/index HTTP/1.1\r\nHost:\r\nContent-Length: 11\r\n\r\n{"ready":1}',
            400,
            "ready: must be",
        ),
        (
            b"POST /v2/models/x/infer HTTP/1.1\r\nHost:\r\nContent-Length: 9000000\r\n\r\n",
            413,
            "JSON has 9000000 bytes",
        ),
    ],
)
def test_what_is_wrong_is_said(fronts: Fronts, raw: bytes, status: int, complaint: str) -> None:
    told = ask(fronts, raw)
    assert told.status == status
    assert complaint in told.error


def test_a_wrong_method_says_the_right_one(fronts: Fronts) -> None:
    assert ask(fronts, b"DELETE /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n").headers["allow"] == "GET"


def test_no_token_says_which_kind(fronts: Fronts) -> None:
    fronts.backend.tokens["t"] = "ada"
    told = ask(fronts, b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (told.status, told.headers["www-authenticate"]) == (401, 'Bearer realm="shoal"')


def test_too_many_requests_says_when_to_come_back(fronts: Fronts) -> None:
    fronts.backend.failing["echo_FP32"] = RateLimited("too fast", retry_after_s=1.2)
    told = ask(fronts, echo([1.0]))
    assert (told.status, told.headers["retry-after"], json.loads(told.body)["code"]) == (429, "2", "rate-limited")


def test_an_error_does_not_end_the_connection_if_the_next_request_can_be_found(fronts: Fronts) -> None:
    with fronts.connect() as sock:
        sock.sendall(b"GET /v3 HTTP/1.1\r\nHost: x\r\n\r\n" + echo([1.0], model="nobody") + echo([2.0]))
        told = [read(sock) for _ in range(3)]
    assert [one and one.status for one in told] == [404, 404, 200]


def test_metrics_are_the_operators(fronts: Fronts) -> None:
    fronts.backend.tokens.update({"t-ada": "ada", "t-root": ""})
    get = "GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\r\n"
    assert ask(fronts, get.format("t-ada").encode()).status == 403
    told = ask(fronts, get.format("t-root").encode())
    assert (told.body, told.headers["content-type"].split(";")[0]) == (b"up 1\n", "text/plain")


@pytest.mark.parametrize(
    "body",
    [
        b"5\r\nhello0\r\n\r\n",
        b"-5\r\nhello\r\n0\r\n\r\n",
        b"5 5\r\nhello\r\n0\r\n\r\n",
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b"\r\nhello\r\n0\r\n\r\n",
        b"5\nhello\r\n0\r\n\r\n",
        b"5\r\nhello\r\n0\r\n" + b"a: b\r\n" * 65 + b"\r\n",
        b"5;" + b"x" * 300 + b"\r\nhello\r\n0\r\n\r\n",
        b"ffffffffffffffff\r\n",
    ],
)
def test_broken_chunks_are_refused(fronts: Fronts, body: bytes) -> None:
    head = b"POST /v2/repository/index HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    told = ask(fronts, head + body)
    assert (told.status, told.headers["connection"]) == (400, "close")


def test_too_long_a_head(small: Fronts) -> None:
    told = ask(small, b"GET /v2 HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 3000)
    assert told.status == 431
    assert "longer than 2048 bytes" in told.error


def test_too_large_a_body_is_answered_while_it_is_still_sent(small: Fronts) -> None:
    with small.connect() as sock:
        sock.sendall(b"POST /v2/models/echo_UINT8/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 50000000\r\n\r\n")
        with contextlib.suppress(OSError):
            for _ in range(100):
                sock.sendall(bytes(10_000))
        told = read(sock)
    assert told is not None
    assert told.status == 413


def test_too_much_in_chunks(small: Fronts) -> None:
    told = ask(small, as_chunks(binary(1 << 20), [1 << 16]))
    assert (told.status, told.headers["connection"]) == (413, "close")
    told = ask(small, as_chunks(echo([1.0] * 2000), [100]))
    assert told.status == 413
    assert "JSON has" in told.error


def test_bodies_in_all_may_not_take_more_than_is_allowed(small: Fronts) -> None:
    size = (1 << 20) - 1000
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            sock = stack.enter_context(small.connect())
            sock.sendall(binary(size)[:-1])
        wait_for(lambda: small.http._held > 3 * size)
        told = ask(small, binary(size))
        assert (told.status, told.headers["retry-after"]) == (503, "1")
        assert "bytes in all" in told.error
        told = ask(small, as_chunks(binary(size), [1 << 16]))
        assert told.status == 503
    until = time.monotonic() + 10
    while ask(small, binary(size)).status != 200:
        assert time.monotonic() < until


@pytest.mark.parametrize(
    "beginning", [b"GET /v2 HTTP/1.1\r\nHost: x\r\n", binary(50_000)[:-1], as_chunks(echo([1.0]), [3])[:-1]]
)
def test_a_slow_sender_is_told_so(quick: Fronts, beginning: bytes) -> None:
    with quick.connect() as sock:
        sock.sendall(beginning)
        told = read(sock)
        assert told is not None
        assert (told.status, told.headers["connection"]) == (408, "close")
        assert hung_up(sock)


def test_a_byte_now_and_then_does_not_help(quick: Fronts) -> None:
    with quick.connect() as sock:
        with contextlib.suppress(OSError):
            for byte in b"GET /v2 HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 60:
                sock.sendall(bytes([byte]))
                time.sleep(0.02)
        told = read(sock)
    assert told is not None
    assert told.status == 408


def test_an_idle_connection_is_closed(quick: Fronts) -> None:
    with quick.connect() as sock:
        assert hung_up(sock)
    with quick.connect() as sock:
        sock.sendall(b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read(sock) is not None
        assert hung_up(sock)


def test_who_does_not_read_answers_is_cut_off(quick: Fronts) -> None:
    request = binary(1_000_000)
    with quick.connect() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(60.0)
        with pytest.raises(ConnectionError):
            sock.sendall(request * 100)
        assert len(quick.backend.seen) < 20


def test_a_backend_that_never_answers(quick: Fronts) -> None:
    quick.backend.held["echo_FP32"] = threading.Event()
    told = ask(quick, echo([1.0]))
    assert told.status == 503
    assert "no answer within 0.6 s" in told.error
    wait_for(lambda: quick.backend.running == 0)  # the answer may be here before the server's thread has cleaned up


def test_too_many_connections_that_wait_for_answers(small: Fronts) -> None:
    held = small.backend.held["echo_FP32"] = threading.Event()
    with contextlib.ExitStack() as stack:
        busy = [stack.enter_context(small.connect()) for _ in range(40)]
        for sock in busy:
            sock.sendall(echo([1.0]))
        wait_for(lambda: small.backend.running == 40)
        extra = stack.enter_context(small.connect())
        told = read(extra)
        assert told is not None
        assert (told.status, told.headers["retry-after"]) == (503, "1")
        assert "too many connections" in told.error
        held.set()
        for sock in busy:
            told = read(sock)
            assert told is not None
            assert told.status == 200


def test_idle_connections_give_way_to_a_new_one(small: Fronts) -> None:
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(small.connect()) for _ in range(40)]
        for sock in idle:
            sock.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
            assert read(sock) is not None
        assert ask(small, b"GET /v2/health/ready HTTP/1.1\r\nHost: x\r\n\r\n").status == 200
        gone = [sock for sock in idle if _closed(sock)]
        assert len(gone) == 1


def _closed(sock: socket.socket) -> bool:
    sock.setblocking(False)
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


@pytest.mark.parametrize("cut", ["in the head", "in the body", "with a reset"])
def test_clients_that_disappear_leave_nothing_behind(fronts: Fronts, cut: str) -> None:
    fronts.backend.held["echo_UINT8"] = threading.Event()
    request = binary(200_000)
    with fronts.connect() as sock:
        if cut == "in the head":
            sock.sendall(request[:30])
        elif cut == "in the body":
            sock.sendall(request[:-10])
        else:
            sock.sendall(request)
            wait_for(lambda: fronts.backend.running == 1)
            reset_at_close(sock)
    wait_for(lambda: not fronts.http._connections)
    wait_for(lambda: fronts.backend.running == 0)
    assert fronts.http._held == 0
    assert fronts.backend.cancelled == (1 if cut == "with a reset" else 0)
    fronts.backend.held.clear()
    assert ask(fronts, request).status == 200


def test_a_client_that_said_all_it_has_to_say_gets_its_answers(fronts: Fronts) -> None:
    """A caller may end its side once it has asked: `nc` does, and some HTTP libraries."""
    held = fronts.backend.held["echo_FP64"] = threading.Event()
    with fronts.connect() as sock:
        sock.sendall(echo([1.0], kind="FP64") + echo([2.0]))
        sock.shutdown(socket.SHUT_WR)
        wait_for(lambda: fronts.backend.running == 1)
        held.set()
        assert [output(told) for _ in range(2) if (told := read(sock))] == [[1.0], [2.0]]
        assert hung_up(sock)
    with fronts.connect() as sock:
        sock.sendall(echo([1.0])[:-1])
        sock.shutdown(socket.SHUT_WR)
        assert hung_up(sock)


def test_a_target_may_be_a_whole_url(fronts: Fronts) -> None:
    for target in (b"http://gateway:8000/v2/health/ready", b"HTTPS://gateway/v2/health/ready?x=http://y/"):
        assert ask(fronts, b"GET " + target + b" HTTP/1.1\r\nHost: other\r\n\r\n").status == 200
    assert ask(fronts, b"GET http://gateway HTTP/1.1\r\nHost: x\r\n\r\n").status == 404


def compressed(request: bytes, coding: str) -> bytes:
    head, _, body = request.partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"content-length")]
    packed = gzip.compress(body) if coding == "gzip" else zlib.compress(body)
    more = [f"Content-Encoding: {coding}".encode(), b"Content-Length: %d" % len(packed), b"", b""]
    return b"\r\n".join([*lines, *more]) + packed


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_bodies_may_be_compressed(fronts: Fronts, coding: str) -> None:
    request = binary(300_000)
    with fronts.connect() as sock:
        for sent in (compressed(request, coding), as_chunks(compressed(request, coding), [11, 9000]), request):
            sock.sendall(sent)
            told = read(sock)
            assert told is not None
            assert told.status == 200, told.body
            header = int(told.headers["inference-header-content-length"])
            assert told.body[header:] == request[len(request) - 300_000 :]
    wait_for(lambda: fronts.http._held == 0)


def test_compressed_members_may_follow_one_another(fronts: Fronts) -> None:
    body = b"".join(gzip.compress(bytes([byte])) for byte in b'{"ready": true}')
    head = (
        f"POST /v2/repository/index HTTP/1.1\r\nHost:\r\nContent-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    assert ask(fronts, head.encode() + body).status == 200
    body = gzip.compress(b"") * 5000
    head = head.replace(str(len(gzip.compress(b"{")) * 15), str(len(body)))
    told = ask(fronts, head.encode() + body)
    assert (told.status, "members" in told.error) == (400, True)


@pytest.mark.slow
def test_a_body_that_grows_beyond_the_limit_is_refused(small: Fronts) -> None:
    for size in ((1 << 20) + 1, 300 << 20):
        bomb = gzip.compress(bytes(size), 9)
        head = (
            "POST /v2/models/echo_UINT8/infer HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\n"
            f"Inference-Header-Content-Length: 2\r\nContent-Length: {len(bomb)}\r\n\r\n"
        )
        told = ask(small, head.encode() + bomb)
        assert (told.status, told.headers["connection"]) == (413, "close")
        assert "when it is decompressed" in told.error
    told = ask(small, compressed(echo([1.0] * 2000), "gzip"))
    assert told.status == 413
    assert "JSON has" in told.error
    wait_for(lambda: small.http._held == 0)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda body: body[:-4], "cut off"),
        (lambda body: body + b"more", "goes on after its end"),
        (lambda body: b"nothing packed", "cannot be decompressed"),
    ],
)
def test_a_broken_compressed_body_says_so(fronts: Fronts, change: Callable[[bytes], bytes], complaint: str) -> None:
    body = change(gzip.compress(b'{"ready": true}'))
    head = (
        f"POST /v2/repository/index HTTP/1.1\r\nHost:\r\nContent-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    told = ask(fronts, head.encode() + body)
    assert told.status == 400
    assert complaint in told.error


def wait_for(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.002)


def test_garbage_of_all_kinds_is_survived(quick: Fronts) -> None:
    dice = random.Random(7)
    good = [
        echo([1.0]),
        binary(3000),
        as_chunks(binary(500), [100]),
        b"GET /v2/models/add_sub HTTP/1.1\r\nHost: x\r\n\r\n",
    ]
    for _ in range(150):
        raw = bytearray(b"".join(dice.choices(good, k=2)))
        for _ in range(dice.randint(1, 6)):
            at = dice.randrange(len(raw))
            match dice.randrange(3):
                case 0:
                    raw[at] = dice.randrange(256)
                case 1:
                    del raw[at : at + dice.randint(1, 20)]
                case _:
                    raw[at:at] = dice.randbytes(dice.randint(1, 8))
        with quick.connect() as sock, contextlib.suppress(ConnectionError):
            sock.sendall(raw)
            sock.shutdown(socket.SHUT_WR)
            while told := read(sock):
                assert told.status in (200, 400, 404, 405, 408, 413, 415, 431)
    assert ask(quick, echo([1.0])).status == 200
    wait_for(lambda: quick.http._held == 0)


def test_stopping_answers_what_is_on_its_way_and_closes_the_rest() -> None:
    with serving() as fronts:
        held = fronts.backend.held["echo_FP32"] = threading.Event()
        with fronts.connect() as idle, fronts.connect() as busy, fronts.connect() as sending:
            idle.sendall(b"GET /v2/health/ready HTTP/1.1\r\nHost: x\r\n\r\n")
            told = read(idle)
            assert told is not None
            assert told.status == 200
            sending.sendall(echo([2.0])[:-5])
            wait_for(lambda: fronts.http._held > 0)  # it is no idle connection any more
            busy.sendall(echo([1.0]))
            wait_for(lambda: fronts.backend.running == 1)
            stopping = asyncio.run_coroutine_threadsafe(fronts.http.stop(10.0), fronts.loop)
            assert hung_up(idle)
            with pytest.raises(ConnectionError):
                fronts.connect()
            held.set()
            sending.sendall(echo([2.0])[-5:])
            for sock in (busy, sending):
                told = read(sock)
                assert told is not None
                assert (told.status, told.headers["connection"]) == (200, "close")
                assert hung_up(sock)
            stopping.result(10)


def test_stopping_does_not_wait_for_ever() -> None:
    with serving() as fronts:
        fronts.backend.held["echo_FP32"] = threading.Event()
        with fronts.connect() as busy, fronts.connect() as sending:
            sending.sendall(binary(100_000)[:-5])
            wait_for(lambda: fronts.http._held > 0)
            busy.sendall(echo([1.0]))
            wait_for(lambda: fronts.backend.running == 1)
            fronts.run(lambda: fronts.http.stop(0.05))
            for sock in (busy, sending):
                told = read(sock)
                assert told is not None
                assert (told.status, told.error) == (503, "the server is being stopped")
                assert hung_up(sock)
        assert fronts.backend.running == 0


def test_stopping_waits_for_an_answer_that_is_being_taken() -> None:
    with serving() as fronts, fronts.connect() as sock:
        sock.sendall(binary(30 << 20))  # more than the system buffers
        wait_for(lambda: fronts.http._held == 0 and bool(fronts.backend.seen))
        stopping = asyncio.run_coroutine_threadsafe(fronts.http.stop(10.0), fronts.loop)
        told = read(sock)
        assert told is not None
        assert len(told.body) > 30 << 20
        assert hung_up(sock)
        stopping.result(10)


def test_a_port_that_is_taken(fronts: Fronts) -> None:
    with pytest.raises(Unavailable, match=rf"127\.0\.0\.1:{fronts.http_port}: the port cannot be listened on"):
        fronts.run(lambda: fronts.http.start(port=fronts.http_port))


def test_a_defect_in_the_check_of_a_token_is_an_answer(fronts: Fronts, caplog: pytest.LogCaptureFixture) -> None:
    def defect(_token: str | None) -> str | None:
        raise ZeroDivisionError

    fronts.backend.tenant_of = defect  # type: ignore[method-assign]
    told = ask(fronts, b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (told.status, told.headers["connection"]) == (500, "close")
    assert "ZeroDivisionError" in caplog.text


def test_a_model_whose_name_needs_quoting() -> None:
    backend = FakeBackend()
    backend.models["a/b c"] = backend.models["echo_FP32"]
    with serving(backend) as fronts:
        assert ask(fronts, echo([1.0], model="a%2Fb%20c")).status == 200
        assert ask(fronts, echo([1.0], model="a/b%20c")).status == 404


def test_a_raw_body(fronts: Fronts) -> None:
    data = random.Random(1).randbytes(8)
    head = b"POST /v2/models/echo_FP32/infer HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: 0\r\nContent-Length: 8\r\n\r\n"  # noqa: E501
    told = ask(fronts, head + data)
    assert told.body.endswith(data)
    assert ask(fronts, head.replace(b"echo_FP32", b"add_sub") + data).status == 400


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")
def test_curl(fronts: Fronts, tmp_path: Path) -> None:
    def curl(*arguments: Any) -> bytes:
        return subprocess.run(
            ["curl", "-sS", "--max-time", "10", *map(str, arguments)], capture_output=True, check=True
        ).stdout

    body = tmp_path / "body.json"
    body.write_text(json.dumps({"inputs": [{"name": "IN", "datatype": "FP32", "shape": [3000], "data": [0.5] * 3000}]}))
    infer = f"{fronts.url}/v2/models/echo_FP32/infer"
    for how in ([], ["-H", "Transfer-Encoding: chunked"], ["-H", "Expect: 100-continue"], ["--http1.0"], ["--http2"]):
        found = json.loads(curl("--data-binary", f"@{body}", *how, infer))
        assert found["outputs"][0]["data"] == [0.5] * 3000
    assert curl("-o", "/dev/null", "-w", "%{http_code}", "-I", f"{fronts.url}/v2/health/live") == b"200"
    assert json.loads(curl(f"{fronts.url}/v2/models/nobody"))["error"] == "model 'nobody': there is no such model"


@pytest.mark.slow
def test_nothing_is_left_to_the_garbage_collector() -> None:
    """Bodies are large: they must be freed when they are done with, not at the next collection."""
    raws = [
        binary(100_000),
        as_chunks(echo([1.0]), [9]),
        b"GET /v3 HTTP/1.1\r\nHost: x\r\n\r\n",
        echo([1.0], model="nobody"),
        b"?",
    ]
    with serving(limits=replace(SMALL, head_s=0.3)) as fronts:
        gc.collect()
        gc.disable()
        try:
            for _ in range(3):
                with fronts.connect() as sock:
                    for raw in raws:
                        sock.sendall(raw)
                        assert read(sock) is not None
            wait_for(lambda: not fronts.http._connections)
            fronts.backend.seen.clear()
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            left = [type(one).__qualname__ for one in gc.garbage if type(one).__module__.startswith("shoal")]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
    assert left == []


def test_health_is_told_in_a_body_too(fronts: Fronts) -> None:
    """KServe's own client reads it; others look at the status alone."""
    for path, told in (
        ("health/live", {"live": True}),
        ("health/ready", {"ready": True}),
        ("models/add_sub/ready", {"name": "add_sub", "ready": True}),
    ):
        answer = ask(fronts, f"GET /v2/{path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert (answer.status, json.loads(answer.body)) == (200, told)
