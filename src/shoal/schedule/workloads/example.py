"""An example of a table of throughputs, for trying things out before anything was measured.

Its figures are made up, and measured nowhere: about as fast as such networks are on such accelerators, no more. It has
Gavel's job types on three of its accelerator types, alone, as gangs and in pairs.
"""

from __future__ import annotations

import numpy as np

from shoal.schedule.types import Array
from shoal.schedule.workloads.generate import GAVEL_KINDS
from shoal.schedule.workloads.types import Throughputs

EXAMPLE = "the example table"

_TYPES = ("v100", "p100", "k80")
_GANGS = (1, 2, 4, 8)
_FAMILIES: dict[str, tuple[float, float, float, float, float]] = {
    "ResNet-18": (520.0, 30.0, 0.62, 0.17, 0.45),
    "ResNet-50": (260.0, 12.0, 0.55, 0.11, 0.80),
    "Transformer": (2200.0, 30.0, 0.50, 0.15, 0.70),
    "LM": (900.0, 24.0, 0.58, 0.19, 0.55),
    "Recommendation": (110_000.0, 25.0, 0.70, 0.30, 0.35),
    "A3C": (5.0, 5.0, 0.85, 0.60, 0.20),
    "CycleGAN": (3.4, 3.4, 0.45, 0.10, 0.90),
}
"""Of each network: examples per second and steps per second at most on a v100; the speed of a p100 and of a k80 in
parts of that; the part of a v100 that a job alone keeps busy."""

_SYNC = 0.06
"""What a gang loses each time that it doubles."""
_CROWD = 0.95
"""What is left of two jobs' speed where they share an accelerator that is large enough for both."""


def example_throughputs() -> Throughputs:
    """Steps per second, as `read_throughputs` would read them."""
    keys = {
        (kind, gang): row
        for row, (kind, gang) in enumerate(
            (kind, gang) for kind, parallel in GAVEL_KINDS for gang in _GANGS if parallel or gang == 1
        )
    }
    rate = np.empty((len(keys), len(_TYPES)))
    busy = np.empty_like(rate)
    for (kind, gang), row in keys.items():
        examples, steps, p100, k80, part = _FAMILIES[kind.partition(" (")[0]]
        batch = _batch(kind)
        parts = np.array([1.0, p100, k80])
        scaling = gang * (1.0 - _SYNC) ** np.log2(gang)
        rate[row] = min(steps, examples / batch) * parts * scaling
        busy[row] = np.minimum(1.0, part / parts)
    return Throughputs(EXAMPLE, _TYPES, keys, rate, _pairs(keys, rate, busy))


def _batch(kind: str) -> int:
    _, _, size = kind.partition("batch size ")
    return int(size.removesuffix(")")) if size else 1


def _pairs(keys: dict[tuple[str, int], int], rate: Array, busy: Array) -> Array:
    """(k, k, types): two jobs of equal gangs share what there is in proportion to what each would use."""
    gang = np.array([size for _, size in keys])
    wanted = busy[:, None] + busy[None, :]
    beside = rate[:, None] * _CROWD / np.maximum(1.0, wanted)
    return np.where((gang[:, None] == gang[None, :])[:, :, None], beside, np.nan)
