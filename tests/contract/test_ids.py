from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from shoal.contract.ids import Ids, lowest_id
from shoal.core import ManualClock, SystemClock


class Set:
    """A clock that may be set back."""

    at = 0.0

    def now(self) -> float:
        return self.at

    monotonic = now


@given(st.lists(st.floats(0, 4e9), min_size=2, max_size=50))
def test_every_id_is_above_the_one_before_whatever_the_clock_does(times: list[float]) -> None:
    clock = Set()
    ids = Ids(clock)
    given_out = []
    for clock.at in times:
        given_out += [ids.new("j"), ids.new("j")]
    assert given_out == sorted(set(given_out))


@given(st.floats(1.77e9, 2.8e9), st.floats(0, 1e6))
def test_no_later_id_is_below_the_lowest_of_a_time(at: float, later: float) -> None:
    assert Ids(ManualClock(at + later)).new("j") >= lowest_id("j", at)
    assert Ids(ManualClock(at - later - 0.002)).new("j") < lowest_id("j", at)


def test_what_one_looks_like() -> None:
    assert re.fullmatch(r"j-[0-9a-hjkmnp-tv-z]{12}", Ids(SystemClock()).new("j"))
    assert Ids(SystemClock()).new("s").startswith("s-")


def test_two_servers_draw_different_ones_in_the_same_millisecond() -> None:
    clock = ManualClock(1.8e9)
    assert len({Ids(clock).new("j") for _ in range(20)}) == 20


def test_later_ones_of_another_process_come_after() -> None:
    assert Ids(ManualClock(1.8e9)).new("j") < Ids(ManualClock(1.8e9 + 0.002)).new("j")
