"""Knowledge of a policy about a job's length: the truth, a prediction, or nothing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

import numpy as np

from shoal.core import Invalid
from shoal.schedule.types import Array, Index

PREDICTIONS = 101
"""Added to the seed, so that predictions are not drawn from the same numbers as anything else."""


class Knows(StrEnum):
    KNOWN = "known"
    PREDICTED = "predicted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Lengths:
    """`factor`: a prediction is wrong by at most this factor, either way, all errors on a logarithmic scale being
    equally likely."""

    knows: Knows = Knows.KNOWN
    factor: float = 1.0

    @classmethod
    def parse(cls, text: str) -> Self:
        """`known`, `unknown`, or `predicted:2` for predictions that may be wrong by a factor of two."""
        word, _, factor = text.partition(":")
        if word in (Knows.KNOWN, Knows.UNKNOWN) and not factor:
            return cls(Knows(word))
        try:
            value = float(factor)
        except ValueError:
            value = 0.0
        if word != Knows.PREDICTED or not 1.0 <= value < float("inf"):
            raise Invalid(
                f"{text!r}", where="lengths", hint="known, unknown, or predicted:FACTOR with a factor of 1 up"
            )
        return cls(Knows.PREDICTED, value)

    def __str__(self) -> str:
        return f"{self.knows}:{self.factor:g}" if self.knows is Knows.PREDICTED else str(self.knows)


class LengthOracle:
    """What policies are told about the work that jobs have left."""

    def __init__(self, lengths: Lengths, steps: Array, seed: int) -> None:
        self._lengths = lengths
        self._predicted = steps
        if lengths.knows is Knows.PREDICTED:
            drawn = np.random.default_rng(seed + PREDICTIONS).uniform(-1.0, 1.0, len(steps))
            self._predicted = steps * lengths.factor**drawn

    def work_left(self, jobs: Index, left: Array, done: Array) -> Array:
        """(k,) steps for these jobs, of which `left` (k,) are left in truth and `done` (k,) are done.

        A predicted job is believed to have between prediction/factor and prediction*factor steps, but no fewer than
        it has done already: the mean of what is possible still (of a log-uniform distribution), less what is done.
        """
        if self._lengths.knows is Knows.KNOWN:
            return left
        if self._lengths.knows is Knows.UNKNOWN:
            return np.full(len(jobs), np.nan)
        predicted, factor = self._predicted[jobs], self._lengths.factor
        most = predicted * factor
        least = np.minimum(np.maximum(predicted / factor, done), most * (1.0 - 1e-6))
        mean = (most - least) / np.log(most / least) if factor > 1.0 else predicted
        return np.maximum(mean - done, most * 1e-6)
