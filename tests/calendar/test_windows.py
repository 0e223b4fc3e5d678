"""When a plan holds, and which plans cannot be meant."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from shoal.calendar.windows import Plan, Repeat, all_windows, check, moment, windows_of
from shoal.core import Invalid

HOUR, DAY = 3600.0, 86_400.0
AT = datetime(2026, 3, 27, 22, tzinfo=UTC).timestamp()
ONCE = Plan("p-1", "once", "red", AT, AT + 2 * HOUR, accelerators=2)


def test_a_plan_of_one_time_holds_once() -> None:
    (found,) = windows_of(ONCE, AT + HOUR, AT + DAY)
    assert (found.plan, found.begin, found.end) == (ONCE, AT, AT + 2 * HOUR)
    for since, until in ((AT + 2 * HOUR, AT + DAY), (AT - DAY, AT)):
        assert [*windows_of(ONCE, since, until)] == []


def test_a_plan_that_repeats_keeps_the_wall_clock_of_its_zone() -> None:
    """The clock goes forward on 29 March in Berlin: the night of it begins an hour earlier as UTC has it."""
    nightly = replace(ONCE, repeat=Repeat.DAILY, zone="Europe/Berlin")
    begins = [window.begin for window in windows_of(nightly, AT, AT + 4 * DAY)]
    assert begins == [AT, AT + DAY, AT + 2 * DAY - HOUR, AT + 3 * DAY - HOUR, AT + 4 * DAY - HOUR]
    assert [window.begin for window in windows_of(replace(nightly, zone="UTC"), AT, AT + 2.5 * DAY)] == [
        AT, AT + DAY, AT + 2 * DAY,
    ]  # fmt: skip
    weekly = replace(nightly, repeat=Repeat.WEEKLY, last=AT + 8 * DAY)
    assert [window.begin for window in windows_of(weekly, AT, AT + 100 * DAY)] == [AT, AT + 7 * DAY - HOUR]
    far = [*windows_of(nightly, AT + 1000 * DAY, AT + 1001 * DAY)]
    assert len(far) == 1
    just_over = [*windows_of(replace(nightly, zone="UTC"), AT + 2 * HOUR, AT + DAY + 1)]
    assert [window.begin for window in just_over] == [AT + DAY]


def test_windows_of_all_plans_are_in_order() -> None:
    other = replace(ONCE, id="p-0", begin=AT - HOUR, repeat=Repeat.DAILY)
    same = replace(ONCE, id="p-2")
    found = all_windows([same, ONCE, other], AT, AT + DAY)
    assert [(window.plan.id, window.begin) for window in found] == [
        ("p-0", AT - HOUR), ("p-1", AT), ("p-2", AT), ("p-0", AT + DAY - HOUR),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "zone", "wanted"),
    [
        ("2026-03-27T22:00", "UTC", AT),
        ("2026-03-27T23:00", "Europe/Berlin", AT),
        (" 2026-03-27T22:00+00:00 ", "Asia/Tokyo", AT),
        ("+2h", "UTC", 7 * HOUR),
        (" +30m ", "UTC", 5.5 * HOUR),
        ("+1d", "UTC", DAY + 5 * HOUR),
    ],
)
def test_moments(text: str, zone: str, wanted: float) -> None:
    assert moment(text, zone, "from", 5 * HOUR) == wanted


@pytest.mark.parametrize(
    ("text", "what"), [("soon", "is no time"), ("1999-01-01T00:00", "no time to plan"), ("+2h", "is no time")]
)
def test_what_is_no_moment(text: str, what: str) -> None:
    with pytest.raises(Invalid, match=what) as refused:
        moment(text, "UTC", "from")
    assert refused.value.where == "from"
    assert "2026-12-03T14:00" in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("changed", "what", "where", "hint"),
    [
        ({"end": AT}, "ends before it begins", "until", "--until"),
        ({"begin": 0.0, "end": AT - DAY}, "is over already", "until", "a time to come"),
        (
            {"repeat": Repeat.DAILY, "end": AT + DAY + 1},
            "longer than the time after which it repeats",
            "repeat",
            "shorter",
        ),
        ({"nodes": ("n1", "n9")}, "no node 'n9'", "nodes", "`shoal nodes`"),
        ({"accelerators": None}, "neither how many accelerators", "accelerators", "--nodes n1,n2"),
    ],
)
def test_plans_that_cannot_be_meant(changed: dict[str, object], what: str, where: str, hint: str) -> None:
    with pytest.raises(Invalid, match=what) as refused:
        check(replace(ONCE, **changed), AT - HOUR, ["n1", "n2"])  # type: ignore[arg-type]
    assert refused.value.where == where
    assert hint in (refused.value.hint or "")


@pytest.mark.parametrize(
    "changed",
    [
        {}, {"nodes": ("n1",), "accelerators": None}, {"tenant": None, "accelerators": None},
        {"repeat": Repeat.DAILY, "begin": AT - 9 * DAY, "end": AT - 8 * DAY},
        {"repeat": Repeat.WEEKLY, "end": AT + 7 * DAY},
    ],
)  # fmt: skip
def test_plans_that_can(changed: dict[str, object]) -> None:
    check(replace(ONCE, **changed), AT - HOUR, ["n1", "n2"])  # type: ignore[arg-type]
