"""Captured programs do what plain ones do: values bit by bit, types, shapes, errors, and random numbers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.offload import OffloadSettings, install, uninstall
from tests.offload.programs import Run


def compare(seed: int, length: int, threshold: int) -> None:
    uninstall()
    plain, captured = Run(seed, length), Run(seed, length)
    expected = plain.run()
    install(OffloadSettings(threshold=threshold, threads=2, everywhere=True))
    try:
        found = captured.run()
    finally:
        uninstall()
    for position, (one, other) in enumerate(zip(expected, found, strict=True)):
        assert one == other, (seed, position)
    assert captured.heard <= plain.heard, seed
    assert captured.lost or captured.heard == plain.heard, seed


@settings(deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 20), st.sampled_from([1, 10]))
def test_a_captured_program_shows_what_a_plain_one_shows(seed: int, length: int, threshold: int) -> None:
    compare(seed, length, threshold)


@pytest.mark.slow
def test_thousands_of_programs() -> None:
    for seed in range(5000):
        compare(seed, 20, 1)
