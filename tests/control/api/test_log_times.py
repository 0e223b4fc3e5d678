"""Times of a log's lines: which are behind a time, and what stands before each."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from shoal.control.api.log_times import offset_since, stamp


def utc(at: int) -> bytes:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ ", time.gmtime(at)).encode()


LINES = st.lists(st.tuples(st.integers(0, 3), st.sampled_from((b"\n", b"a\n", b"b\rb\n", b"\0\n"))), max_size=12)


@given(LINES, st.integers(-1, 40), st.integers(0, 40), st.booleans())
def test_lines_are_told_with_the_time_of_the_first_entry_behind_their_beginning(
    written: list[tuple[int, bytes]], since: int, cut: int, half: bool
) -> None:
    now, log, times, expected = 100, b"", [], []
    for pause, line in written:
        now += pause
        log += line
        times.append((len(log), float(now)))
        expected.append((now, line))
    if half:
        times.append((len(log) + 1, now + 0.5))
        expected.append((now, b"h"))
        log += b"h"
    assert stamp(log, 0, tuple(times), fresh=True) == b"".join(utc(at) + line for at, line in expected)
    # A piece that begins anywhere joins what comes before it.
    cut = min(cut, len(log))
    first = stamp(log[:cut], 0, tuple(times), fresh=True)
    assert first + stamp(log[cut:], cut, tuple(times), fresh=cut == 0 or log[cut - 1 : cut] == b"\n") == stamp(
        log, 0, tuple(times), fresh=True
    )
    assert log[offset_since(tuple(times), 100.0 + since) :] == b"".join(
        line for at, line in expected if at > 100 + since or (line == b"h" and at >= 100 + since)
    )


def test_without_times_lines_are_as_they_were() -> None:
    assert stamp(b"a\nb\n", 0, (), fresh=True) == b"a\nb\n"
    assert offset_since((), 5.0) == 0


def test_what_was_written_after_the_times_were_read_has_the_last() -> None:
    assert stamp(b"a\nb\n", 0, ((2, 60.0),), fresh=True) == utc(60) + b"a\n" + utc(60) + b"b\n"
