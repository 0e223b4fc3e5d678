"""The search: the model prunes, the fastest of what is timed wins.

Candidates are timed in rounds, each once in a round, and the least time of a candidate counts: what else the machine
does hits all of them alike. With a seed and a recorded clock the result is the same every time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.recurrent.layers.compiled import CompiledLayer
from shoal.recurrent.layers.kernel import compile_kernel
from shoal.recurrent.layers.layer import LayerSpec, Schedules
from shoal.recurrent.llvm.cache import KernelCache
from shoal.recurrent.llvm.target import Target
from shoal.recurrent.nest.transform import Schedule
from shoal.recurrent.search.machine import Machine
from shoal.recurrent.search.model import candidates, first_schedules, predict_s

MAX_TIMED = 30
"""Candidates of one layer, sequences and steps together."""


@dataclass(frozen=True, slots=True)
class Tried:
    """One candidate: what it was timed on, and both times of a call."""

    schedule: Schedule
    steps: int
    rows: int
    predicted_s: float
    measured_s: float

    def as_json(self) -> dict[str, Any]:
        return {
            "schedule": self.schedule.as_json(), "steps": self.steps, "rows": self.rows,
            "predicted_s": self.predicted_s, "measured_s": self.measured_s,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tuned:
    """The schedules that were chosen, and all that was tried, the fastest of each kind first."""

    schedules: Schedules
    tried: tuple[Tried, ...]


@dataclass(frozen=True)
class Search:
    """What a search works with. `steps`: the length of the sequences that it is for; `rows`: of a batch of steps."""

    target: Target
    machine: Machine
    cache: KernelCache
    steps: int = 64
    rows: int = 8
    timed: int = MAX_TIMED
    seed: int = 0
    rounds: int = 7
    clock: Callable[[], float] = time.perf_counter

    def run(self, spec: LayerSpec) -> Tuned:
        """Tune one layer."""
        first = first_schedules(spec, self.target)
        timed = min(self.timed, MAX_TIMED)
        sequences = self._best(spec, first.sequence, self.steps, 1, timed // 2)
        batches = self._best(spec, first.step, 1, self.rows, timed - timed // 2)
        chosen = Schedules(sequences[0].schedule, batches[0].schedule)
        return Tuned(chosen, (*sequences, *batches))

    def _best(self, spec: LayerSpec, given: Schedule, steps: int, rows: int, count: int) -> list[Tried]:
        space = {given, *candidates(spec, self.target, steps=steps, rows=rows)}
        guesses = {one: predict_s(spec, self.target, self.machine, one, steps, rows) for one in space}
        ranked = sorted(guesses, key=lambda one: (one != given, guesses[one], one))[: max(1, count)]
        least = self._time(spec, ranked, steps, rows)
        tried = [Tried(one, steps, rows, guesses[one], seconds) for one, seconds in zip(ranked, least, strict=True)]
        return sorted(tried, key=lambda one: (one.measured_s, one.schedule))

    def _time(self, spec: LayerSpec, schedules: list[Schedule], steps: int, rows: int) -> list[float]:
        """The least time of each schedule, on noise."""
        noise = np.random.default_rng(self.seed)
        x = noise.uniform(-1, 1, (steps, rows, spec.sizes.input)).astype(np.float32)
        layer = CompiledLayer(
            spec, Schedules(schedules[0], schedules[0]),
            lambda one: compile_kernel(spec.cell, spec.sizes, spec.kind, one, self.target, self.cache),
        )  # fmt: skip
        runs = [self._runner(layer.with_schedule(one), x, steps, rows) for one in schedules]
        order, shuffle = list(range(len(runs))), random.Random(self.seed)  # noqa: S311 - an order, no secret
        least = [float("inf")] * len(runs)
        for turn in range(self.rounds + 1):
            shuffle.shuffle(order)
            for index in order:
                began = self.clock()
                runs[index]()
                if turn:  # the first round warms up
                    least[index] = min(least[index], self.clock() - began)
        return least

    def _runner(self, layer: CompiledLayer, x: Any, steps: int, rows: int) -> Callable[[], Any]:
        if steps == 1:
            memory = layer.steps(rows)
            memory.x[:] = x[0]
            every = list(range(rows))
            return lambda: memory.step(every)
        states = {name: np.zeros((rows, layer.spec.state_size(name)), np.float32) for name in layer.spec.cell.states}
        out = np.empty((steps, rows, layer.spec.output_size), np.float32)
        return lambda: layer.run(x, states, None, out)
