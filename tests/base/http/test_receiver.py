"""Bytes become the same requests, however they are cut, and never more than the limits allow."""

from __future__ import annotations

import contextlib
import gzip
import random
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.base.http import BodyTooLarge, HeadTooLarge, Malformed, UnsupportedCoding
from shoal.base.http.chunks import ChunkedBody
from shoal.base.http.coding import Inflated, Plain
from shoal.base.http.head import Head, parse
from shoal.base.http.receiver import _LARGE, Receiver

FIRST = b"POST /v1/%d HTTP/1.1\r\nHost: a\r\n"


def sized(number: int, body: bytes) -> bytes:
    return FIRST % number + b"Content-Length: %d\r\n\r\n" % len(body) + body


def chunked(body: bytes, sizes: list[int]) -> bytes:
    raw = b""
    while body:
        part, body = body[: sizes[0]], body[sizes[0] :]
        sizes = sizes[1:] or [len(body) or 1]
        raw += b"%x;note=1\r\n%b\r\n" % (len(part), part)
    return raw + b"0\r\nTrailer: x\r\n\r\n"


def in_chunks(number: int, body: bytes, sizes: list[int]) -> bytes:
    return FIRST % number + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(body, sizes)


def packed(number: int, body: bytes, coding: str, sizes: list[int] | None = None) -> bytes:
    data = gzip.compress(body) if coding == "gzip" else zlib.compress(body)
    head = FIRST % number + f"Content-Encoding: {coding}\r\n".encode()
    if sizes:
        return head + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(data, sizes)
    return head + b"Content-Length: %d\r\n\r\n" % len(data) + data


def received(raw: bytes, sizes: list[int], *, collects: bool, head_limit: int = 512) -> list[tuple[bytes, bytes]]:
    """What a receiver makes of bytes that come in pieces of these sizes."""
    receiver: Receiver[Head] = Receiver(head_limit, 100_000 if collects else None, lambda head: head)
    found: list[tuple[bytes, bytes]] = []

    def take() -> None:
        while True:
            if receiver.streaming:
                target, body = found[-1]
                found[-1] = target, body + receiver.piece()
                if receiver.streaming:
                    return
            one = receiver.take()
            if one is None:
                return
            found.append((one[0].target, bytes(one[1])))

    at = 0
    for size in [*sizes, len(raw)]:
        left = min(size, len(raw) - at)
        while left:
            space = receiver.space()
            count = min(left, len(space))
            space[:count] = raw[at : at + count]
            receiver.came(count)
            at, left = at + count, left - count
            take()
    assert not receiver.lost
    return found


BODIES = st.one_of(st.binary(max_size=40), st.integers(0, 3000).map(lambda size: random.Random(size).randbytes(size)))


@st.composite
def requests(draw: st.DrawFn, *, codings: bool) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """Requests one after the other, and what they are."""
    raw, expected = b"", []
    for number, body in enumerate(draw(st.lists(BODIES, min_size=1, max_size=5))):
        sizes = draw(st.lists(st.integers(1, 700), min_size=1, max_size=4))
        forms = [sized(number, body), in_chunks(number, body, sizes), b"\r\n" + sized(number, body)]
        if codings:
            forms += [packed(number, body, "gzip"), packed(number, body, "deflate", sizes)]
        raw += draw(st.sampled_from(forms))
        expected.append((b"/v1/%d" % number, body))
    return raw, expected


PIECES = st.lists(st.integers(1, 400), max_size=30)


@settings(max_examples=60)
@given(requests(codings=True), PIECES)
def test_collected_requests_are_the_same_in_any_pieces(
    made: tuple[bytes, list[tuple[bytes, bytes]]], sizes: list[int]
) -> None:
    raw, expected = made
    assert received(raw, sizes, collects=True) == expected


@settings(max_examples=60)
@given(requests(codings=False), PIECES)
def test_streamed_requests_are_the_same_in_any_pieces(
    made: tuple[bytes, list[tuple[bytes, bytes]]], sizes: list[int]
) -> None:
    raw, expected = made
    assert received(raw, sizes, collects=False) == expected


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_chunks_never_raise_anything_else(first: bytes, second: bytes) -> None:
    chunks = ChunkedBody(100, Plain())
    with contextlib.suppress(Malformed, BodyTooLarge):
        for data in (first, second):
            assert chunks.feed(memoryview(data)) <= len(data)
    plain = Plain()
    chunks = ChunkedBody(100, plain)
    raw = chunked(first, [7]) + second
    assert chunks.feed(memoryview(raw)) == len(raw) - len(second)
    assert (chunks.done, bytes(plain.body)) == (True, first)


