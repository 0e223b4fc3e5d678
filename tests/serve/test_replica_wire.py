"""Frames in whatever pieces, regions that never overlap, and bodies that nobody has to believe."""

from __future__ import annotations

import contextlib
import itertools
import os
import struct
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from shoal.core import Forbidden, ShoalError
from shoal.inference.errors import BadModel, BadRequest, ModelFailed
from shoal.inference.opening import LoadReport, WarmupRuns
from shoal.inference.types import DataType, ModelMetadata, ModelSpec, StatePair, TensorSpec
from shoal.serve.errors import NotReady
from shoal.serve.replica import messages
from shoal.serve.replica.arena import ALIGNMENT, Allocator, Arena, ArenaSpan
from shoal.serve.replica.messages import ExecutionRequest, ExecutionResponse, Placed, Times
from shoal.serve.replica.wire import Frame, FrameReader, Kind, Limits, WireError, encode

SMALL = Limits(body=2000, payload=5000)


def feed(reader: FrameReader, data: bytes, cuts: list[int]) -> list[Frame]:
    """Hand over the data in pieces of these sizes, over and over."""
    frames, at, turn = [], 0, 0
    while at < len(data):
        buffer = reader.buffer()
        count = min(len(buffer), len(data) - at, cuts[turn % len(cuts)])
        assert count > 0, "there is always room to read on"
        buffer[:count] = data[at : at + count]
        frames += reader.received(count)
        at, turn = at + count, turn + 1
    return frames


BODIES = st.recursive(
    st.none() | st.integers(0, 2**53) | st.text(max_size=5), lambda inner: st.lists(inner, max_size=4), max_leaves=8
)
FRAMES = st.tuples(st.sampled_from(Kind), st.integers(0, 2**32 - 1), BODIES, st.binary(max_size=300))


@given(st.lists(FRAMES, max_size=6), st.lists(st.integers(1, 200), min_size=1, max_size=5))
def test_frames_survive_any_cutting(sent: list[tuple[Kind, int, Any, bytes]], cuts: list[int]) -> None:
    data = b"".join(encode(kind, number, body, len(payload)) + payload for kind, number, body, payload in sent)
    got = feed(FrameReader(), data, cuts)
    assert [(f.kind, f.number, f.body, bytes(f.payload or b"")) for f in got] == [tuple(each) for each in sent]


@given(st.binary(max_size=400), st.lists(st.integers(1, 50), min_size=1, max_size=3))
def test_garbage_is_noticed_or_waits_for_more(data: bytes, cuts: list[int]) -> None:
    with contextlib.suppress(WireError):
        feed(FrameReader(SMALL), data, cuts)


@given(FRAMES, st.integers(0, 30), st.integers(0, 255))
def test_a_damaged_frame_is_noticed_or_understood(frame: tuple[Kind, int, Any, bytes], at: int, value: int) -> None:
    kind, number, body, payload = frame
    data = bytearray(encode(kind, number, body, len(payload)) + payload)
    data[at % len(data)] = value
    with contextlib.suppress(WireError):
        feed(FrameReader(SMALL), bytes(data), [17])


def test_large_frames_do_not_need_a_large_buffer_in_advance() -> None:
    body, payload = "x" * 700_000, os.urandom(3_000_000)
    data = encode(Kind.PING, 1, body, len(payload)) + payload
    (frame,) = feed(FrameReader(), data * 1, [65536])
    assert (frame.body, frame.payload) == (body, payload)
    assert len(feed(FrameReader(), data * 3, [100_000, 7])) == 3


@pytest.mark.parametrize(
    "header", [(0x5348, 8, 0, 2001, 0), (0x5348, 8, 0, 0, 5001), (0x5348, 99, 0, 0, 0), (1, 8, 0, 0, 0)]
)
def test_what_is_over_the_limit_is_refused_by_its_header(header: tuple[int, ...]) -> None:
    with pytest.raises(WireError):
        feed(FrameReader(SMALL), struct.pack("<HHIIQ", *header), [100])


# --- the arena ---


