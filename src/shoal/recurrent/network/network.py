"""A network that runs: sequences, and sessions that keep their state from step to step."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from shoal.recurrent.errors import BadInput
from shoal.recurrent.layers.layer import Array, Layer, LayerSpec
from shoal.recurrent.network.graph import Graph, Recurrence, Tensor
from shoal.recurrent.network.parallel import LEAST_OPERATIONS, Threads, chains, chunks_of, operations, slices, waves
from shoal.recurrent.network.segment import RunningSegment
from shoal.recurrent.network.sessions import SWAP, Session, StreamPool
from shoal.recurrent.program.make import program_of

if TYPE_CHECKING:
    from shoal.recurrent.program.program import Program

MakeLayer = Callable[[LayerSpec], Layer]
MAX_SESSIONS = 1024
"""Of one network: a service that has more callers on one machine is none that this is for."""


class Network:
    """`run` is for whole sequences and keeps nothing; `session` for steps."""

    def __init__(self, graph: Graph, make: MakeLayer, *, threads: int = 1, max_sessions: int = MAX_SESSIONS) -> None:
        self.graph = graph
        self._threads = Threads(threads)
        recurrent = [RunningRecurrence(step, make, self._threads) for step in graph.recurrences]
        self.program: Program | None = program_of(graph, [layer for one in recurrent for layer in one.layers])
        """The whole network as one compiled call, where its shapes are fixed and all its parts are known."""
        self._carries = all(one.initial.get(name) for one in graph.recurrences for name in one.layers[0].cell.states)
        left = iter(recurrent)
        self._steps: list[RunningSegment | RunningRecurrence] = [
            next(left) if isinstance(step, Recurrence) else RunningSegment(step, threads)
            for step in graph.steps
            if isinstance(step, Recurrence) or self.program is None or not self._carries
        ]
        self._chains = chains(graph.steps)
        self._max_sessions = max_sessions
        self._pool: StreamPool | None = None

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return self.graph.inputs

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        return self.graph.outputs

    @property
    def layers(self) -> list[Layer]:
        """All layers, in the order of the graph."""
        return [layer for step in self._steps if isinstance(step, RunningRecurrence) for layer in step.layers]

    def run(self, inputs: Mapping[str, Array], outputs: Sequence[str] = ()) -> dict[str, Array]:
        """Inputs and outputs by name; no `outputs` asks for all. States begin at zero, or at what the inputs say.
        Raises BadInput."""
        tensors = self.checked_inputs(inputs)
        return self.forward(tensors, outputs, {}) if self.program is None else self._whole(tensors, outputs)

    def run_from(
        self, inputs: Mapping[str, Array], outputs: Sequence[str], states: dict[str, dict[str, Array]]
    ) -> dict[str, Array]:
        """As `run`, from the states [directions, rows, units] of each recurrent node, by name, which are replaced by
        those after the last step."""
        return self.forward(self.checked_inputs(inputs), outputs, states)

    def forward(
        self, tensors: dict[str, Array], outputs: Sequence[str], states: dict[str, dict[str, Array]]
    ) -> dict[str, Array]:
        """As `run_from`, of inputs that have been checked, which the other tensors are added to."""
        if self.program is not None and self._carries:
            return self._whole(tensors, outputs)
        wanted = self._wanted(outputs)
        for chain in self._chains:
            step = self._steps[chain[0]]
            if isinstance(step, RunningSegment):
                step.run(tensors)
            elif not self._wavefront(chain, tensors, states):
                for at in chain:
                    self._recurrence(at).run(tensors, states)
        return {name: tensors[name] for name in wanted}

    def _whole(self, tensors: Mapping[str, Array], outputs: Sequence[str]) -> dict[str, Array]:
        assert self.program is not None
        return self.program.run(tensors, self._wanted(outputs))

    def _wanted(self, outputs: Sequence[str]) -> list[str]:
        names = [one.name for one in self.outputs]
        unknown = [name for name in outputs if name not in names]
        if unknown:
            raise BadInput(f"there is no output {unknown[0]!r}", hint=f"there are: {', '.join(names)}")
        return list(outputs) or names

    def _recurrence(self, at: int) -> RunningRecurrence:
        step = self._steps[at]
        assert isinstance(step, RunningRecurrence)
        return step

    def _wavefront(self, chain: Sequence[int], tensors: dict[str, Array], states: dict[str, dict[str, Array]]) -> bool:
        """Run layers that stand on one another at the same time, each a chunk of the sequence behind the one below;
        False where that brings nothing."""
        layers = [self._recurrence(at) for at in chain]
        x = tensors[layers[0].step.x]
        if self._threads.count == 1 or len(layers) == 1 or x.ndim != 3 or x.shape[1] >= self._threads.count:
            return False  # with rows enough, each thread takes some of them
        parts = chunks_of(len(x))
        if operations(layers[0].layers[0].spec, len(x) // max(1, len(parts)), x.shape[1]) < LEAST_OPERATIONS:
            return False
        pieces: list[list[dict[str, Array]]] = [[] for _ in layers]

        def part(layer: int, chunk: int) -> Callable[[], None]:
            def run() -> None:
                running = layers[layer]
                below = x[parts[chunk]] if layer == 0 else pieces[layer - 1][chunk][running.step.x]
                given = {name: tensors[name] for name in running.step.initial.values() if name} if chunk == 0 else {}
                piece = {**given, running.step.x: below}
                running.run(piece, states, chunk=chunk)
                pieces[layer].append(piece)

            return run

        for wave in waves(len(layers), len(parts)):
            self._threads.run([part(layer, chunk) for layer, chunk in wave])
        for running, made in zip(layers, pieces, strict=True):
            if running.step.y:
                tensors[running.step.y] = np.concatenate([piece[running.step.y] for piece in made])
            tensors.update((name, made[-1][name]) for name in running.step.final.values() if name)
        return True

    def session(self) -> Session:
        """A new session, whose states are zero. Raises BadInput for a network that cannot go on step by step, and
        Overloaded where `max_sessions` are open."""
        for step in self.graph.recurrences:
            if not step.streams:
                why = "takes lengths" if step.lengths else "runs backward"
                raise BadInput(f"a session goes on step by step, and a layer of this network {why}", where=step.name)
        for part in self.graph.segments:
            if part.restarts:
                raise BadInput(
                    "onnxruntime runs this layer, and begins anew at every step", where=part.restarts[0],
                    hint="make its state an input and an output of the model",
                )  # fmt: skip
        if self._pool is None:
            self._pool = StreamPool(self, self._max_sessions)
        return Session(self, self._pool)

    def step(
        self, sessions: Sequence[Session], inputs: Sequence[Mapping[str, Array]], outputs: Sequence[str] = ()
    ) -> list[dict[str, Array]]:
        """One step of several sessions, in one batch where the network is recurrent through and through. Each gets, to
        the bit, what it would get alone. Raises BadInput, and then no session has made a step."""
        if len({id(one) for one in sessions}) != len(sessions) or len(sessions) != len(inputs):
            raise BadInput("each session takes part once, with its own inputs")
        x = None if self._pool is None or not sessions else self._pool.gathered(inputs)
        if self._pool is not None and x is not None:
            together = self._pool.step([one.usable().row for one in sessions], x, outputs)
            for one in sessions:
                one.before_last = SWAP
            return [dict(zip(together, row, strict=True)) for row in zip(*together.values(), strict=True)]
        before = [one.snapshot() for one in sessions]
        try:
            found = [one.step(given, outputs) for one, given in zip(sessions, inputs, strict=True)]
        except Exception:
            for one, state in zip(sessions, before, strict=True):
                one.restore(state)
            raise
        for one, state in zip(sessions, before, strict=True):
            one.before_last = state
        return found

    @property
    def running(self) -> Sequence[RunningSegment | RunningRecurrence]:
        """The steps, ready to run."""
        return self._steps

    def checked_inputs(self, inputs: Mapping[str, Array], carried: Collection[str] = ()) -> dict[str, Array]:
        """The inputs by name, each as the network declares it; without those that are `carried` from step to step."""
        found = {}
        for spec in self.inputs:
            if spec.name in carried:
                continue
            if spec.name not in inputs:
                raise BadInput(
                    f"the input {spec.name!r} is missing", hint=f"inputs: {', '.join(o.name for o in self.inputs)}"
                )
            found[spec.name] = checked(np.asarray(inputs[spec.name]), spec)
        unknown = sorted(inputs.keys() - found.keys())
        if unknown:
            raise BadInput(
                f"there is no input {unknown[0]!r}", hint=f"inputs: {', '.join(o.name for o in self.inputs)}"
            )
        return found


_dtype = functools.cache(np.dtype)
"""To compare with a name makes a type of it each time."""


def checked(array: Array, spec: Tensor) -> Array:
    """The array, if it is what the tensor says."""
    fits = array.shape == spec.shape or (
        array.ndim == len(spec.shape)
        and all(own in (-1, side) for own, side in zip(spec.shape, array.shape, strict=True))
    )
    if not fits or (array.dtype is not _dtype(spec.kind) and array.dtype != spec.kind):
        raise BadInput(
            f"the input {spec.name!r} is {array.dtype} {list(array.shape)}, not {spec.kind} "
            f"{[side if side >= 0 else '?' for side in spec.shape]}"
        )
    return array


class RunningRecurrence:
    """A recurrent node with its layers."""

    def __init__(self, step: Recurrence, make: MakeLayer, threads: Threads) -> None:
        self.step, self._threads = step, threads
        self.layers = [make(layer) for layer in step.layers]

    def run(self, tensors: dict[str, Array], states: dict[str, dict[str, Array]], *, chunk: int | None = None) -> None:
        """Read the input and add the outputs. `chunk`: it is one of a wavefront. Those after the first begin with the
        states that the one before ended with."""
        step = self.step
        x = tensors[step.x]
        x = x.transpose(1, 0, 2) if step.batch_first else x
        if x.ndim != 3 or x.shape[2] != self.layers[0].spec.sizes.input:
            raise BadInput(f"its input has the shape {list(x.shape)}", where=step.name)
        steps, rows, _ = x.shape
        lengths = self._lengths(tensors, steps, rows)
        directions, size = len(self.layers), self.layers[0].spec.output_size
        if step.merged:
            y = np.empty((steps, rows, directions, size), np.float32).transpose(0, 2, 1, 3)
        else:
            y = np.empty((steps, directions, rows, size), np.float32)
        kept = states.get(step.name)
        begin = {name: self._initial(name, tensors, kept, rows, given=not chunk) for name in self._names}
        last = {name: np.empty(value.shape, np.float32) for name, value in begin.items()}
        parts = 1 if chunk is not None else self._threads.count // directions
        if parts > 1:
            parts = min(parts, operations(self.layers[0].spec, steps, rows) // LEAST_OPERATIONS)

        def part(at: int, some: slice) -> Callable[[], None]:
            def run() -> None:
                given = {name: value[at, some] for name, value in begin.items()}
                own = None if lengths is None else lengths[some]
                for name, value in self.layers[at].run(x[:, some], given, own, y[:, at, some]).items():
                    last[name][at, some] = value

            return run

        self._threads.run([part(at, some) for at in range(directions) for some in slices(rows, parts)])
        states[step.name] = last
        self._give_out(y, last, tensors)

    @property
    def _names(self) -> tuple[str, ...]:
        return self.layers[0].spec.cell.states

    def _give_out(self, y: Array, last: Mapping[str, Array], tensors: dict[str, Array]) -> None:
        step = self.step
        if step.y and step.merged:
            steps, directions, rows, size = y.shape
            tensors[step.y] = y.transpose(0, 2, 1, 3).reshape(steps, rows, directions * size)
        elif step.y:
            tensors[step.y] = np.ascontiguousarray(y.transpose(2, 0, 1, 3)) if step.batch_first else y
        for name, target in step.final.items():
            if target:
                tensors[target] = (
                    np.ascontiguousarray(last[name].transpose(1, 0, 2)) if step.batch_first else last[name]
                )

    def _lengths(self, tensors: Mapping[str, Array], steps: int, rows: int) -> Array | None:
        if not self.step.lengths:
            return None
        found = np.asarray(tensors[self.step.lengths])
        if found.shape != (rows,):
            raise BadInput(f"sequence_lens has the shape {list(found.shape)}, not [{rows}]", where=self.step.name)
        if rows and (found.min() < 0 or found.max() > steps):
            raise BadInput(f"sequence_lens must lie between 0 and {steps}", where=self.step.name)
        return found.astype(np.int64)

    def _initial(
        self, name: str, tensors: Mapping[str, Array], kept: Mapping[str, Array] | None, rows: int, *, given: bool
    ) -> Array:
        shape = (len(self.layers), rows, self.layers[0].spec.state_size(name))
        source = self.step.initial.get(name, "") if given else ""
        if source:
            found = tensors[source].transpose(1, 0, 2) if self.step.batch_first else tensors[source]
            if found.shape != shape:
                raise BadInput(
                    f"the first {name} has the shape {list(found.shape)}, not {list(shape)}", where=self.step.name
                )
            return found
        if kept is not None and kept[name].shape == shape:
            return kept[name]
        return np.zeros(shape, np.float32)
