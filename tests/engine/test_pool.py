"""How much is handed over ahead: little for long work, about two seconds' worth for short work, never without bound."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shoal.engine.pool import AHEAD, Pace

PLACES = 8


def _drained(pace: Pace, *, each_s: float, per_s: int, seconds: float, since: float = 0.0) -> float:
    """What is ahead after so many seconds of so many ends a second."""
    ahead = 0.0
    for number in range(1, int(seconds * per_s) + 1):
        now = since + number / per_s
        pace.ended(1, each_s, now)
        ahead = pace.ahead(PLACES, now)
    return ahead


def test_long_work_has_the_least_ahead_however_many_end_at_once() -> None:
    pace = Pace()
    for _ in range(PLACES):
        pace.ended(1, 3600.0, 100.0)
    assert pace.ahead(PLACES, 100.0) == AHEAD


def test_short_work_has_what_came_free_in_two_seconds_ahead() -> None:
    assert _drained(Pace(), each_s=0.1, per_s=4, seconds=5) == 1.0  # 8 of 8 places
    assert _drained(Pace(), each_s=0.1, per_s=8, seconds=5) == 2.0
    assert _drained(Pace(), each_s=0.1, per_s=16, seconds=5) == 4.0


def test_there_is_a_bound() -> None:
    assert _drained(Pace(), each_s=0.01, per_s=500, seconds=3) == 4.0


def test_gangs_count_by_their_places() -> None:
    pace = Pace()
    pace.ended(PLACES, 1.0, 1.0)
    assert pace.ahead(PLACES, 1.0) == 1.0


def test_a_step_stays_for_a_while_and_then_falls() -> None:
    pace = Pace()
    assert _drained(pace, each_s=0.1, per_s=8, seconds=2) == 2.0
    assert pace.ahead(PLACES, 11.9) == 2.0
    assert pace.ahead(PLACES, 12.0) == AHEAD


def test_a_step_that_goes_on_is_kept() -> None:
    pace = Pace()
    assert _drained(pace, each_s=0.1, per_s=8, seconds=30) == 2.0
    assert pace.ahead(PLACES, 39.0) == 2.0


def test_who_wants_nothing_ahead_gets_nothing() -> None:
    assert _drained(Pace(0.0), each_s=0.01, per_s=500, seconds=3) == 0.0


def test_an_empty_pool_has_the_least() -> None:
    pace = Pace()
    pace.ended(1, 0.1, 1.0)
    assert pace.ahead(0, 1.0) == AHEAD


@given(
    st.lists(st.tuples(st.integers(1, 8), st.floats(0, 100), st.floats(0, 1)), max_size=60),
    st.sampled_from([0.0, 0.25, 1.0, 8.0]),
)
def test_never_less_than_the_least_nor_more_than_it_or_four_times_the_pool(
    ends: list[tuple[int, float, float]], least: float
) -> None:
    pace, now = Pace(least), 0.0
    for places, held_s, later_s in ends:
        now += later_s
        pace.ended(places, held_s, now)
        assert least <= pace.ahead(PLACES, now) <= max(least, 4.0)
