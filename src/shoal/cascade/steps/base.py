"""The protocol of a step, and how one is written and read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Floats = NDArray[np.float64]
Block = Any
"""A 2-D array (doubles or objects), a list of texts, or a sparse matrix by rows."""

Arrays = Mapping[str, Array]


class Step(Protocol):
    """A fitted transformation of a block. `width`: the columns that it gives; None: as many as it takes."""

    kind: ClassVar[str]

    @property
    def width(self) -> int | None: ...

    def apply(self, block: Block) -> Block: ...

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Parameters as JSON can hold them, and arrays of numbers."""
        ...

    @classmethod
    def restore(cls, parameters: Mapping[str, Any], arrays: Arrays) -> Step:
        """Raises ValueError or KeyError where they cannot be this step's."""
        ...
