"""When a job became slower than it was, and which sensor moved with it. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev
from typing import Any

from scipy.special import ndtri, stdtr

from shoal.core import Invalid

_SHIFT = 0.5
"""Half of the slowdown that is found the fastest, in standard deviations of a step time."""
_BOUND = 3.0
"""Standard deviations that one step counts for at most: one slow step, such as a checkpoint, is no slowdown."""
_MOVED = 4.0
"""Standard errors that a sensor must have moved by to be named: with five sensors, by chance in 1 of 6,000 alarms."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """What a sensor tells when it rises (`sign` 1) or falls (-1), and what helps."""

    sign: int
    cause: str
    remedy: str


SENSORS: Mapping[str, Suspect] = {
    "network_wait_s": Suspect(1, "parameter server or network", "add a parameter server, or place the gang closer"),
    "input_wait_s": Suspect(1, "input pipeline", "give the job more cores, or cache its input"),
    "memory_stall": Suspect(1, "host memory", "turn on the guard, or give the job a memory domain of its own"),
    "neighbour_busy": Suspect(1, "neighbour", "ask for a device of its own, or for the guaranteed class"),
    "clock_mhz": Suspect(-1, "throttled device", "look at the device's temperature and power limit"),
}


@dataclass(frozen=True, slots=True)
class Slowdown:
    """Found at step `found`, it began at about step `began`; steps take `factor` times as long. `cause` and
    `remedy` are empty where no sensor moved."""

    began: int
    found: int
    factor: float
    cause: str
    remedy: str

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("began", "found", "factor", "cause", "remedy")}


def detect(step_s: Sequence[float], sensors: Mapping[str, Sequence[float]], *, mean_run: float) -> Slowdown | None:
    """The first slowdown, or None. `mean_run` is the false-alarm rate: the mean number of steps until an alarm where
    nothing changes, if logarithms of step times are normal and independent.

    A self-starting CUSUM (Hawkins, Journal of Quality Technology 1987): each step is compared with those before it,
    so that neither mean nor variance needs to be known, and the rate holds from the third step on."""
    check(step_s, sensors)
    threshold = threshold_of(mean_run)
    mean, squares, total, began = 0.0, 0.0, 0.0, 0
    for number, seconds in enumerate(step_s):
        value = math.log(seconds)
        if number >= 2:
            spread = math.sqrt(max(squares, 1e-18) / (number - 1))
            student = math.sqrt(number / (number + 1)) * (value - mean) / spread
            normal = float(ndtri(stdtr(number - 1, student)))
            if total == 0.0:
                began = number
            total = max(0.0, total + max(-_BOUND, min(_BOUND, normal)) - _SHIFT)
            if total > threshold:
                return _slowdown(step_s, sensors, began, number)
        ahead = value - mean
        mean += ahead / (number + 1)
        squares += ahead * (value - mean)
    return None


def threshold_of(mean_run: float) -> float:
    """Of the sum, by Siegmund's approximation of the mean run to a false alarm (1985)."""
    if not 10 <= mean_run < math.inf:
        raise Invalid(f"the mean run to a false alarm is at least 10 steps, not {mean_run:g}")
    low, high = 0.0, 100.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        reach = 2 * _SHIFT * (middle + 1.166)
        low, high = (middle, high) if (math.exp(reach) - reach - 1) / (2 * _SHIFT**2) < mean_run else (low, middle)
    return high


def check(step_s: Sequence[float], sensors: Mapping[str, Sequence[float]]) -> None:
    """Raises Invalid on values that mean nothing."""
    if any(not 0 < one < math.inf for one in step_s):
        raise Invalid("step times must be positive seconds")
    for name, values in sensors.items():
        if name not in SENSORS:
            raise Invalid(f"there is no sensor {name!r}", hint=f"known: {', '.join(SENSORS)}")
        if len(values) != len(step_s) or not all(math.isfinite(one) for one in values):
            raise Invalid(f"the sensor {name} needs one finite number for each step")


def _slowdown(step_s: Sequence[float], sensors: Mapping[str, Sequence[float]], began: int, found: int) -> Slowdown:
    logs = [math.log(one) for one in step_s[: found + 1]]
    # The sum may have left zero by chance just before: the change is where the step times differ most.
    began = max(range(began, found + 1), key=lambda at: _moved(logs, at, found))
    factor = median(step_s[began : found + 1]) / median(step_s[:began])
    moved = {name: SENSORS[name].sign * _moved(values, began, found) for name, values in sensors.items()}
    most = max(moved, key=moved.__getitem__, default="")
    if not most or moved[most] < _MOVED:
        return Slowdown(began, found, factor, "", "")
    return Slowdown(began, found, factor, SENSORS[most].cause, SENSORS[most].remedy)


def _moved(values: Sequence[float], began: int, found: int) -> float:
    """By how many standard errors a sensor's mean changed."""
    before, after = values[:began], values[began : found + 1]
    change = fmean(after) - fmean(before)
    error = stdev(before) * math.sqrt(1 / len(before) + 1 / len(after))
    return change / error if error > 0 else math.copysign(math.inf, change) if change else 0.0
