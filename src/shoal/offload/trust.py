"""Whether another backend gives what the plain library gives: compared at first use, special values first."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

Functions = Callable[[], tuple[Callable[[np.ndarray], np.ndarray], Callable[[np.ndarray], np.ndarray]]]

_SAMPLES = 4096


def special_values(char: str) -> np.ndarray:
    """Those at which implementations differ, of a floating point type."""
    info = np.finfo(char)
    limits = [float(each) for each in (info.max, info.tiny, info.smallest_subnormal, info.eps)]
    some = [0.0, 1.0, np.inf, *limits, np.pi, 0.5, 1e-3, 6.0, 30.0, 800.0]
    return np.array([np.nan, *some, *(-each for each in some)], char)


def agree(expected: Any, found: Any, tolerance: float, largest: Any = 0.0) -> bool:
    """Equal types and shapes, NaN and infinities at the same places with the same signs, and the rest within the
    relative tolerance. A zero keeps its sign. `largest` is the size of what the values are differences of, by element:
    a few units of its last place are allowed too."""
    expected, found = np.asarray(expected), np.asarray(found)
    if expected.dtype != found.dtype or expected.shape != found.shape:
        return False
    if expected.dtype.kind not in "fc":
        return bool(np.array_equal(expected, found))
    with np.errstate(all="ignore"):
        smallest = np.finfo(expected.dtype).smallest_subnormal
        lost = 64 * np.finfo(expected.dtype).eps * largest
        close = np.abs(expected - found) <= tolerance * np.abs(expected) + lost + 4 * smallest
        close &= np.isfinite(expected) & np.isfinite(found)
        same = (expected == found) | (np.isnan(expected) & np.isnan(found)) | close
        zero = (expected == 0) & (found == 0)
    return bool(same.all()) and bool((np.signbit(expected.real) == np.signbit(found.real))[zero].all())


class Trust:
    """What was compared in this process, by backend, operation and type; and what it showed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str, str], bool] = {}
        self.refused: list[str] = []
        """For `explain` and `doctor`: which backend is out of use for which operation."""

    def of(self, backend: str, operation: str, char: str, functions: Functions, tolerance: float) -> bool:
        """Whether the backend's function may be used for this type of element; compared at the first question."""
        key = (backend, operation, char)
        if key not in self._known:
            plain, other = functions()
            rng = np.random.Generator(np.random.PCG64(len(operation)))  # of its own: the program's numbers are its own
            values = np.concatenate((special_values(char), (rng.standard_normal(_SAMPLES) * 4).astype(char)))
            try:
                with np.errstate(all="ignore"):
                    good = agree(plain(values), other(values), tolerance)
            except Exception:  # whatever it raises: it cannot do this
                good = False
            self.settle(key, good)
        return self._known[key]

    def settle(self, key: tuple[str, str, str], good: bool) -> None:
        with self._lock:
            self._known[key] = good
            if not good:
                self.refused.append(f"{key[0]} for {key[1]} of {key[2]}")

    def known(self, key: tuple[str, str, str]) -> bool | None:
        return self._known.get(key)
