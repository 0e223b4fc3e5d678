"""The end of a running job, from its own reports."""

from __future__ import annotations

import random
from collections.abc import Iterator
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


PAUSES = [(50, 0.5), (100, 1.0), (200, 2.0), (400, 2.0), (400, 10.0), (500, 20.0)]


def pausing(draw: random.Random, every: int, pause_s: float, *, told: bool = False) -> Iterator[tuple[Track, float]]:
    """A job of 2,000 steps of 0.1 s that pauses, at 25, 50 and 75 % of its steps, and the seconds that it has left."""
    ends, at = [], 0.0
    for step in range(1, 2001):
        at += 0.1 * draw.gauss(1.0, 0.05)
        at += 0.0 if step % every else pause_s * draw.gauss(1.0, 0.1)
        ends.append(at)
    found, saved_at = Track(), None
    for step, one in enumerate(ends, start=1):
        saved_at = one if told and step % every == 0 else saved_at
        found.observe(one, step, saved_at)
        if step in (500, 1000, 1500):
            yield found, at - one


@pytest.mark.few
@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize(("every", "pause_s"), PAUSES)
def test_intervals_hold_for_jobs_that_pause(every: int, pause_s: float, told: bool) -> None:
    draw = random.Random(7)
    held = [[False] * 20 for _ in range(3)]
    errors = [[0.0] * 20 for _ in range(3)]
    for number in range(20):
        for at, (found, truth) in enumerate(pausing(draw, every, pause_s, told=told)):
            left = found.remaining(2000)
            assert left is not None
            held[at][number] = left.low <= truth <= left.high
            errors[at][number] = left.median / truth - 1
    assert min(sum(one) for one in held) >= 0.85 * 20
    assert all(abs(sum(one)) / 20 < 0.1 for one in errors)


@pytest.mark.slow
def test_pauses_that_come_by_chance_have_intervals_that_hold() -> None:
    draw, held = random.Random(3), 0
    for _ in range(100):
        seconds = [0.1 * draw.gauss(1.0, 0.05) + 4.0 * (draw.random() < 0.01) for _ in range(1200)]
        left = track(seconds[:600], steps=1).remaining(1200)
        assert left is not None
        held += left.low <= sum(seconds[600:]) <= left.high
    assert 80 <= held <= 97


def test_the_answer_says_which_pauses_it_counts_on() -> None:
    left = track([1.0] * 20 + [5.0] + [1.0] * 9 + [5.0] + [1.0] * 9).remaining(1000)
    assert left is not None
    assert left.source == "measured over 400 steps of this job, with 2 pauses of 4 s on average"


def test_a_short_pause_counts_when_a_checkpoint_was_reported() -> None:
    quiet, told = Track(), Track()
    for step in range(1, 101):
        at = step + 0.3 * (step // 25)
        quiet.observe(at, step)
        told.observe(at, step, at if step % 25 == 0 else None)
    assert quiet.pauses.ahead(100, 100) is None
    ahead = told.pauses.ahead(100, 100)
    assert ahead is not None
    assert (ahead.seen, ahead.length_s) == (4, pytest.approx(0.3))
    assert ahead.seconds == pytest.approx(4 * 0.3, rel=0.01)


def test_a_job_that_became_slower_is_not_one_that_pauses_at_each_step() -> None:
    found = track([1.0] * 30 + [3.0] * 30)
    ahead = found.pauses.ahead(600, 100)
    assert ahead is not None
    assert ahead.seen == 1


def test_a_restart_forgets_the_pauses() -> None:
    found = track([1.0] * 30 + [9.0] + [1.0] * 5)
    assert found.pauses.seconds == pytest.approx(8.0)
    found.observe(100.0, 10)
    assert found.pauses.seconds == 0.0
