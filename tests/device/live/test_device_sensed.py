"""What shared devices say of a job, from two looks at them."""

from __future__ import annotations

import sys

import pytest

from shoal.device.live.sensed import Clocks, Look, Seen, sensed

RANKS = [("j.0", "a"), ("j.1", "b")]


def look(at: float, waited_s: float, launches: int, clock: float) -> Look:
    """Rank 0 alone on its device, rank 1 beside another."""
    seen = {
        "a": {"j.0": Seen(50 * int(at), 0.0)},
        "b": {"j.1": Seen(70 * int(at), waited_s), "k.0": Seen(launches, 5.0 * at)},
    }
    return Look(at, seen, {"a": 1980.0, "b": clock})


def test_the_rank_that_is_worst_off_counts_by_time_passed() -> None:
    found = sensed(look(10, 1.0, 100, 1980.0), look(14, 3.0, 500, 1500.0), RANKS)
    assert found == {"device_wait": 0.5, "device_launches_beside": 100.0, "clock_mhz": 1500.0}
    assert sensed(look(10, 1.0, 100, 0.0), look(11, 9.0, 100, 2100.0), RANKS)["device_wait"] == 1.0
    assert sensed(look(10, 1.0, 100, 0.0), look(11, 1.0, 100, 2100.0), RANKS)["clock_mhz"] == 1980.0


def test_a_slot_that_was_taken_anew_tells_no_negative_rate() -> None:
    found = sensed(look(10, 5.0, 900, 1.0), look(14, 0.0, 3, 1.0), RANKS)
    assert (found["device_wait"], found["device_launches_beside"]) == (0.0, 0.0)


@pytest.mark.parametrize("before", [Look(0.0), look(14, 0.0, 0, 1.0)])
def test_one_look_tells_clocks_alone(before: Look) -> None:
    assert sensed(before, look(14, 3.0, 500, 1500.0), RANKS) == {"clock_mhz": 1500.0}


def test_what_is_on_no_device_is_sensed_by_none() -> None:
    assert sensed(look(10, 1.0, 1, 1.0), look(14, 3.0, 5, 2.0), [("j.0", "other")]) == {}


def test_without_bindings_no_clock_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert Clocks().read(["a"]) == {}
