"""The interface of everything that runs models, and what a runtime may offer beyond it.

`Runtime` is all that a runtime needs. The other protocols are optional: a runtime has an ability by having its methods,
which is looked up once, when the model is loaded. Every method is called in the one thread of the replica that holds
the model, so none runs beside another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from numpy.typing import NDArray

from shoal.inference.types import READY, ModelMetadata

MOST_FIGURES, MOST_KEPT_BYTES = 64, 64 << 10

Array = NDArray[Any]
"""Any shape and type; strings are object arrays of `bytes`."""


class Runtime(Protocol):
    """A loaded model. One execution at a time; `metadata` is known once it is loaded."""

    @property
    def metadata(self) -> ModelMetadata: ...

    def run(self, inputs: Mapping[str, Array], outputs: Sequence[str]) -> Mapping[str, Array]:
        """Inputs and outputs by name; an empty `outputs` asks for all. Input arrays are read-only and valid during the
        call only. Raises ModelFailed."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class HasFigures(Protocol):
    """A runtime with figures of its own, such as the share of requests that a cheap model answered."""

    def figures(self) -> Mapping[str, float]:
        """Numbers by name. A name is of lower-case letters, digits and underscores, with its unit last (`hits`,
        `rows_per_s`); a counter, which never falls, ends with `_total`. At most 64 are shown. It is called every few
        seconds and should return within a millisecond."""
        ...


@dataclass(frozen=True, slots=True)
class RuntimeState:
    """How a model is doing: `word` in capitals, such as READY, DRIFTED or FALLBACK, and the reason in a sentence.
    `well` says whether that is as it should be; None: only if the word is READY. `lasting`: the state holds for
    whatever is deployed under the model's name until that is another artefact (see `Keeps`)."""

    word: str = READY
    reason: str = ""
    well: bool | None = None
    lasting: bool = False

    @property
    def is_well(self) -> bool:
        return self.word == READY if self.well is None else self.well


@dataclass(frozen=True, slots=True)
class Condition:
    """All that a runtime says of a loaded model; `kept` is None where it keeps nothing."""

    figures: Mapping[str, float] = field(default_factory=dict)
    state: RuntimeState = field(default_factory=RuntimeState)
    kept: bytes | None = None


@runtime_checkable
class HasState(Protocol):
    """A runtime whose models are more than loaded or not."""

    def state(self) -> RuntimeState:
        """It is asked after every execution and so must only return what is known. A change is reported before the
        answer to the execution that caused it."""
        ...


@runtime_checkable
class Keeps(Protocol):
    """A runtime that remembers something beyond the end of its process.

    The gateway keeps it for the replica and hands it to the process that follows: after a crash, a `kill -9` or a
    restart of the gateway. A new replica, and one of a new generation of the service, begins without it. What was kept
    in a state that is `lasting` is handed to those too, under the same tenant, model and version.
    """

    def keep(self) -> bytes:
        """At most 64 KiB. It is asked when the state changes, every few seconds, and before a planned end."""
        ...

    def restore(self, kept: bytes) -> None:
        """Called once, after loading and warm-up and before the first request. `kept` is what an earlier process
        gave, of whatever version of the runtime and for whatever artefact: raise ValueError to begin anew."""
        ...


@runtime_checkable
class WarmUp(Protocol):
    """A runtime that learns from its requests, and must not learn from the zeros of its warm-up."""

    def warmed_up(self) -> None:
        """Called once, after the warm-up and before `restore`."""
        ...


@runtime_checkable
class IdleWork(Protocol):
    """A runtime that has work to do when nothing waits, such as the recompilation of a model that has drifted."""

    def idle(self, budget_s: float) -> bool:
        """Work for at most `budget_s` seconds: a request that comes meanwhile waits for it. Whether there is more to
        do; if not, it is asked again a second later."""
        ...


@runtime_checkable
class Sessions(Protocol):
    """A runtime that keeps the state of sequences itself.

    A session is any object that the runtime made. A batch holds at most one step of each session.
    """

    @property
    def session_bytes(self) -> int:
        """Memory of one session."""
        ...

    @property
    def sessions_only(self) -> bool:
        """Whether each request must belong to a sequence: `run` is then called for the warm-up only."""
        ...

    def open_session(self) -> Any:
        """A session in its first state."""
        ...

    def advance(
        self, sessions: Sequence[Any], inputs: Mapping[str, Array], outputs: Sequence[str]
    ) -> Mapping[str, Array]:
        """One step of each session: row i of the inputs and outputs is that of session i; one session alone may have
        inputs of any shape. If it raises, all sessions are as before."""
        ...

    def undo(self, session: Any) -> None:
        """Put back the state from before the last step, whose answer came too late. Called at most once a step."""
        ...

    def close_session(self, session: Any) -> None: ...


@runtime_checkable
class Steps(Protocol):
    """A runtime that works in steps: rows join and leave between them, so that a short request need not wait for a long
    one (cellular batching: BatchMaker, EuroSys'18).

    A runtime that has sessions as well is used for sequences only: let an option choose which of the two it has.
    """

    @property
    def rows(self) -> int:
        """The most requests at once."""
        ...

    def join(self, requests: Mapping[int, Mapping[str, Array]]) -> None:
        """Add requests as rows, each with its inputs, by a number that no other row has. Inputs are valid during the
        call only. Raises ModelFailed or BadRequest if one cannot be worked on; then none has joined."""
        ...

    def step(self) -> Mapping[int, Mapping[str, Array] | Exception]:
        """One step of all rows. The outputs, or the error, of those that are finished by it; they have left."""
        ...

    def leave(self, request: int) -> None:
        """Drop a row before it is finished: nothing waits for it any more. Unknown numbers are passed over."""
        ...


REPORTS = frozenset({"figures", "state", "keep"})
"""The abilities of which the gateway has something to ask."""

_PROTOCOLS = {
    "figures": HasFigures, "state": HasState, "keep": Keeps, "idle": IdleWork, "sessions": Sessions, "steps": Steps,
}  # fmt: skip


def abilities_of(runtime: Runtime) -> tuple[str, ...]:
    """The names of the optional protocols that a runtime has, in alphabetical order."""
    return tuple(sorted(name for name, protocol in _PROTOCOLS.items() if isinstance(runtime, protocol)))


def condition_of(runtime: Runtime) -> Condition:
    """Raises whatever the runtime raises."""
    figures = dict(runtime.figures()) if isinstance(runtime, HasFigures) else {}
    state = runtime.state() if isinstance(runtime, HasState) else RuntimeState()
    return Condition(figures, state, runtime.keep() if isinstance(runtime, Keeps) else None)
