"""An input pipeline as image models have it: gather a batch of encoded-size images, crop, normalise to float32, lay out
as NCHW into a ring of staging buffers, and a first small matrix product. It lives from memory bandwidth.

    cd benchmarks; SHOAL_RING=/tmp/steps.ring python -m host.pipeline --cpu 0

Runs until it is killed, or its parent ends; its steps are in the ring (`shoal.ring`). On Zen 4 a step of 8 images takes
about 1 ms.
"""

from __future__ import annotations

import argparse
import ctypes
import os

if __name__ == "__main__":  # before numpy reads them
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

import numpy as np
from numpy.typing import NDArray

from shoal.base.processes import end_with_parent
from shoal.ring import Ring

IMAGES, SIDE, CROP, CHANNELS, BATCH, STAGES, FEATURES = 2000, 256, 224, 3, 8, 8, 64
WARM_UP = 20
_HUGE_PAGES = 14  # MADV_HUGEPAGE


class Pipeline:
    """`step` makes the next batch. Holds 400 MB of images, (IMAGES, SIDE, SIDE, CHANNELS) uint8, and 39 MB of staging
    buffers, (STAGES, BATCH, CHANNELS, CROP, CROP) float32: far more than any cache."""

    def __init__(self, *, images: int = IMAGES, seed: int = 1) -> None:
        self._random = np.random.default_rng(seed)
        self._images = _touched(np.empty((images, SIDE, SIDE, CHANNELS), np.uint8), 7)
        self._stages = _touched(np.empty((STAGES, BATCH, CHANNELS, CROP, CROP), np.float32), 0)
        self._normal = np.empty((BATCH, CROP, CROP, CHANNELS), np.float32)
        self._weights = self._random.standard_normal((CROP, FEATURES)).astype(np.float32)
        self._steps = 0

    def step(self) -> NDArray[np.float32]:
        """(CROP, FEATURES): one channel of the batch's first image, multiplied."""
        batch = self._images[self._random.integers(0, len(self._images), BATCH)]
        margin = (SIDE - CROP) // 2
        cropped = batch[:, margin : margin + CROP, margin : margin + CROP, :]
        np.subtract(cropped, np.float32(127), out=self._normal, casting="unsafe")
        np.multiply(self._normal, np.float32(1 / 64), out=self._normal)
        stage = self._stages[self._steps % STAGES]
        np.copyto(stage, self._normal.transpose(0, 3, 1, 2))
        self._steps += 1
        product: NDArray[np.float32] = stage[0, 0] @ self._weights
        return product


def _touched(array: NDArray[np.generic], value: int) -> NDArray[np.generic]:
    """Filled with the value, in huge pages where the kernel has them."""
    start = array.ctypes.data & ~4095
    libc = ctypes.CDLL(None)
    libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(array.nbytes), _HUGE_PAGES)
    array.fill(value)
    return array


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--cpu", type=int, help="the CPU to run on")
    options = arguments.parse_args()
    if options.cpu is not None:
        os.sched_setaffinity(0, {options.cpu})
    end_with_parent(os.getppid())  # what floods memory must not outlive the one that measures with it
    pipeline = Pipeline()
    for _ in range(WARM_UP):
        pipeline.step()
    ring = Ring.from_environment()
    while True:
        pipeline.step()
        ring.step()


if __name__ == "__main__":
    main()
