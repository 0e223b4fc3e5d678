"""Runs noted calls: stage by stage, each piece by piece on all cores or on the device."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import ref

from shoal.core import Invalid
from shoal.offload.annotations.calls import Call, Declaration, Deferred, Stage, extend
from shoal.offload.annotations.plan import PCI_EXPRESS, place_stage, sites_of
from shoal.offload.annotations.types import Backend, SplitType
from shoal.offload.arrays.threads import THREADS
from shoal.placement import Link

_CACHE_BYTES = 512 << 10
"""Of arguments for each piece: half of a core's second cache, which leaves room for results."""

_DEVICE_ELEMENTS = 1 << 19
"""Of a piece on the device, as the paper has it: a value larger than the device's memory passes through it."""


def run_stages(
    calls: list[Call], *, workers: int = 0, batch: int = 0, link: Link = PCI_EXPRESS, force_cpu: bool = False
) -> BaseException | None:
    """Settle the results of all calls; answers the first error. `workers` 0 is all cores, `batch` 0 what fits into
    the cache."""
    first: BaseException | None = None
    stage = Stage()
    for call in calls:
        try:
            if extend(stage, call):
                continue
            first = _settle(stage, workers, batch, link, force_cpu) or first
            stage = Stage()
            if not extend(stage, call):
                sizes = sorted({n for p, t in _sizes(call) if (n := t.elements(p)) is not None})
                text = f"the arguments of {call.declaration.name} have {' and '.join(map(str, sizes))} elements"
                raise Invalid(text, hint="one of them is a Broadcast() perhaps")
        except Exception as error:  # of an argument, or of the declaration: it belongs to this call
            first = first or error
            _fail(call, error)
    return _settle(stage, workers, batch, link, force_cpu) or first


def _sizes(call: Call) -> list[tuple[Any, Any]]:
    return [
        (value.value if isinstance(value, Deferred) else value, call.declaration.type_of(place))
        for place, value in call.arguments.items()
    ]


def _fail(call: Call, error: BaseException) -> None:
    handle = None if call.result is None else call.result()
    if handle is not None:
        handle.settle(None, error)


def _settle(stage: Stage, workers: int, batch: int, link: Link, force_cpu: bool) -> BaseException | None:
    if not stage.calls:
        return None
    try:
        _run(stage, workers, batch, link, force_cpu)
    except Exception as error:
        for call in stage.calls:
            _fail(call, error)
        return error
    return None


def _run(stage: Stage, workers: int, batch: int, link: Link, force_cpu: bool) -> None:
    sites = sites_of(stage, None if force_cpu else place_stage(stage, link))
    count = stage.elements
    threads = workers or len(os.sched_getaffinity(0))
    if count is None:
        pieces = [(0, 0)]
    else:
        step = _step(stage, count, threads, batch or (_DEVICE_ELEMENTS if Backend.GPU in sites else 0))
        pieces = [(start, min(start + step, count)) for start in range(0, count, step)] or [(0, 0)]
    kept = _kept(stage)
    given = _given(stage, sites)
    found: dict[int, list[Any]] = {number: [None] * len(pieces) for number in kept}

    def work(number: int) -> None:
        start, stop = pieces[number]
        at: dict[int, Any] = {}
        for position, (call, site) in enumerate(zip(stage.calls, sites, strict=True)):
            result = _call(stage, call, site, given, at, start, stop)
            handle = None if call.result is None else call.result()
            if handle is not None:
                at[id(handle)] = result
            if position in kept:
                found[position][number] = call.result_type.to(result, kept[position].materialize or Backend.CPU)

    THREADS.share(work, range(len(pieces)), min(threads, len(pieces)))
    for position, handle in kept.items():
        parts = found[position]
        handle.settle(stage.calls[position].result_type.combine(parts) if count is not None else parts[0])


