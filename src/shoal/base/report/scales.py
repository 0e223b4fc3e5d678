"""Where values are drawn along an axis, and which of them are named."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

Tick = tuple[float, str]

_LONGEST_NAME = 32


def shortened(name: str, longest: int = _LONGEST_NAME) -> str:
    return name if len(name) <= longest else name[: longest - 1] + "…"


class Scale(Protocol):
    def place(self, value: float) -> float:
        """Where a value is, from 0 to 1; outside for what is outside."""
        ...

    def ticks(self) -> Sequence[Tick]: ...


@dataclass(frozen=True, slots=True)
class Linear:
    low: float
    high: float
    unit: str = ""
    percent: bool = False

    def place(self, value: float) -> float:
        return (value - self.low) / ((self.high - self.low) or 1.0)

    def ticks(self) -> list[Tick]:
        step = _nice_step(self.high - self.low)
        first = math.ceil(self.low / step - 1e-9)
        found = []
        while (value := first * step) <= self.high + 1e-9 * step:
            found.append((value, f"{value * 100:g}%" if self.percent else f"{value:g}{self.unit}"))
            first += 1
        return found


@dataclass(frozen=True, slots=True)
class Log:
    """`seconds` labels its ticks as times."""

    low: float
    high: float
    seconds: bool = False
    unit: str = ""

    def place(self, value: float) -> float:
        if value <= 0:
            return -1.0
        span = math.log(self.high / self.low) or 1.0
        return math.log(value / self.low) / span

    def ticks(self) -> list[Tick]:
        decades = range(math.floor(math.log10(self.low)) - 1, math.ceil(math.log10(self.high)) + 1)
        for steps in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 8), tuple(range(10, 100, 5))):
            scale = 10 if steps[0] == 10 else 1
            values = [step / scale * 10.0**decade for decade in decades for step in steps]
            inside = [value for value in values if self.low * (1 - 1e-9) <= value <= self.high * (1 + 1e-9)]
            if len(inside) >= 3:
                break
        return [(value, duration(value) if self.seconds else f"{value:g}{self.unit}") for value in inside]


@dataclass(frozen=True, slots=True)
class Nines:
    """Shares from 0 to 1, stretched towards 1, so that 90%, 99% and 99.9% are equally far apart."""

    nines: int = 3

    def place(self, value: float) -> float:
        return min(1.0, -math.log10(max(1 - value, 1e-12)) / self.nines)

    def ticks(self) -> list[Tick]:
        shares = [0.0, 0.5, *(1 - 10.0**-count for count in range(1, self.nines + 1))]
        return [(share, f"{share * 100:.6g}%") for share in shares]


@dataclass(frozen=True, slots=True)
class Categories:
    """Names in rows or columns; the value of each is its position."""

    names: Sequence[str]

    def place(self, value: float) -> float:
        return (value + 0.5) / max(1, len(self.names))

    def ticks(self) -> list[Tick]:
        return [(at, shortened(name)) for at, name in enumerate(self.names)]


def duration(seconds: float) -> str:
    """`3 ms`, with as many digits as it has, up to three."""
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if seconds * factor >= 0.9995 or unit == "µs":
            return f"{seconds * factor:.3g} {unit}"
    raise AssertionError


def _nice_step(span: float, most: int = 7) -> float:
    """1, 2 or 5 times a power of ten, such that there are not many ticks."""
    if not span > 0:
        return 1.0
    rough = span / most
    power = 10.0 ** math.floor(math.log10(rough))
    return next((step * power for step in (1, 2, 5) if step * power >= rough), 10 * power)
