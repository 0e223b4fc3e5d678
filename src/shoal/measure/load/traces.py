"""Recorded arrivals: the Azure LLM inference traces, and plain files of seconds.

Azure's files (github.com/Azure/AzurePublicDataset, CC-BY) are CSV with the columns `TIMESTAMP,ContextTokens,
GeneratedTokens`. Only the first is read, in UTC with 7 digits after the second. A plain file has one arrival per line,
in seconds; empty lines and those that begin with `#` are skipped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

import numpy as np

from shoal.core import Invalid, NotFound
from shoal.measure.types import Floats

_STAMP = "TIMESTAMP"
_HINT = f"a trace is a CSV file with the column {_STAMP} (2023-11-16 18:17:03.9799600), or one number of seconds a line"


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """`times_s` (n,) ascends from 0."""

    times_s: Floats

    @property
    def duration_s(self) -> float:
        return float(self.times_s[-1])

    @property
    def rate_per_s(self) -> float:
        """Mean rate; nan for a trace of one moment."""
        return (len(self.times_s) - 1) / self.duration_s if self.duration_s > 0 else math.nan

    def faster(self, factor: float) -> Trace:
        """The same arrivals `factor` times as fast: a day in a minute, bursts included."""
        if not (math.isfinite(factor) and factor > 0):
            raise Invalid(f"a trace cannot be played {factor:g} times as fast", where="speed", hint="above 0")
        return Trace(self.times_s / factor)

    def at_rate(self, rate_per_s: float, *, seed: int) -> Trace:
        """The same hours with another mean rate. Fewer: each arrival is kept with the same chance, which keeps the
        shape of the day. More: each stands for several users, who come within a mean gap of it."""
        if not (math.isfinite(rate_per_s) and rate_per_s > 0):
            raise Invalid(f"{rate_per_s:g} requests per second is not a rate", where="rate", hint="above 0")
        if not self.duration_s > 0:
            raise Invalid("a trace of one moment has no rate to change", where="rate")
        rng = np.random.default_rng(seed)
        factor = rate_per_s / self.rate_per_s
        whole, part = divmod(factor, 1.0)
        copies = int(whole) + (rng.random(len(self.times_s)) < part)
        rows = np.repeat(np.arange(len(self.times_s)), copies)
        if rows.size == 0:
            raise Invalid(f"nothing is left of the trace at {rate_per_s:g} requests per second", where="rate")
        # The first of each stands where it was recorded, the others after it, still inside the trace.
        first = np.concatenate(([True], rows[1:] != rows[:-1]))
        times = self.times_s[rows] + np.where(first, 0.0, rng.random(rows.size) / self.rate_per_s)
        return Trace(np.sort(np.minimum(times, self.duration_s)))


def read_trace(path: Path) -> Trace:
    """Raises NotFound if there is no such file, Invalid with file and line if it is no trace."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            return parse_trace(file, name=str(path))
    except FileNotFoundError:
        raise NotFound("there is no such trace", where=str(path)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"the trace cannot be read: {error}", where=str(path), hint=_HINT) from error


def parse_trace(lines: Iterable[str], *, name: str) -> Trace:
    """A trace from its lines; `name` is what errors call it."""
    numbered = ((number, line.strip()) for number, line in enumerate(lines, 1))
    content = ((number, line) for number, line in numbered if line and not line.startswith("#"))
    first = next(content, None)
    if first is None:
        raise Invalid("the trace is empty", where=name, hint=_HINT)
    if _STAMP in first[1].split(","):
        return _azure(first[1].split(","), content, name)
    return _from_zero([_seconds(line, f"{name}:{number}") for number, line in chain([first], content)])


def _azure(columns: list[str], content: Iterator[tuple[int, str]], name: str) -> Trace:
    times = []
    for number, line in content:
        where, fields = f"{name}:{number}", line.split(",")
        if len(fields) != len(columns):
            raise Invalid(f"there are {len(fields)} fields instead of {len(columns)}", where=where, hint=_HINT)
        times.append(_stamp(fields[columns.index(_STAMP)], where))
    if not times:
        raise Invalid("the trace has a header but no arrivals", where=name, hint=_HINT)
    return _from_zero(times)


def _stamp(text: str, where: str) -> float:
    """Seconds of a moment, in UTC unless it names its zone. What it says below a microsecond is dropped."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise Invalid(f"{text[:40]!r} is not a moment", where=where, hint=_HINT) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _seconds(text: str, where: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise Invalid(f"{text[:40]!r} is not a number of seconds", where=where, hint=_HINT)
    return number


def _from_zero(times_s: list[float]) -> Trace:
    ordered = np.sort(np.array(times_s))
    return Trace(ordered - ordered[0])
