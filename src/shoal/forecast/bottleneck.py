"""Detection of when a job became slower, and of the sensor that moved with it. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median, stdev
from typing import Any, NamedTuple, Self

from scipy.special import ndtri, stdtr

from shoal.core import Invalid

_SHIFT = 0.5
"""Half of the slowdown that is found the fastest, in standard deviations of a step time."""
_BOUND = 3.0
"""Standard deviations that one step counts for at most: one slow step, such as a checkpoint, is no slowdown."""
_MOVED = 4.0
"""Standard errors that a sensor must have moved by to be named: with thirteen, by chance in 1 of 2,400 alarms."""
_NOISE = 0.01
"""The least standard deviation of a sensor, as a part of its mean: one that never moved may move by so little."""
_FEWEST = 8
"""Readings before the change, without which a sensor tells nothing."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """What a sensor tells when it rises (`sign` 1) or falls (-1) by `least` or more, and what helps. A `hint` is named
    only where no other sensor moved."""

    sign: int
    cause: str
    remedy: str
    least: float = 0.0
    hint: bool = False


_HOST_MEMORY = "host memory", "run it guaranteed under the guard, or give it a memory domain of its own"
_CPUS = "neighbour", "ask for more cores, or for the guaranteed class under the guard"
_DEVICE = "neighbour", "ask for a device of its own, or for the guaranteed class"

SENSORS: Mapping[str, Suspect] = {
    "network_wait_s": Suspect(1, "parameter server or network", "add a parameter server, or place the gang closer"),
    "input_wait_s": Suspect(1, "input pipeline", "give the job more cores, or cache its input"),
    "data_wait": Suspect(1, "storage", "give the cache more room, or the job a longer `cache.wait`", least=0.02),
    "memory_stall": Suspect(1, *_HOST_MEMORY, least=0.02),
    "memory_latency_ns": Suspect(1, *_HOST_MEMORY),
    "memory_bytes_per_s": Suspect(1, *_HOST_MEMORY, hint=True),
    "cpu_wait": Suspect(1, *_CPUS, least=0.02),
    "cpu_throttled": Suspect(1, "CPU limit", "ask for more cores", least=0.02),
    "guard_share": Suspect(
        -1, "neighbour", "the guard holds it back for guaranteed work: ask for that class", least=0.02
    ),
    "steal": Suspect(1, "neighbour", "the hypervisor gives its CPUs to others: move to another machine", least=0.02),
    "device_wait": Suspect(1, *_DEVICE, least=0.02),
    "device_launches_beside": Suspect(1, *_DEVICE),
    "neighbour_busy": Suspect(1, *_DEVICE, hint=True),
    "clock_mhz": Suspect(-1, "throttled device", "look at the device's temperature and power limit"),
}
"""Seconds are of a step, `memory_stall` is a share of cycles; waits, `cpu_throttled`, `guard_share` and `steal` are
between 0 and 1."""


@dataclass(frozen=True, slots=True)
class Slowdown:
    """Found at step `found`, it began at about step `began`; steps take `factor` times as long. `cause`, `remedy` and
    `sensor` are empty where no sensor moved; `before` and `after` are its means."""

    began: int
    found: int
    factor: float
    cause: str
    remedy: str
    sensor: str = ""
    before: float = 0.0
    after: float = 0.0

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def why(self) -> str:
        if not self.cause:
            return "no sensor moved with it"
        return f"{self.cause}; {self.remedy} ({self.sensor} went from {self.before:.3g} to {self.after:.3g})"


def detect(
    step_s: Sequence[float], sensors: Mapping[str, Sequence[float]], *, mean_run: float, late: int = 0
) -> Slowdown | None:
    """The first slowdown, or None. What a sensor did not tell is NaN. `mean_run` is the false-alarm rate: the mean
    number of steps until an alarm where nothing changes, if logarithms of step times are normal and independent.
    Sensors may be `late` by this number of steps, which count after the alarm for what held the job back.

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
                return _slowdown(step_s, sensors, began, number, late)
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
        if len(values) != len(step_s) or any(math.isinf(one) for one in values):
            raise Invalid(f"the sensor {name} needs one finite number for each step, or nan")


def _slowdown(
    step_s: Sequence[float], sensors: Mapping[str, Sequence[float]], began: int, found: int, late: int
) -> Slowdown:
    logs = [math.log(one) for one in step_s[: found + 1]]
    # The sum may have left zero by chance just before: the change is where the step times differ most.
    began = max(range(began, found + 1), key=lambda at: _moved(logs, at, found))
    end = found + 1 + late
    factor = median(step_s[began:end]) / median(step_s[:began])
    readings = (_Reading.of(name, values[:began], values[began:end]) for name, values in sensors.items())
    moved = [one for one in readings if one is not None and one.errors >= _MOVED]
    most = max(moved, key=lambda one: (not SENSORS[one.name].hint, one.errors), default=None)
    if most is None:
        return Slowdown(began, found, factor, "", "")
    suspect = SENSORS[most.name]
    return Slowdown(began, found, factor, suspect.cause, suspect.remedy, most.name, most.before, most.after)


class _Reading(NamedTuple):
    """A sensor's means before and after the change, and by how many standard errors it moved towards a slowdown."""

    name: str
    before: float
    after: float
    errors: float

    @classmethod
    def of(cls, name: str, *parts: Sequence[float]) -> Self | None:
        """None for one that told too little."""
        before, after = ([one for one in part if not math.isnan(one)] for part in parts)
        if len(before) < _FEWEST or not after:
            return None
        usual, now, suspect = fmean(before), fmean(after), SENSORS[name]
        change = suspect.sign * (now - usual)
        if change <= suspect.least:
            return cls(name, usual, now, 0.0)
        error = max(stdev(before), _NOISE * abs(usual)) * math.sqrt(1 / len(before) + 1 / len(after))
        return cls(name, usual, now, change / error if error > 0 else math.inf)


def _moved(logs: Sequence[float], began: int, found: int) -> float:
    """By how many standard errors the mean of step times changed."""
    before, after = logs[:began], logs[began : found + 1]
    change = fmean(after) - fmean(before)
    error = stdev(before) * math.sqrt(1 / len(before) + 1 / len(after))
    return change / error if error > 0 else math.copysign(math.inf, change) if change else 0.0
