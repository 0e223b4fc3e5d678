"""The rates of this machine, measured in a few seconds and kept for it."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shoal.base.files import write_whole
from shoal.offload.costs import NANOSECONDS, Rates

_ELEMENTS = 16384
_LARGE = 1 << 22
_REPEATS = 5
_WIDE = frozenset(("erf", "erfc", "expit", "ndtr"))
_LEAST_S = 2e-4


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
