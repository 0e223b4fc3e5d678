"""Work by steps in the replica: which requests are rows of the runtime now, and what each of them took."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from shoal.core import ShoalError
from shoal.inference.errors import ModelFailed
from shoal.inference.runtime import Array, Steps
from shoal.serve.replica.execute import Result
from shoal.serve.replica.messages import ExecutionRequest
from shoal.serve.types import StepWork


@dataclass(slots=True, eq=False)
class Row:
    """A request that has joined: the number of its frame, and what it asked. `share_s` is its part of the steps' time;
    `row_steps` sums up the rows that were there in each of its steps."""

    number: int
    question: ExecutionRequest
    input_s: float
    joined: float
    steps: int = 0
    step_s: float = 0.0
    share_s: float = 0.0
    row_steps: int = 0

    @property
    def work(self) -> StepWork:
        steps = max(1, self.steps)
        return StepWork(self.steps, max(1.0, self.row_steps / steps), self.step_s / steps)


class Rows:
    """The requests that a runtime works on at once."""

    def __init__(self, runtime: Steps, clock: Callable[[], float] = time.perf_counter) -> None:
        self._runtime = runtime
        self._clock = clock
        self._rows: dict[int, Row] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def join(self, number: int, question: ExecutionRequest, inputs: Mapping[str, Array], input_s: float) -> None:
        """Raises ShoalError if the runtime cannot work on it."""
        try:
            self._runtime.join({number: inputs})
        except ShoalError:
            raise
        except BaseException as error:  # a model's code can raise anything, SystemExit as well
            raise ModelFailed(f"{type(error).__name__}: {error}") from error
        self._rows[number] = Row(number, question, input_s, self._clock())

    def step(self) -> list[tuple[Row, Result]]:
        """One step of all rows; those that it finished. A step that fails as a whole is the end of all of them."""
        started = self._clock()
        try:
            finished: dict[int, Mapping[str, Array] | BaseException] = {**self._runtime.step()}
        except BaseException as error:
            finished = dict.fromkeys(self._rows, error)
            for number in self._rows:
                self._runtime.leave(number)
        took_s = self._clock() - started
        for row in self._rows.values():
            row.steps += 1
            row.step_s += took_s
            row.share_s += took_s / len(self._rows)
            row.row_steps += len(self._rows)
        done: list[tuple[Row, Result]] = []
        for number, result in finished.items():
            one = self._rows.pop(number, None)
            if one is not None:
                done.append((one, _result(result, one.question.outputs)))
        return done

    def leave(self, number: int) -> bool:
        """Whether the row was still there."""
        if self._rows.pop(number, None) is None:
            return False
        self._runtime.leave(number)
        return True

    def clear(self) -> None:
        for number in [*self._rows]:
            self.leave(number)


def _result(result: Mapping[str, Array] | BaseException, wanted: tuple[str, ...]) -> Result:
    if isinstance(result, ShoalError):
        return result
    if isinstance(result, BaseException):
        return ModelFailed(f"{type(result).__name__}: {result}")
    missing = [name for name in wanted if name not in result]
    if missing:
        return ModelFailed(f"it gave no output {', '.join(missing)}")
    return {name: result[name] for name in wanted} if wanted else result
