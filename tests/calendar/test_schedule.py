"""When cron jobs are due, held against a walk through every minute of the wall clock."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.calendar import Missed, Schedule, due
from shoal.core import Invalid

BERLIN = "Europe/Berlin"


def at(text: str, zone: str = BERLIN) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


def walls(times: Iterator[float], count: int, zone: str = BERLIN) -> list[str]:
    return [f"{datetime.fromtimestamp(next(times), ZoneInfo(zone)):%m-%d %H:%M %Z}" for _ in range(count)]


def test_work_days_only() -> None:
    times = Schedule("0 3 * * 1-5", BERLIN).times(at("2026-11-27 12:00"))  # a Friday
    assert walls(times, 3) == ["11-30 03:00 CET", "12-01 03:00 CET", "12-02 03:00 CET"]


@pytest.mark.parametrize("expression", ["30 2 * * *", "15,45 2 * * *", "*/30 2 * * *"])
def test_a_time_that_the_clock_skips_runs_once_when_it_does(expression: str) -> None:
    times = Schedule(expression, BERLIN).times(at("2026-03-28 23:00"))
    first, then = walls(times, 2)
    assert first == "03-29 03:00 CEST"
    assert then.startswith("03-30 02:")


def test_a_time_that_comes_twice_runs_once() -> None:
    times = Schedule("30 2 * * *", BERLIN).times(at("2026-10-24 23:00"))
    assert walls(times, 2) == ["10-25 02:30 CEST", "10-26 02:30 CET"]


def test_every_hour_is_every_hour_of_elapsed_time() -> None:
    times = list(zip(range(30), Schedule("0 * * * *", BERLIN).times(at("2026-10-24 20:00")), strict=False))
    assert {later[1] - one[1] for one, later in pairwise(times)} == {3600.0}


@pytest.mark.parametrize(
    "expression", ["", "0 3 * *", "* * * * * *", "61 * * * *", "0 0 30 2 *", "x" * 300, "0 3 * * 1-5; rm", "@reboot"]
)
def test_what_is_no_expression_is_refused_in_words(expression: str) -> None:
    with pytest.raises(Invalid) as caught:
        Schedule(expression).check(0.0)
    assert caught.value.where == "at"
    assert caught.value.hint


@pytest.mark.parametrize("zone", ["Europe/Atlantis", "../../etc/passwd", "/etc/localtime", "", "Europe\0"])
def test_what_is_no_zone_is_refused_in_words(zone: str) -> None:
    with pytest.raises(Invalid, match="there is no time zone"):
        Schedule("0 3 * * *", zone).check(0.0)


# --- an oracle: every minute of the wall clock, one after the other ---

ZONES = [BERLIN, "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "UTC"]


def fields(low: int, high: int) -> st.SearchStrategy[tuple[str, frozenset[int]]]:
    some = st.sets(st.integers(low, high), min_size=1, max_size=3)
    return some.map(lambda one: (",".join(map(str, sorted(one))), frozenset(one)))


def by_walking(minutes: frozenset[int], hours: frozenset[int], zone: str, since: float, until: float) -> list[float]:
    """By elapsed minutes: what the wall clock shows in each, and what it left out since the minute before."""
    found = []
    seen: set[datetime] = set()
    place = ZoneInfo(zone)
    last = datetime.fromtimestamp(since - 86_400, place).replace(tzinfo=None)
    moment = since - 86_400
    while (moment := moment + 60) <= until:
        wall = datetime.fromtimestamp(moment, place).replace(tzinfo=None)
        shown = [wall]
        while last + timedelta(minutes=1) < wall:  # the clock was put forward
            last += timedelta(minutes=1)
            shown.append(last)
        last = max(last, wall) if wall < last else wall
        hit = [one for one in shown if one.minute in minutes and one.hour in hours and one not in seen]
        seen.update(shown)
        if hit and moment > since:
            found.append(moment)
        last = wall
    return found


@given(fields(0, 59), fields(0, 23), st.sampled_from(ZONES), st.sampled_from([78, 87, 93, 296, 297, 305, 10]))
def test_against_a_walk_through_all_minutes(
    minute: tuple[str, frozenset[int]], hour: tuple[str, frozenset[int]], zone: str, day: int
) -> None:
    since = datetime(2026, 1, 1, tzinfo=UTC).timestamp() + day * 86_400
    until = since + 3 * 86_400
    found = []
    for each in Schedule(f"{minute[0]} {hour[0]} * * *", zone).times(since):
        if each > until:
            break
        found.append(each)
    assert found == by_walking(minute[1], hour[1], zone, since, until)


@given(
    st.sampled_from(["*/5 * * * *", "30 2 * * *", "0 0 1 * *", "17 4 * * 1", "0 12 29 2 *"]),
    st.integers(0, 400 * 86_400),
    st.integers(0, 40 * 86_400),
    st.sampled_from(list(Missed)),
)
def test_what_is_due_settles_each_time_once(expression: str, begin: int, passed: int, missed: Missed) -> None:
    schedule, position = Schedule(expression, BERLIN), at("2026-01-01 00:00") + begin
    now = position + passed
    found = due(schedule, position, now, missed, late_s=60.0)
    times = []
    for each in schedule.times(position):
        if each > now:
            break
        times.append(each)
    assert found.position == (times[-1] if times else position)
    late = bool(times) and now - times[-1] > 60.0
    assert found.at == (None if not times or (late and missed is Missed.SKIP) else times[-1])
    assert found.missed == min(len(times), 1000) - (found.at is not None)
    again = due(schedule, found.position, now, missed, late_s=60.0)
    assert (again.at, again.missed, again.position) == (None, 0, found.position)


def test_a_clock_that_was_set_back_makes_nothing_due() -> None:
    schedule = Schedule("*/5 * * * *")
    assert due(schedule, 3600.0, 600.0, Missed.RUN_ONCE, 60.0) == due(schedule, 3600.0, 3600.0, Missed.RUN_ONCE, 60.0)
