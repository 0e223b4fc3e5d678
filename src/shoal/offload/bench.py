"""Paired measurements: the plain library and the captured program in two processes, in turns."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import exp, isclose, log
from typing import Any

from shoal.core import ShoalError
from shoal.offload import workloads
from shoal.offload.launch import environment
from shoal.offload.workloads import WORKLOADS

_TOLERANCE = 1e-6
"""Relative, of the digests: sums of millions of values in another order."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds of the fastest runs and of the first ones, processor seconds of those that took least, and whether the
    results were equal."""

    workload: str
    size: int
    plain_s: float
    captured_s: float
    first_plain_s: float
    first_captured_s: float
    plain_cpu_s: float
    captured_cpu_s: float
    equal: bool
    load: float

    @property
    def speedup(self) -> float:
        return self.plain_s / self.captured_s

    @property
    def cpu_speedup(self) -> float:
        """By processor seconds, which other programs on the machine change less. Threads gain nothing in it."""
        return self.plain_cpu_s / self.captured_cpu_s

    @property
    def first_speedup(self) -> float:
        return self.first_plain_s / self.first_captured_s


class _Side:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, text: str | None) -> Mapping[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if text is not None:
            self._process.stdin.write(text + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise ShoalError(f"the measured program ended with {self._process.wait()}")
        return json.loads(line)  # type: ignore[no-any-return]


@contextlib.contextmanager
def _side(name: str, size: int, environ: Mapping[str, str], *by_hand: str) -> Iterator[_Side]:
    argv = [sys.executable, "-m", "shoal.offload.side", name, str(size), *by_hand]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(environ))
    try:
        yield _Side(process)
    finally:
        process.kill()
        process.communicate()


def measure(name: str, size: int, rounds: int, **settings: object) -> Measured:
    """One workload at one size. `settings` are those of the captured side."""
    plain_environ, captured_environ = _environments(settings)
    with _side(name, size, plain_environ) as plain, _side(name, size, captured_environ) as captured:
        for each in (plain, captured):
            each.ask(None)
        runs = [(plain.ask("run"), captured.ask("run")) for _ in range(rounds)]
    equal = all(
        isclose(one, other, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
        for first, second in runs
        for one, other in zip(first["digest"], second["digest"], strict=True)
    )
    plain_s, captured_s = ([float(run[side]["seconds"]) for run in runs] for side in (0, 1))
    plain_cpu_s, captured_cpu_s = (min(float(run[side]["cpu"]) for run in runs) for side in (0, 1))
    return Measured(
        name, size, min(plain_s), min(captured_s), plain_s[0], captured_s[0], plain_cpu_s, captured_cpu_s, equal,
        os.getloadavg()[0],
    )  # fmt: skip


def _environments(settings: Mapping[str, object]) -> tuple[dict[str, str], dict[str, str]]:
    plain = {key: value for key, value in os.environ.items() if not key.startswith("SHOAL_OFFLOAD__")}
    return plain, environment(plain, program=workloads.__file__, **settings)


@dataclass(frozen=True, slots=True)
class ByHand:
    """Seconds of the captured program after its first run, and of each program by hand: the least of the runs."""

    workload: str
    size: int
    captured_s: float
    by_hand_s: Mapping[str, float]
    equal: bool
    load: float

    @property
    def best(self) -> str:
        return min(self.by_hand_s, key=self.by_hand_s.__getitem__)

    @property
    def ratio(self) -> float:
        """Above 1 where capture is faster than the best by hand."""
        return self.by_hand_s[self.best] / self.captured_s


def measure_by_hand(name: str, size: int, rounds: int, **settings: object) -> ByHand:
    """One workload at one size, captured and by hand for each backend, all in turns."""
    from shoal.offload.baselines.by_hand import programs

    plain_environ, captured_environ = _environments(settings)
    backends = list(programs(name))
    with contextlib.ExitStack() as stack:
        sides = [stack.enter_context(_side(name, size, captured_environ))]
        sides += [stack.enter_context(_side(name, size, plain_environ, each)) for each in backends]
        for each in sides:
            each.ask(None)
        runs = [[each.ask("run") for each in sides] for _ in range(rounds + 1)]
    seconds = [min(float(run[side]["seconds"]) for run in runs[1:]) for side in range(len(sides))]
    equal = all(
        isclose(one, other, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
        for one, other in zip(runs[0][0]["digest"], runs[0][1]["digest"], strict=True)
    )
    by_hand = dict(zip(backends, seconds[1:], strict=True))
    return ByHand(name, size, seconds[0], by_hand, equal, os.getloadavg()[0])


def geometric_mean(values: list[float]) -> float:
    return exp(sum(map(log, values)) / len(values))


def workloads_of(suites: list[str]) -> list[str]:
    return [name for name, each in WORKLOADS.items() if each.suite in suites]