@pytest.mark.parametrize("step", [1, 100, 5000])
def test_a_head_may_have_its_limit_and_no_byte_more(step: int) -> None:
    rest = b"GET / HTTP/1.1\r\nHost: x\r\nX: \r\n\r\n"
    for limit in (300, 10_000):
        whole = rest.replace(b"X: ", b"X: " + b"x" * (limit - len(rest)))
        assert received(whole, [step] * (limit // step), collects=True, head_limit=limit) == [(b"/", b"")]
        with pytest.raises(HeadTooLarge, match=f"longer than {limit} bytes"):
            received(whole.replace(b"X: ", b"X: xx"), [step] * (limit // step), collects=True, head_limit=limit)


@given(st.binary(max_size=5000), st.integers(0, 200), st.lists(st.integers(1, 50), max_size=20))
def test_nothing_is_inflated_beyond_the_limit(body: bytes, limit: int, cuts: list[int]) -> None:
    data = zlib.compress(body)
    sink = Inflated(limit)
    try:
        for size in [*cuts, len(data)]:
            sink.feed(data[:size])
            data = data[size:]
        sink.end()
    except BodyTooLarge:
        assert len(body) > limit
    else:
        assert bytes(sink.body) == body
    assert len(sink.body) <= limit + 1


def test_a_bomb_is_stopped_at_its_first_piece() -> None:
    bomb = gzip.compress(bytes(50 << 20), 9)
    sink = Inflated(1 << 20)
    with pytest.raises(BodyTooLarge, match="1048576 bytes when it is decompressed"):
        sink.feed(bomb[: 32 << 10])
    assert len(sink.body) == (1 << 20) + 1


@pytest.mark.parametrize(("coding", "collects"), [("br", True), ("gzip, br", True), ("gzip", False)])
def test_other_codings_are_refused(coding: str, collects: bool) -> None:
    raw = f"POST / HTTP/1.1\r\nHost: x\r\nContent-Encoding: {coding}\r\nContent-Length: 1\r\n\r\n".encode()
    taken = "gzip and deflate are taken" if collects else "none is taken here"
    with pytest.raises(UnsupportedCoding, match=rf"^Content-Encoding: the body is {coding}-coded \({taken}\)$"):
        received(raw, [], collects=collects)
    assert received(raw.replace(b"Length: 1", b"Length: 0"), [], collects=collects) == [(b"/", b"")]


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (b"/a?b", b"/a?b"),
        (b"*", b"*"),
        (b"http://h", b"/"),
        (b"http://h:1/a/b?c=http://d/e", b"/a/b?c=http://d/e"),
        (b"HTTPS://u@h/x", b"/x"),
        (b"http://h?q", b"/?q"),
        (b"ftp://h/x", b"ftp://h/x"),
    ],
)
def test_targets(target: bytes, path: bytes) -> None:
    method = b"OPTIONS" if target == b"*" else b"GET"
    assert parse(method + b" " + target + b" HTTP/1.1\r\nHost: x\r\n\r\n").target == path


@pytest.mark.parametrize("name", ["Host", "Authorization", "Content-Length", "Content-Type"])
def test_a_header_that_can_be_read_in_two_ways_is_refused(name: str) -> None:
    with pytest.raises(Malformed):
        parse(f"GET / HTTP/1.1\r\nHost: x\r\n{name}: 1\r\n{name}: 2\r\n\r\n".encode())


def test_headers_are_kept_as_they_came() -> None:
    head = parse(b"GET / HTTP/1.1\r\nHost:\r\nX-A: 1\r\nx-a: 2\r\nConnection: Keep-Alive\r\nConnection: close\r\n\r\n")
    assert head.headers[1:3] == ((b"x-a", b"1"), (b"x-a", b"2"))
    assert (head.get(b"x-a"), head.get(b"x-b"), head.keep_alive) == (b"1", None, False)


@pytest.mark.parametrize(
    ("expects", "there", "wants"),
    [(b"Expect: 100-continue\r\n", b"", True), (b"Expect: 100-continue\r\n", b"bo", False), (b"", b"", False)],
)
def test_a_continue_is_wanted_only_where_one_is_expected_and_no_body_has_come(
    expects: bytes, there: bytes, wants: bool
) -> None:
    receiver: Receiver[Head] = Receiver(512, 100, lambda head: head)
    raw = FIRST % 1 + expects + b"Content-Length: 4\r\n\r\n" + there
    receiver.space()[: len(raw)] = raw
    receiver.came(len(raw))
    assert receiver.take() is None
    assert receiver.wants_continue is wants


@pytest.mark.parametrize(
    ("raw", "kept"),
    [
        (sized(1, b"0123456789")[:-6], 4),
        (in_chunks(1, b"0123456789", [4, 6])[:-30], 4),
        (packed(1, bytes(1000), "gzip"), 1000),
    ],
    ids=["counted", "in chunks", "compressed"],
)
def test_what_has_come_of_a_body_is_counted_as_it_is_kept(raw: bytes, kept: int) -> None:
    receiver: Receiver[Head] = Receiver(512, 100_000, lambda head: head)
    raw = raw[:-1] if kept == 1000 else raw
    receiver.space()[: len(raw)] = raw
    receiver.came(len(raw))
    assert receiver.take() is None
    assert receiver.received == kept


def test_a_large_body_is_read_where_it_stays() -> None:
    body = random.Random(0).randbytes(_LARGE)
    assert received(sized(1, body) + sized(2, b"next"), [700, _LARGE // 2], collects=True) == [
        (b"/v1/1", body), (b"/v1/2", b"next"),
    ]  # fmt: skip
