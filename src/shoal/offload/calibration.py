"""The rates of this machine, measured in a few seconds and kept for it."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shoal.base.files import write_whole
from shoal.offload.costs import NANOSECONDS, Rates
from shoal.offload.history import History

_ELEMENTS = 16384
_LARGE = 1 << 22
_REPEATS = 5
_WIDE = frozenset(("erf", "erfc", "expit", "ndtr"))
_LEAST_S = 2e-4

_TAKES_S, _WORTH = 0.5, 20
"""Seconds of one core, and the multiple of them that captured work must have taken."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """`machine` names the processor and its libraries: rates of another one are not used."""

    machine: str
    rates: Rates


def machine_name() -> str:
    """The processor, the cores that may be used, and the version of NumPy."""
    from importlib.metadata import version

    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model)
    except OSError:
        pass
    return f"{model}, {len(os.sched_getaffinity(0))} cores, NumPy {version('numpy')}"


def calibration_file(folder: Path) -> Path:
    return folder / "calibration.json"


def read_calibration(folder: Path) -> Calibration | None:
    """None where there is none, or one of another machine."""
    try:
        told = json.loads(calibration_file(folder).read_text())
        found = Calibration(told["machine"], Rates(**told["rates"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if found.machine == machine_name() else None


def write_calibration(folder: Path, calibration: Calibration) -> None:
    """Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(calibration_file(folder), json.dumps(asdict(calibration), indent=2) + "\n")


def calibrate(told: Callable[[str], None] = lambda _: None) -> Calibration:
    """Measure; a few seconds. `told` hears the name of each operation before it is measured."""
    import numpy as np

    generator = np.random.Generator(np.random.PCG64(0))
    values = generator.uniform(0.1, 0.9, _ELEMENTS)
    wide = generator.uniform(-3, 3, _ELEMENTS)  # the error functions have several formulas
    others = generator.uniform(0.1, 0.9, _ELEMENTS)
    out = np.empty(_ELEMENTS)
    found: dict[str, float] = {}
    for name in NANOSECONDS:
        function = _function(name)
        if function is None:
            continue
        told(name)
        arguments = (wide if name in _WIDE else values, others)[: function.nin]
        found[name] = _seconds(lambda f=function, a=arguments: f(*a, out=out)) / _ELEMENTS * 1e9  # type: ignore[misc]
    told("memory")
    large = generator.random(_LARGE)
    whole = _seconds(lambda: np.add(large, large)) / _LARGE
    memory = max(1e-12, (whole - found["add"] * 1e-9) / (3 * large.itemsize))
    told("threads")
    return Calibration(machine_name(), Rates(found, memory, _thread_seconds()))


class Calibrating:
    """Measures by itself, once in a while of captured work that it would not prolong by much. `use` gets the rates."""

    def __init__(self, folder: Path, history: History, use: Callable[[Rates], None], *, wanted: bool) -> None:
        self._folder, self._history, self._use, self._wanted = folder, history, use, wanted
        self.thread: threading.Thread | None = None

    def observe(self, seconds: float) -> None:
        """Seconds that an evaluation took; those of runs before count as well."""
        if self._wanted and self._history.add("calibration", seconds) > _WORTH * _TAKES_S:
            self._wanted = False
            self.thread = threading.Thread(target=self._run, name="shoal-offload-calibration", daemon=True)
            self.thread.start()

    def _run(self) -> None:
        found = calibrate()
        self._use(found.rates)
        with contextlib.suppress(OSError):  # a home that cannot be written: this run knows
            write_calibration(self._folder, found)


def _function(name: str) -> Any:
    import numpy as np

    found = getattr(np, name, None)
    if found is None:
        try:
            from scipy import special
        except ImportError:
            return None
        found = getattr(special, name, None)
    return found if isinstance(found, np.ufunc) and found.nin <= 2 else None


def _seconds(work: Callable[[], Any]) -> float:
    """The least of a few runs, each long enough for the clock."""
    best = float("inf")
    for _ in range(_REPEATS):
        count, began = 0, time.perf_counter()
        while (taken := time.perf_counter() - began) < _LEAST_S or not count:
            work()
            count += 1
        best = min(best, taken / count)
    return best


def _thread_seconds() -> float:
    from shoal.offload.arrays.threads import Threads

    threads = Threads()
    cores = len(os.sched_getaffinity(0))
    try:
        return _seconds(lambda: threads.share(lambda _: None, range(cores), cores)) / max(1, cores - 1)
    finally:
        threads.close()


def as_rows(calibration: Calibration) -> list[tuple[str, float, float]]:
    """Each operation with nanoseconds for one element here, and as they are without calibration."""
    rates: Mapping[str, float] = calibration.rates.nanoseconds
    return [(name, rates[name], NANOSECONDS[name]) for name in sorted(rates)]
