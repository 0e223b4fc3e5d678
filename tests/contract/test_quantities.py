"""Durations and sizes: what is written is read back as the same number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.contract.manifest.quantities import (
    MAX_DURATION_S,
    MAX_MEMORY_BYTES,
    MIN_MEMORY_BYTES,
    read_duration,
    read_size,
    write_duration,
    write_size,
)


@given(st.integers(1, int(MAX_DURATION_S * 1000)))
def test_a_written_duration_is_read_as_the_same_seconds(milliseconds: int) -> None:
    assert read_duration(write_duration(milliseconds / 1000)) == milliseconds / 1000


@given(st.integers(MIN_MEMORY_BYTES, MAX_MEMORY_BYTES))
def test_a_written_size_is_read_as_the_same_bytes(size: int) -> None:
    assert read_size(write_size(size)) == size


@pytest.mark.parametrize(
    ("seconds", "text"), [(2_592_000, "30d"), (5400, "90m"), (7200, "2h"), (90, "90s"), (0.25, "0.25s")]
)
def test_durations_are_written_in_the_largest_unit_that_leaves_a_whole_number(seconds: float, text: str) -> None:
    assert write_duration(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(1 << 30, "1GiB"), (1536 << 20, "1536MiB"), (1 << 42, "4TiB"), ((1 << 20) + 1, "1048577B"), (0, "0B")],
)
def test_sizes_are_written_in_the_largest_unit_that_leaves_a_whole_number(size: int, text: str) -> None:
    assert write_size(size) == text
