"""One small interface for everything that can run a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from shoal.serve.types import ModelMetadata

Array = NDArray[Any]
"""Any shape and type; strings are object arrays of `bytes`."""


class Runtime(Protocol):
    """A loaded model. One execution at a time; `metadata` is known once it is loaded."""

    @property
    def metadata(self) -> ModelMetadata: ...

    def run(self, inputs: Mapping[str, Array], outputs: Sequence[str]) -> Mapping[str, Array]:
        """Inputs and outputs by name; an empty `outputs` asks for all. Raises ModelFailed."""
        ...

    def close(self) -> None: ...
