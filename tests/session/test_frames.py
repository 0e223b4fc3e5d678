"""Frames, what is kept of the output, and what a person types to the session itself."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.session import frames
from shoal.session.client.escapes import Escapes, Wish

_KINDS = st.sampled_from([frames.OUTPUT, frames.INPUT, frames.ACK])


def _cut(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in itertools.pairwise(places)]


@given(st.lists(st.tuples(_KINDS, st.binary(max_size=300)), max_size=8), st.lists(st.integers(0, 5000), max_size=12))
def test_frames_arrive_whole_however_they_are_cut(sent: list[tuple[bytes, bytes]], cuts: list[int]) -> None:
    data, came, found = b"".join(frames.frame(*one) for one in sent), bytearray(), []
    for part in _cut(data, cuts):
        came += part
        found += frames.take_frames(came)
    assert found == sent
    assert not came


def test_a_frame_that_claims_too_much_is_refused() -> None:
    with pytest.raises(ValueError, match="too long"):
        frames.take_frames(bytearray(b"I\xff\xff\xff\xff"))


@given(st.binary(max_size=200))
def test_fields_of_anything_are_read_without_an_error(data: bytes) -> None:
    fields = frames.read_fields(data)
    assert all(0 <= frames.number(fields, name) <= 1 << 62 for name in fields)


@given(st.binary(max_size=300))
def test_a_remark_obeys_nothing(data: bytes) -> None:
    assert frames.plain(data).isprintable()


@given(st.lists(st.tuples(st.integers(1, frames.MOST), st.booleans()), max_size=60))
def test_what_is_kept_is_the_end_of_what_was_written(steps: list[tuple[int, bool]]) -> None:
    kept, whole = frames.Kept(), b""
    for size, drop in steps:
        payload = bytes([len(whole) % 251]) * size
        kept.add(frames.OUTPUT, payload)
        whole += frames.frame(frames.OUTPUT, payload)
        if drop:
            kept.drop(kept.end)
            assert kept.end - kept.begin <= frames.KEPT
    assert kept.end == len(whole)
    assert b"".join(kept.frames) == whole[kept.begin :]
    for place, offset in enumerate(kept.offsets):
        assert kept.number_at(offset) == kept.first + place


@given(st.binary(max_size=60).map(lambda data: data.replace(b"~", b"")), st.lists(st.integers(0, 60), max_size=5))
def test_what_has_no_tilde_is_passed_on_as_it_is(data: bytes, cuts: list[int]) -> None:
    escapes, out = Escapes(), b""
    for part in _cut(data, cuts):
        passed, wishes = escapes.feed(part)
        out += passed
        assert not wishes
    assert out == data


@pytest.mark.parametrize(
    ("typed", "passed", "wishes"),
    [
        (b"~d", b"", [Wish.DETACH]),
        (b"ls\r~d more", b"ls\r", [Wish.DETACH]),
        (b"ls\r~.", b"ls\r", [Wish.DETACH]),
        (b"a~d", b"a~d", []),
        (b"~~d", b"~d", []),
        (b"~?x", b"x", [Wish.HELP]),
        (b"~x", b"~x", []),
        (b"~X~d", b"~X~d", []),
        (b"~\r~d", b"~\r", [Wish.DETACH]),
    ],
)
def test_a_tilde_at_the_beginning_of_a_line(typed: bytes, passed: bytes, wishes: list[Wish]) -> None:
    assert Escapes().feed(typed) == (passed, wishes)
    escapes, out, found = Escapes(), b"", []
    for byte in typed:
        one, more = escapes.feed(bytes([byte]))
        out, found = out + one, found + more
        if Wish.DETACH in more:
            break
    assert (out, found) == (passed, wishes)


def test_a_count_of_somebody_else_is_bounded_and_none_where_it_is_missing() -> None:
    assert frames.number({"a": str(1 << 63)}, "a") == 1 << 62
    assert frames.number({"a": "7"}, "a", 5) == 5
    assert [frames.number({"a": text}, "a") for text in ("7", "-7", "7.0", "\u0667", "1" * 20)] == [7, 0, 0, 0, 0]
    assert frames.number({}, "a") == 0


def test_numbers_of_frames_go_on_over_what_was_dropped() -> None:
    kept, payload = frames.Kept(), b"x" * frames.MOST
    each = len(frames.frame(frames.OUTPUT, payload))
    count = frames.KEPT // each + 4
    for _ in range(count):
        kept.add(frames.OUTPUT, payload)
    kept.drop(kept.end)
    assert 0 < kept.first < count
    assert kept.begin == kept.first * each
    assert [kept.number_at(number * each) for number in range(kept.first, count + 1)] == list(
        range(kept.first, count + 1)
    )
    kept.drop(kept.begin + each - 1)
    assert kept.number_at(kept.begin) == kept.first
