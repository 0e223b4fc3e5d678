"""Where the last lines of a log begin, whatever its size and whatever was removed from its middle."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.contract.lifecycle import JobState
from shoal.control.api.feed import Feed
from shoal.control.api.logs import _TAIL_BYTES, _TAIL_MOST_BYTES, _Log
from shoal.engine import LogChunk, LogTimes


@dataclass
class Plane:
    """Holds a log, of which `hole` (begin, end) was removed."""

    written: bytes
    hole: tuple[int, int] | None = None
    times: LogTimes = ()

    async def logs(self, job_id: str, *, rank: int, attempt: int | None, offset: int, limit: int) -> LogChunk:
        begin = offset if offset >= 0 else max(0, len(self.written) + offset)
        end = begin + limit
        if self.hole is not None:
            begin = self.hole[1] if self.hole[0] <= begin < self.hole[1] else begin
            end = min(end, self.hole[0]) if begin < self.hole[0] else begin + limit
        data = self.written[begin:end]
        return LogChunk(data, begin, begin + len(data), ended=False)

    def job(self, job_id: str) -> Any:
        return SimpleNamespace(attempt=1, state=JobState.SUCCEEDED)

    async def log_times(self, job_id: str, *, rank: int, attempt: int | None) -> LogTimes:
        return self.times


async def begins(plane: Plane, lines: int) -> int:
    context: Any = SimpleNamespace(plane=plane)
    return await _Log(context, "j-1", 0).last_lines(1, lines)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from((0, 1, 80, 5000, 70_000)), max_size=40), st.integers(0, 50), st.booleans())
async def test_the_last_lines_are_those_of_the_whole_log(lengths: list[int], lines: int, ended: bool) -> None:
    written = b"".join(b"x" * length + b"\n" for length in lengths) + (b"" if ended else b"half")
    whole = written.splitlines(keepends=True)
    told = b"".join(whole[max(0, len(whole) - lines) :]) if lines else b""
    assert written[await begins(Plane(written), lines) :] == told


async def test_of_a_log_without_lines_no_more_than_the_limit_is_told() -> None:
    written = b"x" * (2 * _TAIL_MOST_BYTES)
    assert await begins(Plane(written), 1) == len(written) - _TAIL_MOST_BYTES


@pytest.mark.parametrize("lines", [1, 5, 1000])
async def test_what_lies_before_a_removed_middle_is_not_told(lines: int) -> None:
    written = b"early\n" * 100 + b"\0" * 5000 + b"late\n" * 7
    plane = Plane(written, hole=(600, 5600))
    assert written[await begins(plane, lines) :] == b"late\n" * min(lines, 7)
    assert len(written) < _TAIL_BYTES


async def first_since(plane: Plane, since: float) -> int:
    context: Any = SimpleNamespace(plane=plane)
    return await _Log(context, "j-1", 0).first_line(1, since)


@pytest.mark.parametrize(("size", "begin"), [(0, 0), (3, 0), (6, 6), (7, 6), (11, 6), (12, 12)])
async def test_a_line_that_goes_over_a_time_is_told_whole(size: int, begin: int) -> None:
    assert await first_since(Plane(b"early\nlater\n", times=((size, 50.0), (13, 60.0))), 55.0) == begin


async def test_a_long_line_is_cut_and_a_removed_middle_is_not_told() -> None:
    long = Plane(b"x" * (3 * _TAIL_BYTES), times=((2 * _TAIL_BYTES, 50.0),))
    assert await first_since(long, 55.0) == _TAIL_BYTES
    for size in (300, 5600, 5602):
        plane = Plane(b"early\n" * 100 + b"\0" * 5000 + b"late\n" * 7, hole=(600, 5600), times=((size, 50.0),))
        assert await first_since(plane, 55.0) == {300: 300, 5600: 5600, 5602: 5600}[size]
    inside = Plane(b"early\n" * 100 + b"\0" * 5000 + b"late\n" * 7, hole=(600, 5600), times=((3000, 50.0),))
    assert await first_since(inside, 55.0) in (600, 5600)


@pytest.mark.parametrize(
    ("offset", "begin", "fresh"),
    [
        (0, 0, True),
        (6, 6, True),
        (3, 3, False),
        (3000, 5600, True),
        (5600, 5600, True),
        (5605, 5605, True),
        (5607, 5607, False),
    ],
)
async def test_times_stand_before_lines_and_not_before_parts_of_lines(offset: int, begin: int, fresh: bool) -> None:
    plane = Plane(b"early\n" * 100 + b"\0" * 5000 + b"late\n" * 7, hole=(600, 5600), times=((5635, 0.0),))
    context: Any = SimpleNamespace(plane=plane, feed=Feed(), limits=SimpleNamespace(log_poll_s=1.0))
    piece = await _Log(context, "j-1", 0, timestamps=True).wait(1, offset, 2, 0.0)
    assert piece.chunk.offset == begin
    told = plane.written[begin : begin + 2]
    assert piece.chunk.data == (b"1970-01-01T00:00:00Z " if fresh else b"") + told
