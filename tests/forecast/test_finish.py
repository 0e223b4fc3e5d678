"""The end of a running job, from its own reports."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from shoal.forecast import Track


def track(seconds: list[float], steps: int = 10) -> Track:
    found, at = Track(), 0.0
    found.observe(0.0, 0)
    for number, one in enumerate(seconds, start=1):
        at += one
        found.observe(at, number * steps)
    return found


def test_a_steady_job_ends_when_its_steps_are_done() -> None:
    found = track([5.0] * 8).remaining(400)
    assert found is not None
    assert found.median == pytest.approx(32 * 5.0)
    assert found.low < found.median < found.high
    assert found.source == "measured over 80 steps of this job"


@pytest.mark.parametrize("reports", [1, 3])
def test_too_few_reports_say_nothing(reports: int) -> None:
    assert track([5.0] * reports).remaining(400) is None
    assert track([5.0] * 4).remaining(400) is not None


def test_a_slow_beginning_does_not_count() -> None:
    found = track([50.0, 20.0] + [5.0, 5.1] * 10).remaining(1000)
    assert found is not None
    assert found.median == pytest.approx(78 * 5.05, rel=0.01)


def test_an_uneven_job_has_the_wider_interval() -> None:
    draw = random.Random(1)
    even, uneven = (
        track([5.0] * 30).remaining(1000),
        track([5.0 * draw.uniform(0.5, 1.5) for _ in range(30)]).remaining(1000),
    )
    assert even is not None
    assert uneven is not None
    assert uneven.high / uneven.low > even.high / even.low


def test_a_restart_from_a_checkpoint_forgets_what_was_before() -> None:
    found = track([5.0] * 10)
    for number in range(6):
        found.observe(100.0 + 2.0 * number, 40 + 10 * number)
    left = found.remaining(190)
    assert left is not None
    assert left.median == pytest.approx(20.0)


def test_repeated_and_older_reports_are_passed_over() -> None:
    found = track([5.0] * 6)
    before = list(found.points)
    found.observe(40.0, 60)
    found.observe(29.0, 70)
    assert found.points == before


def test_it_stays_small_and_keeps_the_first_and_the_last() -> None:
    found = track([1.0] * 5000)
    assert len(found.points) <= 65
    assert found.points[0] == (0.0, 0)
    assert found.points[-1] == (5000.0, 50_000)
    apart = [b[1] - a[1] for a, b in pairwise(found.points[:-1])]
    assert max(apart) < 2.5 * min(apart)


def test_an_odd_last_step_does_not_disturb_a_long_track() -> None:
    found = track([1.0] * 5000)
    found.observe(5100.0, 50_001)
    left = found.remaining(100_001)
    assert left is not None
    assert left.median == pytest.approx(5000.0, rel=0.03)


def test_a_job_past_its_last_step_has_nothing_left() -> None:
    found = track([5.0] * 8).remaining(40)
    assert found is not None
    assert found.high == 0.0


def test_intervals_hold_for_independent_noise() -> None:
    draw, held = random.Random(5), 0
    for _ in range(300):
        seconds = [draw.lognormvariate(1.0, 0.3) for _ in range(80)]
        left = track(seconds[:20]).remaining(800)
        assert left is not None
        held += left.low <= sum(seconds[20:]) <= left.high
    assert held / 300 >= 0.85
