"""Reports of workloads: steps done within seconds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from shoal.core import Invalid, ShoalError

LEAST, MOST = 1e-12, 1e12
"""Steps per second that are believed."""


def is_rate(steps: float, seconds: float) -> bool:
    """Whether this progress is a rate that a sample may have."""
    return LEAST <= steps / seconds <= MOST


@dataclass(frozen=True, slots=True)
class Sample:
    """`steps` that `job` made within `seconds` on `column` (`Column.key`), alone or beside a job of another kind.

    A `kind` is what runs alike: model, batch size and gang size. Reference tables have no job: leave it empty.
    `seconds` is a difference on one machine's own clock; `at` (Unix seconds) only orders the samples, so machines
    whose clocks differ do no harm. `restarted` marks the first report after a start, whose steps are slow: it counts
    only while there is no other. `fits=False` says that the job ran out of memory there: then both numbers are zero.
    Raises `Invalid`.
    """

    job: str
    kind: str
    column: str
    steps: float
    seconds: float
    at: float
    beside: str | None = None
    restarted: bool = False
    fits: bool = True

    def __post_init__(self) -> None:
        if found := tuple(_faults(self)):
            raise Invalid(found[0].what, where=found[0].where, hint=found[0].hint, problems=found)

    @property
    def per_s(self) -> float:
        return self.steps / self.seconds


def _faults(sample: Sample) -> Iterator[ShoalError]:
    where = f"sample of {sample.job or 'no job'}, kind {sample.kind or '?'}, on {sample.column or '?'}"
    if not sample.kind or not sample.column or sample.beside == "":
        yield Invalid("a sample needs a kind and a column, and beside is a kind or None", where=where)
    if not math.isfinite(sample.at):
        yield Invalid(f"the time {sample.at} must be finite", where=where)
    if not sample.fits:
        if sample.steps or sample.seconds:
            yield Invalid("what does not fit makes no steps", where=where, hint="give zero steps and seconds")
        return
    sound = True
    for name, value in (("steps", sample.steps), ("seconds", sample.seconds)):
        if not (math.isfinite(value) and value > 0.0):
            hint = "skip reports without progress; say fits=False for a job that ran out of memory"
            yield Invalid(f"{name} must be positive and finite, not {value}", where=where, hint=hint)
            sound = False
    if sound and not is_rate(sample.steps, sample.seconds):
        what = f"{sample.steps} steps in {sample.seconds} s is no rate between {LEAST:g} and {MOST:g}"
        yield Invalid(what, where=where, hint="check the units")
