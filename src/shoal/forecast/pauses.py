"""The pauses of a running job (checkpoints, evaluations): found in its reports, and how many are still to come. Pure.

Renewal and reward: steps come at a steady pace, and between pauses lie numbers of steps whose mean and spread are
learned. The time of a pause that is over its steps' usual time is its length.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean, median

_RECENT = 64
_LEAST = 6
"""Reports before the first that can be a pause: what is usual must be known."""
_OUTLIER = 6.0
_LONGER = 0.5
"""A pause is longer than usual by six standard deviations and by half."""
_STEADY = 0.02
_TO_SIGMA = 1.4826
"""The standard deviation over the median absolute deviation, of a normal distribution."""
_MOST = 64
_PRIOR_WORTH = 3.0
"""As how many observations it counts that pauses come by chance, as in a Poisson process: there the squared coefficient
of variation of the steps between them is 1."""
_PRIOR_LENGTH = 0.1
"""The same of the lengths of pauses."""
_EDGE = 0.25
"""Variance of the count for where the first and the last pause fall."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """Seconds of pauses to come: the mean and its standard deviation, and what was seen of them."""

    seconds: float
    deviation: float
    seen: int
    length_s: float


@dataclass
class Pauses:
    """Follows the reports of one attempt. `seconds` is the sum of all pauses so far."""

    seconds: float = 0.0
    _first: int | None = None
    _step_s: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    _seen: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=_MOST))
    _slow: bool = False

    def observe(self, step: int, steps: int, seconds: float, *, saved: bool) -> None:
        """Take in that the last `steps` up to this one took `seconds`; `saved`: with a reported checkpoint.

        Of slow reports in a row only the first is a pause: more are a job that became slower."""
        if self._first is None:
            self._first = step - steps
        if len(self._step_s) >= _LEAST:
            usual = median(self._step_s)
            deviation = max(_STEADY * usual, _TO_SIGMA * median(abs(one - usual) for one in self._step_s))
            over = seconds - steps * usual
            slow = over > steps * max(_OUTLIER * deviation, _LONGER * usual)
            if saved or (slow and not self._slow):
                length = max(0.0, over)
                if len(self._seen) == _MOST:
                    self._first = self._seen[0][0]
                self._seen.append((step, length))
                self.seconds += length
            self._slow = slow and not saved
        self._step_s.append(seconds / steps)

    def ahead(self, step: int, left: int) -> Ahead | None:
        """Of the `left` steps after this one; None where no pause was seen."""
        if not self._seen or self._first is None:
            return None
        at, lengths = [one for one, _ in self._seen], [one for _, one in self._seen]
        gaps = [b - a for a, b in pairwise(at)]
        even = left * len(at) / (step - self._first)
        spread = min(1.0, (_PRIOR_WORTH + _squares(gaps)) / (_PRIOR_WORTH + len(gaps)))
        due = math.floor((left + step - at[-1]) / fmean(gaps)) if gaps else even
        count = (1 - spread) * due + spread * even
        more = left * (len(at) + 1) / (step - self._first)  # few were seen by chance, perhaps
        of_count = spread * (more + more**2 / len(at)) + min(_EDGE, count)
        length = fmean(lengths)
        of_length = (_PRIOR_LENGTH + _squares(lengths)) / len(lengths)
        variance = of_count + of_length * (count + count**2 / len(lengths))
        return Ahead(count * length, length * math.sqrt(variance), len(at), length)


def _squares(values: Sequence[float]) -> float:
    """The sum of squared deviations from the mean, in units of the mean."""
    mean = fmean(values) if values else 0.0
    return sum((one / mean - 1) ** 2 for one in values) if mean > 0 else 0.0
