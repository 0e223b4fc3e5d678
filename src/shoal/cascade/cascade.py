"""A cascade: what `optimize` gives, and what a `.cascade` file holds."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from shoal.cascade.artefact import read_file, save
from shoal.cascade.staged import StagedPipeline


class Cascade(StagedPipeline):
    """A staged pipeline that can be written and read."""

    def save(self, path: str | Path) -> None:
        """Write a `.cascade` file. Raises Invalid where a step is a Python object without a name."""
        save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a `.cascade` file. Raises Invalid for a damaged one."""
        return read_file(Path(path), cls)
