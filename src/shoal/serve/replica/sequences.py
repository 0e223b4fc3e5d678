"""The open sequences of one model, in the replica that keeps their state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shoal.core import ShoalError
from shoal.inference.errors import ModelFailed
from shoal.inference.runtime import Array, Sessions
from shoal.inference.tensors import split
from shoal.serve.errors import NotReady
from shoal.serve.replica.execute import Result
from shoal.serve.replica.messages import Step


@dataclass(slots=True, eq=False)
class _Open:
    session: Any
    steps: int = 0


class OpenSequences:
    """A step that was answered too late for its caller is taken back when the gateway asks for the same step again."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._open: dict[int, _Open] = {}

    def __len__(self) -> int:
        return len(self._open)

    def advance(self, steps: Sequence[Step], inputs: Mapping[str, Array], outputs: Sequence[str]) -> list[Result]:
        """One step each of different sequences. If that fails they are advanced one by one, so that a step that the
        model cannot digest does not spoil the others; the sequence of that step is as it was before."""
        try:
            found = [self._at(step) for step in steps]
            results = split(self._sessions.advance([one.session for one in found], inputs, outputs), [1] * len(steps))
        except BaseException as error:  # a model's code can raise anything, SystemExit as well
            if len(steps) == 1:
                return [error if isinstance(error, ShoalError) else ModelFailed(f"{type(error).__name__}: {error}")]
            alone: list[Result] = []
            for at, step in enumerate(steps):
                alone += self.advance([step], {name: rows[at : at + 1] for name, rows in inputs.items()}, outputs)
            return alone
        for one in found:
            one.steps += 1
        return [*results]

    def end(self, numbers: Iterable[int]) -> None:
        """Drop the state of these; unknown ones are passed over."""
        for number in numbers:
            one = self._open.pop(number, None)
            if one is not None:
                self._sessions.close_session(one.session)

    def clear(self) -> None:
        self.end([*self._open])

    def _at(self, step: Step) -> _Open:
        """The sequence in the state from before this step. Raises NotReady if it is not here."""
        number, answered = step
        one = self._open.get(number)
        if one is None and answered == 0:
            one = self._open[number] = _Open(self._sessions.open_session())
        if one is not None and one.steps == answered + 1:
            self._sessions.undo(one.session)
            one.steps -= 1
        if one is None or one.steps != answered:
            raise NotReady("this replica does not have the state of the sequence")
        return one
