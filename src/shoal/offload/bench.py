"""Paired measurements: the plain library and the captured program in two processes, in turns."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
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


class Side:
    """A process that runs a workload when it is asked to."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, text: str) -> Mapping[str, Any]:
        """Raises ShoalError where it has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # its end is told below
            self._process.stdin.write(text + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise ShoalError(f"the measured program ended with {self._process.wait()}")
        return json.loads(line)  # type: ignore[no-any-return]


@contextlib.contextmanager
def side(argv: Sequence[str], environ: Mapping[str, str]) -> Iterator[Side]:
    """Python with these arguments."""
    process = subprocess.Popen(
        [sys.executable, *argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(environ)
    )
    try:
        yield Side(process)
    finally:
        process.kill()
        process.communicate()


def same(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether two digests are of equal results."""
    return all(isclose(a, b, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE) for a, b in zip(one, other, strict=True))


def measure(name: str, size: int, rounds: int, **settings: object) -> Measured:
    """One workload at one size. `settings` are those of the captured side."""
    plain_environ, captured_environ = environments(settings)
    argv = ["-m", "shoal.offload.workloads", name]
    with side(argv, plain_environ) as plain, side(argv, captured_environ) as captured:
        for each in (plain, captured):
            each.ask(str(size))
        runs = [(plain.ask("run"), captured.ask("run")) for _ in range(rounds)]
    equal = all(same(first["digest"], second["digest"]) for first, second in runs)
    plain_s, captured_s = ([float(run[number]["seconds"]) for run in runs] for number in (0, 1))
    plain_cpu_s, captured_cpu_s = (min(float(run[number]["cpu"]) for run in runs) for number in (0, 1))
    return Measured(
        name, size, min(plain_s), min(captured_s), plain_s[0], captured_s[0], plain_cpu_s, captured_cpu_s, equal,
        os.getloadavg()[0],
    )  # fmt: skip


def environments(settings: Mapping[str, object]) -> tuple[dict[str, str], dict[str, str]]:
    """Of the plain side, and of the captured one with these settings."""
    plain = {key: value for key, value in os.environ.items() if not key.startswith("SHOAL_OFFLOAD__")}
    return plain, environment(plain, program=workloads.__file__, **settings)


def geometric_mean(values: list[float]) -> float:
    return exp(sum(map(log, values)) / len(values))


def workloads_of(suites: list[str]) -> list[str]:
    return [name for name, each in WORKLOADS.items() if each.suite in suites]
