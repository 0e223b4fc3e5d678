"""Noted calls, and the stages in which they run: calls in a row whose values are cut in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from shoal.core import Invalid
from shoal.offload.annotations.types import Backend, Broadcast, Generic, SplitType, UnknownSplit, natural

if TYPE_CHECKING:
    from shoal.offload.annotations.plan import Estimator


@dataclass(frozen=True)
class Declaration:
    """What an annotation says of a function. `device` does the same on a device."""

    function: Callable[..., Any]
    types: tuple[SplitType, ...]
    keywords: Mapping[str, SplitType]
    result: SplitType | None
    mutated: frozenset[int | str] = frozenset()
    device: Callable[..., Any] | None = None
    splittable: bool = True
    estimator: Estimator | None = None

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", repr(self.function))

    def type_of(self, place: int | str) -> SplitType:
        """The type of an argument, by position or keyword. Raises Invalid for one that is not declared."""
        if isinstance(place, str):
            found = self.keywords.get(place)
        else:
            found = self.types[place] if place < len(self.types) else None
        if found is None:
            raise Invalid(f"argument {place!r} of {self.name} has no split type", hint="declare it, as Broadcast() say")
        return found


class Deferred:
    """The result of a noted call. Its value is computed when it is looked at: `run` runs what is noted. `materialize`
    says where it has to be."""

    def __init__(self, call: Call, run: Callable[[], object]) -> None:
        self._call: Call | None = call
        self._run = run
        self._value: Any = None
        self._error: BaseException | None = None
        self.materialize: Backend | None = None

    @property
    def value(self) -> Any:
        """Runs what is noted, if it did not run yet. Raises what the call raised."""
        if self._call is not None:
            self._run()
        if self._error is not None:
            raise self._error
        return self._value

    def settle(self, value: Any, error: BaseException | None = None) -> None:
        self._value, self._error, self._call = value, error, None

    @property
    def pending(self) -> bool:
        return self._call is not None

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        import numpy as np

        return np.array(self.value, dtype=dtype, copy=copy)

    def __repr__(self) -> str:
        return repr(self.value)

    def __len__(self) -> int:
        return len(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.value, name)

    def __getitem__(self, key: Any) -> Any:
        return self.value[key]


@dataclass(eq=False)
class Call:
    """One noted call. `arguments` are values or results of other calls, by place."""

    declaration: Declaration
    arguments: dict[int | str, Any]
    result: ref[Deferred] | None = None
    types: dict[int | str, SplitType] = field(default_factory=dict)
    result_type: SplitType = field(default_factory=Broadcast)


@dataclass(eq=False)
class Stage:
    """Calls that run together, piece by piece. `elements` is None where nothing can be cut."""

    calls: list[Call] = field(default_factory=list)
    elements: int | None = None
    whole: bool = False
    values: dict[int, Any] = field(default_factory=dict)
    known: dict[int, SplitType] = field(default_factory=dict)
    """The type of each value, by identity: arguments, and results of the calls."""


def extend(stage: Stage, call: Call) -> bool:
    """Add a call to a stage; False where it must begin another one."""
    declaration = call.declaration
    wholes = {place: _whole(value) for place, value in call.arguments.items()}
    types = _types(stage, call, wholes)
    cut = any(not isinstance(each, Broadcast) for each in types.values())
    splittable = cut and declaration.splittable and not _overlaps(declaration, types, wholes.values(), wholes)
    if stage.calls and (not splittable or stage.whole or _overlaps(declaration, types, stage.values.values(), wholes)):
        return False
    elements = stage.elements
    for place, value in call.arguments.items():
        found, known = types[place], stage.known.get(id(value))
        if _inside(value):
            if isinstance(found, Broadcast) or known != found or found.partial:
                return False  # it is needed whole, or cut in another way
        elif splittable:
            if isinstance(found, UnknownSplit):
                return False  # nothing else has as many elements
            count = found.elements(wholes[place])
            if count is not None and elements is not None and count != elements:
                return False
            elements = count if elements is None else elements
    stage.elements, stage.whole = (elements, False) if splittable else (None, True)
    for place, value in call.arguments.items():
        stage.known[id(value)] = types[place]
        stage.values[id(value)] = wholes[place]
    handle = None if call.result is None else call.result()
    result = declaration.result or Broadcast()
    if isinstance(result, Generic):
        name = result.name
        same = [
            types[place]
            for place in call.arguments
            if isinstance(wanted := declaration.type_of(place), Generic) and wanted.name == name
        ]
        result = next((each for each in same if not isinstance(each, Broadcast)), Broadcast())
    if isinstance(result, UnknownSplit):
        result = UnknownSplit(result.of)  # it agrees with no other
    if handle is not None:
        stage.known[id(handle)] = result
    call.types, call.result_type = types, result
    stage.calls.append(call)
    return True


def _inside(value: Any) -> bool:
    return isinstance(value, Deferred) and value.pending


def _whole(value: Any) -> Any:
    """The value of an argument; None of one that this stage computes."""
    return value if not isinstance(value, Deferred) else None if value.pending else value.value


def _types(stage: Stage, call: Call, wholes: Mapping[int | str, Any]) -> dict[int | str, SplitType]:
    """The type of each argument. All arguments of one generic type have the first that can be cut."""
    bound: dict[str, SplitType] = {}
    wanted = {place: call.declaration.type_of(place) for place in call.arguments}
    for place, value in call.arguments.items():
        kind = wanted[place]
        if isinstance(kind, Generic):
            found = stage.known.get(id(value)) or natural(wholes[place])
            if isinstance(bound.get(kind.name, Broadcast()), Broadcast):
                bound[kind.name] = found
    return {
        place: natural(wholes[place]) if isinstance(kind, Generic) and _scalar(wholes[place], call.arguments[place])
        else bound[kind.name] if isinstance(kind, Generic) else kind
        for place, kind in wanted.items()
    }  # fmt: skip


def _scalar(whole: Any, value: Any) -> bool:
    return not _inside(value) and isinstance(natural(whole), Broadcast)


def _overlaps(
    declaration: Declaration,
    types: Mapping[int | str, SplitType],
    others: Iterable[Any],
    wholes: Mapping[int | str, Any],
) -> bool:
    """Whether a piece would write where another piece reads, or into a copy."""
    for place in declaration.mutated:
        if place not in wholes:
            continue
        if not types[place].in_place:
            return True
        written = wholes[place]
        for other in others:
            arrays = isinstance(other, np.ndarray) and isinstance(written, np.ndarray)
            if other is not written and arrays and np.may_share_memory(other, written):
                return True
    return False
