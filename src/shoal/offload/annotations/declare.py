"""The decorators of the paper, and the declaration of a function for the whole process."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shoal.offload.annotations.calls import Declaration, Deferred
from shoal.offload.annotations.plan import PCI_EXPRESS, Estimator
from shoal.offload.annotations.run import PROGRAM
from shoal.offload.annotations.types import Broadcast, SplitType
from shoal.placement import Link

Function = Callable[..., Any]


@dataclass(frozen=True)
class _Mutated:
    kind: SplitType


def mut(kind: SplitType) -> Any:
    """Marks an argument that the function writes into, as `out=`."""
    return _Mutated(kind)


def _places(positional: Sequence[Any], keywords: Mapping[str, Any]) -> dict[int | str, Any]:
    found: dict[int | str, Any] = dict(enumerate(positional))
    found.update(keywords.items())
    return found


def _declaration(
    function: Function, types: Sequence[Any], keywords: Mapping[str, Any], result: SplitType | None, **more: Any
) -> Declaration:
    places = _places(types, keywords)
    mutated = frozenset(place for place, kind in places.items() if isinstance(kind, _Mutated))
    plain = {place: kind.kind if isinstance(kind, _Mutated) else kind for place, kind in places.items()}
    positional = tuple(plain[each] for each in range(len(types)))
    return Declaration(function, positional, {key: plain[key] for key in keywords}, result, mutated, **more)


def _noting(declaration: Declaration) -> Function:
    @functools.wraps(declaration.function)
    def note(*arguments: Any, **keywords: Any) -> Deferred:
        return PROGRAM.note(declaration, _places(arguments, keywords))

    return note


def sa(
    types: Sequence[Any], kwtypes: Mapping[str, Any] | None = None, ret: SplitType | None = None
) -> Callable[[Function], Function]:
    """A split annotation: the types of the positional arguments, of the keyword arguments, and of the result. Calls of
    the function are noted, and give a `Deferred`."""
    return lambda function: _noting(_declaration(function, types, kwtypes or {}, ret))


def oa(
    types: Sequence[Any],
    kwtypes: Mapping[str, Any] | None = None,
    ret: SplitType | None = None,
    *,
    func: Function | None = None,
    splittable: bool = True,
    estimator: Estimator | None = None,
) -> Callable[[Function], Function]:
    """An offload annotation: as `sa`, and `func` does the same on the device, where the estimator and the bytes that
    would move say that it gains. Without an estimator it stays on the host."""

    def declare(function: Function) -> Function:
        more = {"device": func, "splittable": splittable, "estimator": estimator}
        return _noting(_declaration(function, types, kwtypes or {}, ret, **more))

    return declare


def _allocating(function: Function, result: SplitType | None, device: Function | None) -> Function:
    """Notes calls of a function that allocates: it is called whole, when its result is needed."""

    @functools.wraps(function)
    def allocate(*arguments: Any, **keywords: Any) -> Deferred:
        types = [Broadcast()] * len(arguments)
        kinds = {key: Broadcast() for key in keywords}
        declaration = _declaration(function, types, kinds, result, device=device, splittable=False)
        return PROGRAM.note(declaration, _places(arguments, keywords))

    return allocate


def alloc(ret: SplitType) -> Callable[[Function], Function]:
    """A function that allocates its result."""
    return lambda function: _allocating(function, ret, None)


def oa_alloc(ret: SplitType, *, func: Function) -> Callable[[Function], Function]:
    """As `alloc`; `func` allocates on the device."""
    return lambda function: _allocating(function, ret, func)


def evaluate(*, workers: int = 0, batch: int = 0, link: Link = PCI_EXPRESS, force_cpu: bool = False) -> None:
    """Run what is noted in this thread. `workers`: threads, all cores for 0. `batch`: elements of a piece, what fits
    into the cache for 0. `link`: to the device. Raises the first error of a call."""
    error = PROGRAM.run(workers=workers, batch=batch, link=link, force_cpu=force_cpu)
    if error is not None:
        raise error


def annotate(
    owner: Any,
    name: str,
    types: Sequence[Any],
    kwtypes: Mapping[str, Any] | None = None,
    ret: SplitType | None = None,
    *,
    threshold: int = 65536,
) -> Callable[[], None]:
    """Declare a function of a library for this process: calls with at least `threshold` elements run at once, in
    pieces on all cores; all others, and those with arguments that are not declared, are the function's own. Answers
    what takes the declaration back. The function must let other threads run, as most native code does."""
    original = getattr(owner, name)
    declaration = _declaration(original, types, kwtypes or {}, ret)

    @functools.wraps(original)
    def call(*arguments: Any, **keywords: Any) -> Any:
        places = _places(arguments, keywords)
        if len(arguments) > len(declaration.types) or not keywords.keys() <= declaration.keywords.keys():
            return original(*arguments, **keywords)
        kinds = [(declaration.type_of(place), value) for place, value in places.items()]
        work = [count for kind, value in kinds if (count := kind.work(value)) is not None]
        if len({kind.elements(value) for kind, value in kinds} - {None}) != 1 or max(work) < threshold:
            return original(*arguments, **keywords)
        return PROGRAM.at_once(declaration, places)

    setattr(owner, name, call)
    return lambda: setattr(owner, name, original)
