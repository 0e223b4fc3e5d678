"""For the demo: how many streams of sound one core keeps up with, each with a state of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from shoal.recurrent.cells.library import lstm
from shoal.recurrent.layers.layer import LayerSpec
from shoal.recurrent.layers.make import best_target
from shoal.recurrent.llvm.cache import KernelCache
from shoal.recurrent.loading import maker
from shoal.recurrent.nest.interpret import Weights
from shoal.recurrent.nest.ir import Sizes
from shoal.recurrent.network.network import Network
from shoal.recurrent.network.torch_file import graph_of_layers
from shoal.recurrent.search.model import first_schedules

FRAME_S = 0.032
"""Of sound: what voice detectors take at once."""
_UNITS, _TOGETHER = 128, 64


@dataclass(frozen=True, slots=True)
class Streams:
    """`per_core`: sessions whose frames one core answers as fast as they come. `compiled`: by kernels, not by the
    interpreter."""

    units: int
    together: int
    frames: int
    per_core: int
    compiled: bool


def hold_streams(seconds: float, *, clock: Callable[[], float] = time.process_time) -> Streams:
    """An LSTM with noise for weights, and sessions whose steps run in one batch, for about so long on this core."""
    cell, noise = lstm(), np.random.default_rng(0)
    matrices = {node.name: noise.uniform(-0.1, 0.1, (_UNITS, _UNITS)).astype(np.float32) for node in cell.dots}
    parameters = {name: np.zeros(_UNITS, np.float32) for name in cell.parameters}
    spec = LayerSpec(cell, Sizes(_UNITS, _UNITS), Weights(matrices, parameters))
    target = best_target()
    net = Network(graph_of_layers([[spec]]), maker(target, KernelCache(None), first_schedules))
    sessions = [net.session() for _ in range(_TOGETHER)]
    frames = [{"x": noise.uniform(-1, 1, (1, 1, _UNITS)).astype(np.float32)} for _ in sessions]
    net.step(sessions, frames)  # compiles
    began, rounds = clock(), 0
    while clock() - began < seconds or not rounds:
        net.step(sessions, frames)
        rounds += 1
    made = rounds * _TOGETHER
    return Streams(_UNITS, _TOGETHER, made, int(made / (clock() - began) * FRAME_S), target is not None)