class AllocatorMachine(RuleBasedStateMachine):
    """Regions in use are aligned, inside, and apart; what is given back can be had again, all of it in the end."""

    SIZE = 4096
    regions = Bundle("regions")

    def __init__(self) -> None:
        super().__init__()
        self.allocator = Allocator(self.SIZE)
        self.used: set[ArenaSpan] = set()

    @rule(target=regions, size=st.integers(0, 1500))
    def allocate(self, size: int) -> ArenaSpan:
        region = self.allocator.allocate(size)
        if region is None:
            assert self.largest_hole() < max(size, 1)
            return ArenaSpan(-1, 0)
        assert region.size == size
        assert region.offset % ALIGNMENT == 0
        assert 0 <= region.offset <= self.SIZE - size
        assert region not in self.used
        self.used.add(region)
        return region

    @rule(region=consumes(regions))
    def free(self, region: ArenaSpan) -> None:
        if region.offset >= 0:
            self.used.remove(region)
            self.allocator.free(region)

    def ranges(self) -> list[tuple[int, int]]:
        taken = [(each.offset, each.offset + max(each.size, 1)) for each in self.used]
        return sorted((start, end + -end % ALIGNMENT) for start, end in taken)

    def largest_hole(self) -> int:
        edges = [0, *(side for pair in self.ranges() for side in pair), self.SIZE]
        return max(end - start for start, end in zip(edges[::2], edges[1::2], strict=True))

    @invariant()
    def regions_are_apart(self) -> None:
        ranges = self.ranges()
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ranges))
        free = sum(end - start for start, end in self.allocator._free)
        assert free == self.SIZE - sum(end - start for start, end in ranges)

    def teardown(self) -> None:
        for region in self.used:
            self.allocator.free(region)
        assert self.allocator.allocate(self.SIZE) == ArenaSpan(0, self.SIZE)


TestAllocator = AllocatorMachine.TestCase
TestAllocator.settings = settings(max_examples=40, stateful_step_count=30)


def test_the_lowest_bytes_are_used_again() -> None:
    allocator = Allocator(1024)
    first = allocator.allocate(100)
    assert first is not None
    second = allocator.allocate(100)
    allocator.free(first)
    assert allocator.allocate(64) == ArenaSpan(0, 64)
    assert second == ArenaSpan(128, 100)


def test_a_replica_can_write_the_arena_and_not_cut_it_short() -> None:
    arena, fd = Arena.create(1 << 16)
    try:
        other = Arena(fd, 1 << 16)
        other.view[100:103] = b"abc"
        assert arena.view[100:103] == b"abc"
        for size in (0, 1 << 20):
            with pytest.raises(PermissionError):
                os.ftruncate(fd, size)
    finally:
        os.close(fd)


# --- bodies ---


def over_the_wire(body: object) -> Any:
    return orjson.loads(orjson.dumps(body))


PLACED = (Placed("x", DataType.FP32, (2, 3), 64, 24),)
META = ModelMetadata("m", ("1",), "test", (TensorSpec("x", DataType.FP32, (-1, 3)),), (), 4)
REPORT = LoadReport(META, 0.5, 0.25, 1000, (WarmupRuns(1, (0.1, 0.2)),))


def test_bodies_come_back_as_they_were() -> None:
    question = ExecutionRequest(("m", "1"), PLACED, ("y",), (1, 1), 128, 64)
    assert messages.read_request(over_the_wire(messages.write_request(question))) == question
    answer = ExecutionResponse([list(PLACED), []], Times(0.1, 0.2, 0.3, 0.6))
    assert messages.read_response(over_the_wire(messages.write_response(answer))) == answer
    spec = ModelSpec("m", "p", "callable", "2", 3, 4, 5, "ab", META.inputs, META.inputs)
    assert messages.read_spec(over_the_wire(spec)) == spec
    plain = over_the_wire(messages.write_load(spec, None))
    assert not {"kept", "options", "state", "max_sequences", "sequence_idle_s"} & set(plain)  # older replicas read it
    assert messages.read_load(plain) == (spec, None)
    more = replace(spec, options={"a": [1]}, state=(StatePair("h", "hn"),), max_sequences=3, sequence_idle_s=1.0)
    assert messages.read_load(over_the_wire(messages.write_load(more, b"k\0"))) == (more, b"k\0")
    assert messages.read_report(over_the_wire(REPORT)) == REPORT
    assert messages.read_models(over_the_wire([["m", "1", REPORT]])) == {("m", "1"): REPORT}


