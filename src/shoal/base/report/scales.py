"""Scales: positions of values along an axis, and their labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LONGEST_NAME = 32


def shortened(name: str, longest: int = _LONGEST_NAME) -> str:
    return name if len(name) <= longest else name[: longest - 1] + "…"


@dataclass(frozen=True, slots=True)
class Linear:
    low: float
    high: float
    unit: str = ""
    percent: bool = False

    def put(self, axes: Axes, side: str) -> None:
        _limits(axes, side, self.low, self.high if self.high > self.low else self.low + 1.0)
        getattr(axes, f"{side}axis").set_major_formatter(
            lambda value, _: f"{value * 100:g}%" if self.percent else f"{value:g}{self.unit}"
        )


@dataclass(frozen=True, slots=True)
class Log:
    """`seconds` labels its ticks as times."""

    low: float
    high: float
    seconds: bool = False
    unit: str = ""

    def put(self, axes: Axes, side: str) -> None:
        from matplotlib.ticker import NullLocator

        getattr(axes, f"set_{side}scale")("log", nonpositive="clip")
        getattr(axes, f"{side}axis").set_minor_locator(NullLocator())
        _limits(axes, side, self.low, self.high)
        ticks = self._ticks()
        names = [duration(value) if self.seconds else f"{value:g}{self.unit}" for value in ticks]
        getattr(axes, f"set_{side}ticks")(ticks, names)

    def _ticks(self) -> list[float]:
        """Round values: at least three, where the range has three."""
        decades = range(math.floor(math.log10(self.low)) - 1, math.ceil(math.log10(self.high)) + 1)
        inside: list[float] = []
        fine = [tenth / 10 for tenth in range(10, 100)]
        for steps in ([1.0], [1.0, 3.0], [1.0, 2.0, 5.0], [1.0, 1.5, *range(2, 9)], fine):
            values = [step * 10.0**decade for decade in decades for step in steps]
            inside = [value for value in values if self.low * (1 - 1e-9) <= value <= self.high * (1 + 1e-9)]
            if len(inside) >= 3:
                break
        return inside


@dataclass(frozen=True, slots=True)
class Nines:
    """Shares from 0 to 1, stretched towards 1, so that 90%, 99% and 99.9% are equally far apart."""

    nines: int = 3

    def put(self, axes: Axes, side: str) -> None:
        import numpy as np

        def stretched(share: Any) -> Any:
            return -np.log10(np.maximum(1 - np.asarray(share), 10.0 ** -(self.nines + 1)))

        getattr(axes, f"set_{side}scale")(
            "function", functions=(stretched, lambda place: 1 - 10.0 ** -np.asarray(place))
        )
        _limits(axes, side, 0.0, 1 - 10.0**-self.nines)
        shares = [0.0, 0.5, *(1 - 10.0**-count for count in range(1, self.nines + 1))]
        getattr(axes, f"set_{side}ticks")(shares, [f"{share * 100:.6g}%" for share in shares])


@dataclass(frozen=True, slots=True)
class Categories:
    """Names in rows, the first on top; the value of each is its position."""

    names: Sequence[str]

    def put(self, axes: Axes, side: str) -> None:
        last = max(1, len(self.names)) - 0.5
        _limits(axes, side, *((last, -0.5) if side == "y" else (-0.5, last)))
        getattr(axes, f"set_{side}ticks")(range(len(self.names)), [shortened(name) for name in self.names])


Scale = Linear | Log | Nines | Categories


def duration(seconds: float) -> str:
    """`3 ms`, with as many digits as it has, up to three."""
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if seconds * factor >= 0.9995 or unit == "µs":
            return f"{seconds * factor:.3g} {unit}"
    raise AssertionError


def _limits(axes: Axes, side: str, low: float, high: float) -> None:
    getattr(axes, f"set_{side}lim")(low, high)
