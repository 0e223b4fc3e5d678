"""Slowdowns are found, named by the sensor that moved, and not seen where there are none."""

from __future__ import annotations

import math
import random
from statistics import fmean

import pytest

from shoal.core import Invalid
from shoal.forecast.bottleneck import SENSORS, Slowdown, detect, threshold_of


def job(
    seed: int, *, steps: int = 300, begins: int = 150, factor: float = 1.0, moved: str = ""
) -> tuple[list[float], dict[str, list[float]]]:
    """Step times with 3 % noise and all sensors; from a step on it is slower, and one sensor moves by 20 %."""
    draw = random.Random(seed)
    seconds = [0.4 * draw.lognormvariate(0, 0.03) * (factor if n >= begins else 1) for n in range(steps)]
    sensors = {
        name: [
            draw.gauss(1, 0.05) * (1 + 0.2 * suspect.sign if name == moved and n >= begins else 1) for n in range(steps)
        ]
        for name, suspect in SENSORS.items()
    }
    return seconds, sensors


@pytest.mark.parametrize("name", SENSORS)
def test_the_sensor_that_moved_names_the_cause(name: str) -> None:
    found = detect(*job(4, factor=1.2, moved=name), mean_run=10_000)
    assert found is not None
    assert (found.cause, found.remedy) == (SENSORS[name].cause, SENSORS[name].remedy)
    assert abs(found.began - 150) <= 2
    assert 150 <= found.found <= 156
    assert found.factor == pytest.approx(1.2, abs=0.05)


def test_a_sensor_that_moves_the_other_way_is_no_cause() -> None:
    seconds, sensors = job(4, factor=1.2)
    sensors["input_wait_s"] = [one * (0.5 if n >= 150 else 1) for n, one in enumerate(sensors["input_wait_s"])]
    found = detect(seconds, sensors, mean_run=10_000)
    assert found is not None
    assert (found.cause, found.remedy) == ("", "")


def test_a_job_that_becomes_faster_is_no_slowdown() -> None:
    assert detect(*job(5, factor=0.7), mean_run=10_000) is None


def test_false_alarms_come_as_often_as_stated() -> None:
    draw, runs = random.Random(6), []
    for _ in range(200):
        seconds = [draw.lognormvariate(-1, 0.1) for _ in range(2000)]
        found = detect(seconds, {}, mean_run=200)
        runs.append(2000 if found is None else found.found - 1)
    assert 170 <= fmean(runs) <= 240


def test_injected_slowdowns_are_told_from_quiet_jobs() -> None:
    right = wrong = missed = 0
    for seed in range(100):
        causes = [*SENSORS, ""]
        moved = causes[seed % len(causes)]
        found = detect(*job(seed, factor=1.15 if moved else 1.0, moved=moved), mean_run=100_000)
        named = "" if found is None else found.cause
        wanted = SENSORS[moved].cause if moved else ""
        right += bool(wanted) and named == wanted
        wrong += found is not None and named != wanted
        missed += bool(wanted) and named != wanted
    assert 2 * right / (2 * right + wrong + missed) >= 0.95


def test_a_step_change_after_steps_without_any_noise_is_found() -> None:
    found = detect([0.5] * 20 + [0.6] * 5, {}, mean_run=1000)
    assert found == Slowdown(20, 22, pytest.approx(1.2), "", "")


def test_one_slow_step_is_no_slowdown() -> None:
    assert detect([*([0.5, 0.51] * 20), 5.0, *([0.5, 0.51] * 20)], {}, mean_run=1000) is None


def test_rarer_alarms_need_a_higher_threshold() -> None:
    assert threshold_of(100) < threshold_of(10_000)


@pytest.mark.parametrize(
    ("seconds", "sensors", "told"),
    [
        ([1.0, 0.0], {}, "positive seconds"),
        ([1.0, 1.0], {"mood": [1.0, 1.0]}, "there is no sensor 'mood'"),
        ([1.0, 1.0], {"clock_mhz": [1.0]}, "one finite number for each step"),
    ],
)
def test_nonsense_is_refused(seconds: list[float], sensors: dict[str, list[float]], told: str) -> None:
    with pytest.raises(Invalid, match=told):
        detect(seconds, sensors, mean_run=100)


def test_a_mean_run_of_a_few_steps_is_refused() -> None:
    with pytest.raises(Invalid, match="at least 10 steps"):
        threshold_of(5)


def test_a_sensor_that_no_more_than_trembles_is_no_cause() -> None:
    seconds, _ = job(4, factor=1.3)
    clock = [1980.0 if n < 150 else 1965.0 for n in range(300)]
    found = detect(seconds, {"clock_mhz": clock, "cpu_wait": [0.0] * 150 + [0.015] * 150}, mean_run=10_000)
    assert found is not None
    assert found.cause == ""
    assert found.why == "no sensor moved with it"


def test_a_hint_is_named_only_where_no_other_sensor_moved() -> None:
    seconds, sensors = job(4, factor=1.3, moved="memory_latency_ns")
    found = detect(seconds, {**sensors, "neighbour_busy": [0.0] * 150 + [1.0] * 150}, mean_run=10_000)
    assert found is not None
    assert found.sensor == "memory_latency_ns"


@pytest.mark.parametrize(("late", "named"), [(0, ""), (60, "cpu_wait")])
def test_a_sensor_may_be_late(late: int, named: str) -> None:
    seconds, _ = job(4, factor=1.3)
    found = detect(seconds, {"cpu_wait": [0.0] * 170 + [0.4] * 130}, mean_run=10_000, late=late)
    assert found is not None
    assert found.sensor == named


@pytest.mark.parametrize(("known", "named"), [(7, ""), (8, "input_wait_s")])
def test_a_sensor_that_told_little_is_not_named(known: int, named: str) -> None:
    seconds, sensors = job(4, factor=1.3, moved="input_wait_s")
    alone = detect(seconds, {}, mean_run=10_000)
    assert alone is not None
    began = alone.began
    waits = [math.nan] * (began - known) + sensors["input_wait_s"][began - known :]
    found = detect(seconds, {"input_wait_s": waits}, mean_run=10_000)
    assert found is not None
    assert found.sensor == named
    if named:
        assert (found.before, found.after) == (pytest.approx(1.0, abs=0.1), pytest.approx(1.2, abs=0.1))
