"""What holds a running job back is found from its reports, told, and over when the job is as fast as before."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from shoal.forecast.live.watch import EVERY, MOST, Watch


class Told:
    """A job that reports ten steps at a time."""

    def __init__(self, mean_run: float = 100_000) -> None:
        self.watch, self.at, self.step = Watch(mean_run), 1000.0, 0
        self._draw = random.Random(3)

    def report(self, count: int, step_s: float, **sensors: float) -> int:
        """How many slowdowns were told."""
        told = 0
        for _ in range(count):
            self.at += 10 * step_s * self._draw.lognormvariate(0, 0.02)
            self.step += 10
            told += self.watch.observe(self.at, self.step, self._noisy(sensors))
        return told

    def _noisy(self, sensors: Mapping[str, float]) -> dict[str, float]:
        return {name: value * self._draw.gauss(1, 0.05) for name, value in sensors.items()}


def test_a_slowdown_is_told_once_named_by_its_sensor_and_over_when_the_job_is_as_fast_as_before() -> None:
    job = Told()
    assert job.report(60, 0.1, input_wait_s=0.01, clock_mhz=1400) == 0
    began = job.at
    assert job.report(2 * EVERY, 0.15, input_wait_s=0.06, clock_mhz=1400) == 1
    found = job.watch.slowdown
    assert found is not None
    assert (found.cause, round(found.factor, 1)) == ("input pipeline", 1.5)
    assert abs(job.watch.since - began) < 3
    assert job.report(4 * EVERY, 0.15, input_wait_s=0.06, clock_mhz=1400) == 0
    assert job.watch.slowdown is found
    assert job.report(12, 0.1, input_wait_s=0.01, clock_mhz=1400) == 0
    assert job.watch.slowdown is None


def test_a_second_slowdown_is_told_against_the_first() -> None:
    job = Told()
    assert job.report(4 * EVERY, 0.1) == 0
    assert job.report(4 * EVERY, 0.15) == 1
    assert job.report(4 * EVERY, 0.3) == 1
    assert job.watch.slowdown is not None
    assert round(job.watch.slowdown.factor, 1) == 2.0
    assert job.watch.slowdown.cause == ""


def test_a_slowdown_of_a_twentieth_is_not_told() -> None:
    job = Told()
    assert job.report(60, 0.1) + job.report(100, 0.105) == 0
    assert job.watch.slowdown is None


def test_a_steady_job_is_followed_without_end_and_without_an_alarm() -> None:
    job = Told()
    assert job.report(3 * MOST, 0.1, neighbour_busy=2) == 0
    assert job.report(4 * EVERY, 0.2, neighbour_busy=6) == 1
    assert job.watch.slowdown is not None
    assert job.watch.slowdown.cause == "neighbour"


def test_a_step_back_begins_anew_and_a_repeated_one_is_nothing() -> None:
    job = Told()
    job.report(40, 0.1)
    assert not job.watch.observe(job.at + 500, job.step, {})
    assert job.report(2 * EVERY, 0.1) == 0
    job.step = 0
    assert job.report(4 * EVERY, 0.3) == 0
    assert job.watch.slowdown is None


@pytest.mark.parametrize(("late_s", "named"), [(0.0, "neighbour"), (7.0, "neighbour"), (60.0, "")])
def test_a_slowdown_waits_for_sensors_that_are_some_seconds_late(late_s: float, named: str) -> None:
    job = Told()
    assert job.report(2 * EVERY, 0.01, cpu_wait=0.1) == 0
    began = job.at
    told = sum(job.report(1, 0.015, cpu_wait=0.5 if job.at > began + late_s else 0.1) for _ in range(4 * EVERY))
    assert told == 1
    assert job.watch.slowdown is not None
    assert job.watch.slowdown.cause == named
    assert abs(job.watch.since - began) < 1


def test_a_job_that_reports_very_often_is_told_all_the_same() -> None:
    job = Told()
    assert job.report(2 * EVERY, 0.0001) == 0
    assert job.report(2 * MOST, 0.00015) == 1
