"""From which size on capture pays: sizes at which it has cost more than it gained are left alone."""

from __future__ import annotations

from shoal.offload.arrays.program import Program
from shoal.offload.settings import OffloadSettings

_CALL_S = 4e-6
"""To capture one operation, and what its evaluation adds for it."""

WHOLE_NUMBERS = 1 << 19
"""Elements of an array of whole numbers from which on capture pays: their operations are cheap, and no function of
theirs is vectorised."""

_EVALUATIONS = 20
"""Of a size, before it is judged."""

_MOST = 1 << 20
"""Elements that are always captured."""


class Worth:
    """Adds up gains less costs by size. A threshold that the user has set stays."""

    def __init__(self, threshold: int) -> None:
        self._fixed = threshold != OffloadSettings().threshold
        self._found: dict[int, tuple[int, float]] = {}

    def threshold(self, before: int, program: Program, gain: float) -> int:
        """The one from now on. `gain` is in seconds, less what the choice cost."""
        if self._fixed or program.size > _MOST:
            return before
        size_class = program.size.bit_length()
        times, total = self._found.get(size_class, (0, 0.0))
        times, total = times + 1, total + gain - _CALL_S * len(program.operations)
        self._found[size_class] = times, total
        return max(before, 1 << size_class) if times >= _EVALUATIONS and total < 0 else before