@pytest.mark.parametrize(
    "lie", [{"load_s": -1.0}, {"resident_bytes": -1}, {"warmup_s": "1"}, {"runs": [{"batch": 1, "seconds": [-1.0]}]}]
)
def test_a_report_of_what_cannot_be_is_none(lie: dict[str, Any]) -> None:
    with pytest.raises(WireError):
        messages.read_report(over_the_wire(REPORT) | lie)


@pytest.mark.parametrize("kind", [BadModel, BadRequest, ModelFailed, NotReady])
def test_errors_come_back_as_they_were(kind: type[ShoalError]) -> None:
    error = messages.read_error(over_the_wire(messages.write_error(kind("what", where="where", hint="hint"))))
    assert (type(error), error.what, error.where, error.hint) == (kind, "what", "where", "hint")


def test_an_error_of_another_kind_is_the_models_and_never_too_long_or_unsendable() -> None:
    error = messages.read_error(over_the_wire(messages.write_error(Forbidden("a\ud800" * 10_000))))
    assert type(error) is ModelFailed
    assert len(error.what) == 4000


@pytest.mark.parametrize(
    "placed",
    [
        Placed("x", DataType.FP32, (2,), 96, 8),
        Placed("x", DataType.FP32, (2,), 10**30, 8),
        Placed("x", DataType.FP32, (2,), 0, 4),
        Placed("x", DataType.FP32, (10**9, 10**9), 0, 8),
        Placed("x", DataType.BYTES, (1,), 0, 101),
    ],
)
def test_a_tensor_must_lie_where_there_is_something(placed: Placed) -> None:
    with pytest.raises(WireError):
        messages.contents_of(placed, memoryview(bytes(100)))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=4)
    | st.sampled_from(["FP32", "BYTES", "bad-model"]),
    lambda inner: st.lists(inner, max_size=6)
    | st.dictionaries(st.sampled_from(["code", "what", "where", "hint", "metadata", "inputs", "shape", "name"]), inner),
    max_leaves=20,
)  # fmt: skip

READERS = [
    messages.read_request, messages.read_response, messages.read_error, messages.read_spec, messages.read_report,
    messages.read_models, messages.read_hello, messages.read_key, messages.read_refusal, messages.read_welcome,
]  # fmt: skip


@given(JSON, st.sampled_from(READERS))
def test_no_body_makes_a_reader_stumble(body: Any, read: Any) -> None:
    with contextlib.suppress(WireError):
        read(body)


def mutated(body: Any, path: list[int], value: Any) -> Any:
    """The body with what lies at the path replaced."""
    if not path or not isinstance(body, list | dict) or not body:
        return value
    keys: Any = range(len(body)) if isinstance(body, list) else sorted(body)
    key = keys[path[0] % len(body)]
    copy = body.copy()
    copy[key] = mutated(body[key], path[1:], value)
    return copy


@given(st.lists(st.integers(0, 9), max_size=6), JSON)
def test_an_answer_with_one_lie_is_noticed_or_harmless(path: list[int], lie: Any) -> None:
    body = over_the_wire(
        messages.write_response(ExecutionResponse([list(PLACED), ModelFailed("no")], Times(0, 0, 0, 0)))
    )
    try:
        answer = messages.read_response(mutated(body, path, lie))
    except WireError:
        return
    for outcome in answer.outcomes:
        for tensor in outcome if isinstance(outcome, list) else ():
            with contextlib.suppress(WireError):
                assert len(messages.contents_of(tensor, memoryview(bytes(100)))) == tensor.nbytes
