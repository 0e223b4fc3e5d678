"""Seconds of array operations by backend: rates of this machine, corrected by what programs were seen to take."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.offload.arrays.program import Program
from shoal.offload.arrays.program import Program
from shoal.offload.settings import OffloadSettings

NANOSECONDS: Mapping[str, float] = {
    "add": 0.4, "subtract": 0.4, "multiply": 0.4, "divide": 0.5, "negative": 0.3, "positive": 0.5, "absolute": 0.3,
    "square": 0.4, "sqrt": 1.5, "reciprocal": 0.8, "exp": 7.0, "exp2": 6.0, "expm1": 9.0, "log": 4.6, "log2": 4.8,
    "log10": 8.6, "log1p": 10.0, "sin": 10.0, "cos": 10.0, "tan": 12.0, "arcsin": 12.0, "arccos": 12.0, "arctan": 10.0,
    "sinh": 15.0, "cosh": 10.0, "tanh": 14.0, "arctan2": 21.0, "hypot": 22.0, "power": 15.0, "erf": 12.0, "erfc": 14.0,
    "floor_divide": 20.0, "remainder": 12.0, "where": 0.6, "expit": 7.0, "gammaln": 17.0, "ndtr": 12.0,
}  # fmt: skip
"""For one element of double precision in the cache: an AMD EPYC of the Zen 4 generation, NumPy 2.4. Calibration
replaces them."""

_UNKNOWN_NS = 1.0

_CALL_S = 1.2e-6
_CACHE_BYTES = 1 << 20

_DOUBLE = 8.0

_FASTER = 0.3
"""Of a scalar function's time, that a vectorised one takes."""

_FUNCTION_S = 2e-9
"""Of an element, from which an operation is a function and not one instruction."""

_IN_REGISTERS_NS = 0.12
"""For one arithmetic operation of a compiled kernel, which loads and stores nothing."""

_KERNEL_S = 15e-6
"""To call a kernel for one block."""

_MOST_SEEN = 4096
_WEIGHT = 0.3
"""Of a new measurement against those before."""


@dataclass(frozen=True, slots=True)
class Rates:
    """`nanoseconds` for one element of double precision in the cache, by operation; seconds for a byte that passes the
    memory, of one core; and to hand work to another thread."""

    nanoseconds: Mapping[str, float] = field(default_factory=lambda: NANOSECONDS)
    memory_s_per_byte: float = 1 / 6e9
    thread_s: float = 40e-6


class CostModel:
    """Estimates from rates, replaced by what a program was seen to take."""

    def __init__(self, rates: Rates | None = None) -> None:
        self.calibrate(rates or Rates())
        self._seen: dict[tuple[Any, ...], float] = {}
        self._pace: dict[str, float] = {}
        """Seconds for an estimated one, by backend: how wrong its estimates are on this machine."""

    def calibrate(self, rates: Rates) -> None:
        """This machine's rates, from now on."""
        self.rates, self._rates = rates, {**NANOSECONDS, **rates.nanoseconds}

    def seconds_per_element(self, name: str, char: str) -> float:
        scale = 0.5 if char == "f" else 1.0
        return self._rates.get(name, _UNKNOWN_NS) * scale * 1e-9

    def plain(self, program: Program) -> float:
        """Each operation reads and writes whole arrays."""
        total = 0.0
        for one in program.operations:
            moved = one.dtype.itemsize * (1 + len(one.arguments)) * program.size
            work = self.seconds_per_element(one.ufunc.__name__, one.dtype.char) * program.size
            total += _CALL_S + work + (moved * self.rates.memory_s_per_byte if moved > _CACHE_BYTES else 0.0)
        return total

    def chunks(self, program: Program, threads: int, elements: int, faster: Collection[str] = ()) -> float:
        """Inputs and outputs pass the memory once; the rest stays in the cache. `faster` are functions that have a
        vectorised replacement."""
        pieces = max(1, -(-program.size // elements))
        threads = min(threads, pieces)
        work = sum(
            self.seconds_per_element(one.ufunc.__name__, one.dtype.char)
            * (_FASTER if one.ufunc.__name__ in faster else 1)
            for one in program.operations
        )
        calls = _CALL_S * pieces * (len(program.operations) + 2)
        moved = program.bytes_touched * self.rates.memory_s_per_byte
        return (work * program.size + calls + moved) / threads + self.rates.thread_s * (threads - 1)

    def compiled(self, program: Program, threads: int, elements: int) -> float:
        """Inputs and outputs pass the memory once; everything else stays in registers."""
        pieces = max(1, -(-program.size // elements))
        threads = min(threads, pieces)
        work = 0.0
        for one in program.operations:
            plain = self.seconds_per_element(one.ufunc.__name__, one.dtype.char)
            work += plain * _FASTER if plain > _FUNCTION_S else _IN_REGISTERS_NS * 1e-9
        moved = program.bytes_touched * self.rates.memory_s_per_byte
        return (work * program.size + moved + _KERNEL_S * pieces) / threads + self.rates.thread_s * (threads - 1)

    def worth_threads(self, name: str, char: str, size: int, threads: int) -> bool:
        work = size * (self.seconds_per_element(name, char) + _DOUBLE * 2 * self.rates.memory_s_per_byte)
        return work / threads + self.rates.thread_s * (threads - 1) < 0.8 * work

    def expected(self, backend: str, program: Program, estimate: float) -> float:
        """What was seen of this program at about this size, else the estimate at the machine's present pace."""
        seen = self._seen.get((backend, program.key, program.size.bit_length()))
        return estimate * self._pace.get(backend, 1.0) if seen is None else seen * program.size

    def measured(self, backend: str, program: Program) -> bool:
        """Whether it ran this program at about this size."""
        return (backend, program.key, program.size.bit_length()) in self._seen

    def observe(self, program: Program, backend: str, seconds: float, estimate: float) -> None:
        """`estimate` is without regard to what was seen."""
        if estimate > 0:
            pace = self._pace.get(backend, 1.0)
            self._pace[backend] = pace + _WEIGHT * (seconds / estimate - pace)
        key = (backend, program.key, program.size.bit_length())
        rate = seconds / max(program.size, 1)
        before = self._seen.get(key)
        if before is None:
            if len(self._seen) >= _MOST_SEEN:
                self._seen.clear()
            self._seen[key] = rate
        else:
            # a slow run says little on a shared machine, a fast one shows what is possible
            self._seen[key] = min(rate, before) * (1 - _WEIGHT) + rate * _WEIGHT


_CAPTURE_S = 4e-6
"""To capture one operation, and what its evaluation adds for it."""

WHOLE_NUMBERS = 1 << 19
"""Elements of an array of whole numbers from which on capture pays: their operations are cheap, and no function of
theirs is vectorised."""

_EVALUATIONS = 20
"""Of a size, before it is judged."""

_ALWAYS = 1 << 20
"""Elements that are always captured."""


class Worth:
    """Adds up gains less costs by size. A threshold that the user has set stays."""

    def __init__(self, threshold: int) -> None:
        self._fixed = threshold != OffloadSettings().threshold
        self._found: dict[int, tuple[int, float]] = {}

    def threshold(self, before: int, program: Program, gain: float) -> int:
        """The one from now on. `gain` is in seconds, less what the choice cost."""
        if self._fixed or program.size > _ALWAYS:
            return before
        size_class = program.size.bit_length()
        times, total = self._found.get(size_class, (0, 0.0))
        times, total = times + 1, total + gain - _CAPTURE_S * len(program.operations)
        self._found[size_class] = times, total
        return max(before, 1 << size_class) if times >= _EVALUATIONS and total < 0 else before
