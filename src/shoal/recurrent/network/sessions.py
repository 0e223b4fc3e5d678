"""Sessions: the state of each caller, kept between its steps.

A network that is recurrent through and through keeps its states where its kernels read them, one row for each session,
so a step copies nothing but its input and its output. Any other network keeps arrays, which are fed again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.core import Overloaded
from shoal.recurrent.errors import BadInput
from shoal.recurrent.layers.layer import Array, run_of

if TYPE_CHECKING:
    from shoal.recurrent.network.network import Network

Kept = dict[str, dict[str, Array]]
"""States by the name of the recurrent node, and by their own."""
SWAP = object()
"""What stands for a state that `StreamPool.swap` brings back."""


class StreamPool:
    """The rows of all sessions of one network. `stacked`: it is recurrent through and through, each layer fed by the
    one before."""

    def __init__(self, network: Network, rows: int) -> None:
        self._network, self._rows = network, rows
        steps = network.graph.recurrences
        carried = network.graph.pairs
        plain = all(
            not step.batch_first and all(not one or one in carried for one in step.initial.values()) for step in steps
        )
        chained = all(after.x == before.y for before, after in pairwise(steps))
        inputs = [one.name for one in network.inputs if one.name not in carried]
        self.stacked = bool(steps) and not network.graph.segments and plain and chained and inputs == [steps[0].x]
        self._steps = steps if self.stacked else ()
        self._layers = [layer.steps(rows) for layer in network.layers] if self.stacked else []
        names = {one.name for one in network.outputs}
        self._given = [
            (step, layer, step.y if step.y in names else "", [(s, n) for s, n in step.final.items() if n in names])
            for step, layer in zip(self._steps, self._layers, strict=True)
        ]
        self._free = list(range(rows - 1, -1, -1))

    def take(self) -> int:
        """A row of its own, with states of zero."""
        if not self._free:
            raise Overloaded(f"{self._rows} sessions are open", hint="close one, or raise max_sessions")
        row = self._free.pop()
        self.write(row, {})
        return row

    def give_back(self, row: int) -> None:
        self._free.append(row)

    def gathered(self, inputs: Sequence[Mapping[str, Array]]) -> Array | None:
        """One step of each caller as [rows, elements]; None where the network is not stacked, or where what a caller
        gives is not exactly that."""
        if not self.stacked:
            return None
        name, size = self._steps[0].x, self._layers[0].x.shape[1]
        found = []
        for one in inputs:
            x = one.get(name)
            if not (isinstance(x, np.ndarray) and x.shape == (1, 1, size) and x.dtype == np.float32 and len(one) == 1):
                return None
            found.append(x)
        return np.concatenate(found).reshape(len(found), size)

    def step(self, rows: Sequence[int], x: Array, wanted: Sequence[str] = ()) -> dict[str, Array]:
        """One step of these rows. The outputs by name, rows first, each row as `run` would have it; all where none is
        wanted. Raises BadInput for one that is not there, before the step."""
        known = [name for _, _, y, finals in self._given for name in [y, *(last for _, last in finals)] if name]
        unknown = [name for name in wanted if name not in known]
        if unknown:
            raise BadInput(f"there is no output {unknown[0]!r}", hint=f"there are: {', '.join(known)}")
        at = run_of(rows)
        self._layers[0].x[at] = x
        self._layers[0].step(rows)
        for before, layer in pairwise(self._layers):
            layer.x[at] = before.y[at]
            layer.step(rows)
        return self._outputs(rows, at, wanted or known)

    def _outputs(self, rows: Sequence[int], at: slice | list[int], wanted: Sequence[str]) -> dict[str, Array]:
        found: dict[str, Array] = {}
        count = len(rows)
        for step, layer, y, finals in self._given:
            if y in wanted:
                found[y] = layer.y[at].reshape((count, 1, 1, -1) if step.merged else (count, 1, 1, 1, -1)).copy()
            if any(name in wanted for _, name in finals):
                states = layer.read(rows)
                found |= {name: states[state].reshape(count, 1, 1, -1) for state, name in finals}
        return {name: found[name] for name in wanted}

    def swap(self, row: int) -> None:
        """Take back the last step of a row, once."""
        for layer in self._layers:
            layer.swap(row)

    def read(self, row: int) -> Kept:
        """The states of a row."""
        return {
            step.name: {name: one[None] for name, one in layer.read((row,)).items()}
            for step, layer in zip(self._steps, self._layers, strict=True)
        }

    def write(self, row: int, states: Kept) -> None:
        """Set the states of a row; those that are not named become zero."""
        for step, layer in zip(self._steps, self._layers, strict=True):
            given = states.get(step.name, {})
            spec = step.layers[0]
            layer.write(
                (row,),
                {
                    name: given[name][0] if name in given else np.zeros(spec.state_size(name), np.float32)
                    for name in spec.cell.states
                },
            )


class Session:
    """Steps of one caller. Made by `Network.session`; closed by `close`, or as a context. For one thread at a time."""

    def __init__(self, network: Network, pool: StreamPool) -> None:
        self._network, self._pool = network, pool
        self.row = pool.take()
        self._open = True
        self._kept: Kept = {}
        self.before_last: Any = None
        """The state before the last call of `Network.step`; SWAP where its memory still has it."""
        self._carried = {
            name: np.zeros([max(1, side) if side >= 0 else 1 for side in spec.shape], spec.kind)
            for spec in network.inputs
            for name in [spec.name]
            if name in network.graph.pairs
        }

    def step(self, inputs: Mapping[str, Array], outputs: Sequence[str] = ()) -> dict[str, Array]:
        """Run on from where the last call ended. Inputs and outputs have the shapes of `run`, for one row and any
        number of steps; inputs that carry a state are left out. Raises BadInput, and then the state is as before."""
        found = self._step(inputs, outputs)
        self.before_last = None
        return found

    def _step(self, inputs: Mapping[str, Array], outputs: Sequence[str]) -> dict[str, Array]:
        self.usable()
        pairs = self._network.graph.pairs
        given = self._network.checked_inputs(inputs, pairs)
        if self._pool.stacked:
            return self._step_stacked(given, outputs)
        kept = {name: dict(states) for name, states in self._kept.items()}
        wanted = list(outputs) or [one.name for one in self._network.outputs]
        found = self._network.forward({**given, **self._carried}, [*wanted, *pairs.values()], kept)
        self._kept = kept
        self._carried = {name: found[pairs[name]] for name in self._carried}
        return {name: found[name] for name in wanted}

    def usable(self) -> Session:
        """Itself. Raises BadInput once it is closed."""
        if not self._open:
            raise BadInput("this session is closed", hint="open another with network.session()")
        return self

    @property
    def stacked(self) -> bool:
        """Whether steps of several sessions are one batch."""
        return self._pool.stacked

    def undo(self) -> None:
        """Be as before the last call of `Network.step`, once."""
        if self.before_last is SWAP:
            self._pool.swap(self.row)
        elif self.before_last is not None:
            self.restore(self.before_last)
        self.before_last = None

    def _step_stacked(self, given: Mapping[str, Array], outputs: Sequence[str]) -> dict[str, Array]:
        x = given[self._network.graph.recurrences[0].x]
        if x.shape[1] != 1:
            raise BadInput(f"a session has one row, not {x.shape[1]}")
        if x.shape[0] == 1:
            return {name: one[0] for name, one in self._pool.step((self.row,), x[0], outputs).items()}
        states = self._pool.read(self.row)
        first = {
            name: states[step.name][state]
            for step in self._network.graph.recurrences
            for state, name in step.initial.items()
            if name
        }
        found = self._network.run_from({**given, **first}, outputs, states)
        self._pool.write(self.row, states)
        return found

    def snapshot(self) -> Any:
        """The state, for `restore`."""
        if self._pool.stacked:
            return {name: dict(one) for name, one in self._pool.read(self.row).items()}
        return dict(self._kept), dict(self._carried)

    def restore(self, before: Any) -> None:
        """Be as when `snapshot` was taken."""
        if self._pool.stacked:
            self._pool.write(self.row, before)
        else:
            self._kept, self._carried = before

    def close(self) -> None:
        """Free the state. Closing twice does nothing."""
        if self._open:
            self._open = False
            self._pool.give_back(self.row)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