def _step(stage: Stage, count: int, threads: int, wanted: int) -> int:
    """Elements of a piece."""
    if wanted or any(kind.single for kind in stage.known.values()):
        return 1 if any(kind.single for kind in stage.known.values()) else wanted
    size = sum(stage.known[key].size(value) for key, value in stage.values.items() if value is not None)
    fits = int(_CACHE_BYTES / max(size / max(count, 1), 1e-9))
    return max(1, min(fits, -(-count // threads)))


def _kept(stage: Stage) -> dict[int, Deferred]:
    """The results that the program or a later call holds."""
    uses: dict[int, int] = {}
    for call in stage.calls:
        for value in call.arguments.values():
            uses[id(value)] = uses.get(id(value), 0) + 1
    kept = {}
    for position, call in enumerate(stage.calls):
        handle = None if call.result is None else call.result()
        # beside the arguments of this stage: the variable here, and the argument
        if handle is not None and sys.getrefcount(handle) - 2 > uses.get(id(handle), 0):
            kept[position] = handle
    return kept


def _given(stage: Stage, sites: Sequence[Backend]) -> dict[Any, Any]:
    """What is cut, or given whole, in place of each argument that is there: prepared, or moved, once."""
    found: dict[Any, Any] = {}
    for call, site in zip(stage.calls, sites, strict=True):
        for place, value in call.arguments.items():
            kind, whole = call.types[place], stage.values[id(value)]
            if _is_cut(stage, kind, whole):
                if (id(value), kind) not in found:
                    found[id(value), kind] = kind.prepare(whole)
            elif (id(value), kind, site) not in found and whole is not None:
                found[id(value), kind, site] = kind.to(whole, site)
    return found


def _is_cut(stage: Stage, kind: SplitType, whole: Any) -> bool:
    return not stage.whole and stage.elements is not None and kind.elements(whole) is not None


def _call(
    stage: Stage, call: Call, site: Backend, given: Mapping[Any, Any], at: dict[Any, Any], start: int, stop: int
) -> Any:
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    for place, value in call.arguments.items():
        kind, whole = call.types[place], stage.values[id(value)]
        piece = id(value), kind
        if id(value) in at:  # this stage's own
            moved = kind.to(at[id(value)], site)
        elif _is_cut(stage, kind, whole):
            if piece not in at:
                at[piece] = kind.split(start, stop, given[piece])
            moved = kind.to(at[piece], site)
        else:
            moved = given.get((*piece, site))
        if isinstance(place, int):
            positional.append(moved)
        else:
            keywords[place] = moved
    function = call.declaration.device if site is Backend.GPU else call.declaration.function
    assert function is not None
    if stage.elements is None:
        return function(*positional, **keywords)
    return call.result_type.call(function, positional, keywords)


_MOST = 256
"""Noted calls, after which they run: a loop that looks at nothing needs no memory that grows."""


class CallProgram:
    """What one thread noted."""

    def __init__(self) -> None:
        self._local = threading.local()

    @property
    def _calls(self) -> list[Call]:
        found: list[Call] = self._local.__dict__.setdefault("calls", [])
        return found

    def note(self, declaration: Declaration, arguments: dict[int | str, Any]) -> Deferred:
        for place in arguments:
            declaration.type_of(place)
        call = Call(declaration, arguments)
        found = Deferred(call, self.run)
        call.result = ref(found)
        self._calls.append(call)
        if len(self._calls) >= _MOST:
            self.run()
        return found

    def run(self, **options: Any) -> BaseException | None:
        """Run all that is noted; answers the first error. A call that raises leaves its error to its result and to
        those that need it."""
        calls, self._calls[:] = list(self._calls), []
        return run_stages(calls, **options)

    def at_once(self, declaration: Declaration, arguments: dict[int | str, Any]) -> Any:
        """The value of one call, without regard to what is noted."""
        call = Call(declaration, arguments)
        found = Deferred(call, self.run)
        call.result = ref(found)
        run_stages([call])
        return found.value


PROGRAM = CallProgram()
