"""One compiled kernel: a nest, its layout, and the code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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


def compile_kernel(
    cell: Cell, sizes: Sizes, kind: NumberType, schedule: Schedule, target: Target, cache: KernelCache
) -> Kernel:
    """Lower, emit, compile or find in the cache, and load. The pipeline in one place."""
    from shoal.recurrent.llvm import engine
    from shoal.recurrent.llvm.kernel import emit
    from shoal.recurrent.llvm.layout import Layout

    nest = lower(cell, sizes, schedule, target.lanes)
    layout = Layout(nest, kind, target)
    text = emit(layout)
    code = cache.get(key_of(text, target, engine.VERSION), lambda: engine.compile_object(text, target))
    loaded = engine.Loaded(code, target)
    return Kernel(schedule, nest, layout, loaded.run, loaded)
