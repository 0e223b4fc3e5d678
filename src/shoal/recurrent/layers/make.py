"""Choice of a layer's back end and of its schedules."""

from __future__ import annotations

from shoal.recurrent.layers.kernel import compile_kernel
from shoal.recurrent.layers.layer import InterpretedLayer, Layer, LayerSpec, Schedules
from shoal.recurrent.llvm.cache import KernelCache
from shoal.recurrent.llvm.target import Target


def best_target() -> Target | None:
    """The target of this machine; None where llvmlite is missing or makes no code for it."""
    try:
        from shoal.recurrent.llvm.target import host_target

        return host_target()
    except ImportError:
        return None


def make_layer(spec: LayerSpec, target: Target | None, schedules: Schedules, cache: KernelCache) -> Layer:
    """A compiled layer, or an interpreted one where there is no target."""
    if target is None:
        return InterpretedLayer(spec)
    from shoal.recurrent.layers.compiled import CompiledLayer

    return CompiledLayer(
        spec, schedules, lambda one: compile_kernel(spec.cell, spec.sizes, spec.kind, one, target, cache)
    )
