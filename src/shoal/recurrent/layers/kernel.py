"""One compiled kernel: a nest, its layout, and the code."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shoal.recurrent.cells.cell import Cell
from shoal.recurrent.llvm.cache import KernelCache, key_of
from shoal.recurrent.llvm.target import Target
from shoal.recurrent.nest.ir import Nest, Sizes
from shoal.recurrent.nest.transform import Schedule, lower
from shoal.recurrent.numbers import NumberType


@dataclass(frozen=True)
class Kernel:
    """`run` takes the address of a `Call`. `loaded` keeps the code alive."""

    schedule: Schedule
    nest: Nest
    layout: Any
    run: Callable[[int], None]
    loaded: Any


@functools.cache
def emitter() -> str:
    """The digest of the modules that make a kernel of a cell: another version of them makes other code."""
    parts = Path(__file__).parent.parent
    found = hashlib.sha256()
    for one in sorted(parts / folder for folder in ("cells", "nest", "llvm")):
        for module in sorted(one.glob("*.py")):
            found.update(module.read_bytes())
    return found.hexdigest()


def compile_kernel(
    cell: Cell, sizes: Sizes, kind: NumberType, schedule: Schedule, target: Target, cache: KernelCache
) -> Kernel:
    """Lower, emit and compile, or find in the cache, and load. The pipeline in one place. The name in the cache is of
    what the code is made from, so that what is found needs not be emitted."""
    from shoal.recurrent.llvm import engine
    from shoal.recurrent.llvm.kernel import emit
    from shoal.recurrent.llvm.layout import Layout

    nest = lower(cell, sizes, schedule, target.lanes)
    layout = Layout(nest, kind, target)
    made_from = json.dumps([cell.as_json(), asdict(sizes), kind, schedule.as_json(), target.name, emitter()])
    code = cache.get(key_of(made_from, target, engine.VERSION), lambda: engine.compile_object(emit(layout), target))
    loaded = engine.Loaded(code, target)
    return Kernel(schedule, nest, layout, loaded.run, loaded)
