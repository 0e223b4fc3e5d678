"""When news are due: quiet hours, digests, hours that are skipped and repeated, clocks that change."""

from __future__ import annotations

from datetime import datetime, time
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core import Invalid
from shoal.notify.policy.times import (
    LONGEST_DELAY_S,
    Schedule,
    due_at,
    is_due,
    is_quiet,
    read_quiet,
    read_zone,
)

ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Africa/Casablanca",
    "Asia/Kolkata",
]
clocks = st.builds(time, st.integers(0, 23), st.integers(0, 59))
quiets = st.tuples(clocks, clocks).filter(lambda both: both[0] != both[1])
moments = st.floats(0, 2.2e9)
# A third of the moments lie about a change of the clocks: 2011-12-30 is no day in Samoa.
changes = st.sampled_from([1774746000.0, 1792976400.0, 1325239200.0, 1772953200.0, 1793512800.0])
near = st.one_of(moments, st.builds(lambda at, by: at + by, changes, st.floats(-90_000, 90_000)))
schedules = st.builds(
    Schedule,
    zone=st.sampled_from(ZONES),
    quiet=st.none() | quiets,
    every_s=st.sampled_from([0.0, 60.0, 3600.0, 86_400.0]),
    daily=st.none() | clocks,
)


@given(near, schedules)
def test_news_are_due_later_but_not_long_and_never_in_quiet_hours(at: float, schedule: Schedule) -> None:
    due = due_at(at, schedule)
    assert at <= due <= at + LONGEST_DELAY_S
    if schedule.quiet is not None:
        assert not is_quiet(due, schedule.quiet, ZoneInfo(schedule.zone))
    elif not schedule.digests:
        assert due == at


@given(near, st.floats(0, 200_000), schedules)
def test_later_news_are_not_due_before_earlier_ones(at: float, by: float, schedule: Schedule) -> None:
    assert due_at(at, schedule) <= due_at(at + by, schedule)


def berlin(text: str, fold: int = 0) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo("Europe/Berlin"), fold=fold).timestamp()


@pytest.mark.parametrize(
    ("at", "due"),
    [
        ((("2026-11-28T12:00"), 0), ("2026-11-28T12:00", 0)),
        ((("2026-11-28T23:00"), 0), ("2026-11-29T02:30", 0)),
        ((("2026-03-28T23:00"), 0), ("2026-03-29T03:00", 0)),  # 02:30 is skipped: the clocks jump from 02:00 to 03:00
        ((("2026-10-24T23:00"), 0), ("2026-10-25T02:30", 0)),  # 02:30 comes twice
        ((("2026-10-25T02:10"), 1), ("2026-10-25T02:30", 1)),
    ],
)
def test_quiet_hours_over_a_change_of_the_clocks(at: tuple[str, int], due: tuple[str, int]) -> None:
    schedule = Schedule("Europe/Berlin", quiet=(time(22), time(2, 30)))
    assert due_at(berlin(*at), schedule) == berlin(*due)


def test_a_daily_digest_comes_once_a_day_where_days_have_23_and_25_hours() -> None:
    schedule = Schedule("Europe/Berlin", daily=time(8))
    for day in ("2026-03-28", "2026-03-29", "2026-10-24", "2026-10-25"):
        noon = berlin(f"{day}T12:00")
        assert datetime.fromtimestamp(due_at(noon, schedule), ZoneInfo("Europe/Berlin")).time() == time(8)
        assert 19 * 3600 <= due_at(noon, schedule) - noon <= 21 * 3600


@given(near, st.floats(-1e9, 1e9), schedules)
def test_a_clock_that_is_set_wrong_and_right_again_holds_nothing_back(at: float, by: float, schedule: Schedule) -> None:
    """What a wrong clock wrote is due at once, or within the longest delay."""
    due = due_at(max(0.0, at + by), schedule)
    assert is_due(due, at) or due - at <= LONGEST_DELAY_S


@pytest.mark.parametrize("text", ["", "22-7", "22:00-24:00", "22:00-22:00", "22:00 - 07:00"])
def test_wrong_quiet_hours_are_refused(text: str) -> None:
    with pytest.raises(Invalid):
        read_quiet(text, "quiet")


@pytest.mark.parametrize("name", ["Europe/Nowhere", "../../etc/passwd", "/etc/localtime", ""])
def test_wrong_time_zones_are_refused(name: str) -> None:
    with pytest.raises(Invalid, match="no time zone"):
        read_zone(name, "zone")


@pytest.mark.parametrize(
    ("at", "quiet", "wanted"),
    [
        ("22:00", ("22:00", "07:00"), True),
        ("07:00", ("22:00", "07:00"), False),
        ("21:59:59", ("22:00", "07:00"), False),
        ("06:59:59", ("22:00", "07:00"), True),
        ("12:00", ("12:00", "13:00"), True),
        ("13:00", ("12:00", "13:00"), False),
    ],
)
def test_quiet_hours_begin_at_their_first_moment_and_end_before_their_last(
    at: str, quiet: tuple[str, str], wanted: bool
) -> None:
    moment = datetime.combine(datetime(2026, 5, 4), time.fromisoformat(at), ZoneInfo("Europe/Berlin")).timestamp()
    begin, end = (time.fromisoformat(one) for one in quiet)
    assert is_quiet(moment, (begin, end), ZoneInfo("Europe/Berlin")) is wanted
