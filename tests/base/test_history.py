"""A bounded history of samples."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shoal.base.history import WRONG_S, History


@given(st.integers(0, 400), st.integers(1, 20), st.integers(1, 10), st.integers(1, 10))
def test_it_is_bounded_in_order_and_loses_no_peak(count: int, recent: int, joined: int, older: int) -> None:
    history: History[float] = History(max, recent=recent, joined=joined, older=older)
    for at in range(count):
        history.add(float(at), float(at * 37 % 101))
    points = history.points()
    assert len(points) < recent + joined + older + 1
    assert [at for at, _ in points] == sorted({at for at, _ in points})
    if count <= recent:
        assert points == [(float(at), float(at * 37 % 101)) for at in range(count)]
    if count and count <= recent + joined * older:
        assert max(value for _, value in points) == max(at * 37 % 101 for at in range(count))


def test_a_clock_that_goes_back_adds_nothing() -> None:
    history: History[int] = History(max)
    for at in (10.0, 5.0, 10.0, 11.0):
        history.add(at, 1)
    assert [at for at, _ in history.points()] == [10.0, 11.0]


def test_what_a_clock_told_that_was_far_ahead_is_forgotten() -> None:
    history: History[int] = History(max, recent=2, joined=2, older=4)
    for at in (1.0, 2.0, 1e9, 1e9 + 1, 1e9 + 2, 3.0, 4.0):
        history.add(at, 1)
    assert [at for at, _ in history.points()] == [2.0, 3.0, 4.0], "two of the right time were joined at the second"
    history.add(4.0 - WRONG_S, 1)
    assert [at for at, _ in history.points()][-1] == 4.0
