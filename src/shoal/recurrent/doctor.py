"""Diagnosis of this machine for recurrent networks, and the cost of what is missing."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Sequence
from pathlib import Path

from shoal.base.extras import install
from shoal.core import Capability
from shoal.recurrent.layers.make import best_target
from shoal.recurrent.llvm.cache import cache_folder

_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_INSTRUCTIONS = (
    ("AVX2", {"avx2", "fma"}, "plain SSE2 vectors of four numbers are used"),
    ("AVX-512", {"avx512f", "avx512bw", "avx512vl", "avx512dq"}, "vectors have 8 numbers, and 16 registers, not 32"),
    ("8-bit products (VNNI)", {"avx512vnni", "avxvnni"}, "an int8 product takes four instructions, not one"),
    ("16-bit products (AVX512-BF16)", {"avx512bf16"}, "bf16 saves memory traffic only; its sums are as slow as fp32"),
)
"""Of x86: a name, the features by LLVM's names (of VNNI one is enough), and what is so without them."""


def examine() -> Sequence[Capability]:
    """Code generator, instructions, cores, pages, cache and ONNX Runtime, in this order."""
    return [_generator(), *_instructions(), _cores(), _pages(), _cache(), _package("onnxruntime", _WITHOUT_RUNTIME)]


_WITHOUT_RUNTIME = f"an ONNX file with other than recurrent nodes cannot run: {install('recurrent')}"


def _package(name: str, without: str) -> Capability:
    try:
        return Capability(name, True, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Capability(name, False, "not installed", without)


def _generator() -> Capability:
    found = _package("llvmlite", f"ONNX files run in ONNX Runtime, other files are interpreted: {install('recurrent')}")
    target = best_target() if found.available else None
    if target is not None:
        return Capability("code generator", True, f"llvmlite {found.detail}, for {target.name}")
    detail = f"llvmlite {found.detail} makes no code for {platform.machine()}" if found.available else found.detail
    return Capability("code generator", False, detail, found.consequence or "ONNX files run in ONNX Runtime")


def _instructions() -> Sequence[Capability]:
    target = best_target()
    if target is None or not target.x86:
        return []
    from shoal.recurrent.llvm.target import host_features

    there = host_features()
    found = []
    for name, needed, without in _INSTRUCTIONS:
        has = bool(needed & there) if "vnni" in str(needed) else needed <= there
        found.append(Capability(name, has, "yes" if has else "this processor has none", "" if has else without))
    amx = "there, and not used" if "amx-int8" in there else "this processor has none"
    return [*found, Capability("matrix tiles (AMX)", "amx-int8" in there, amx, "nothing: no kernel uses them")]


def _cores() -> Capability:
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Capability(
        "cores", count > 1, str(count), "" if count > 1 else "`threads` brings nothing: rows and directions take turns"
    )


def _pages() -> Capability:
    try:
        chosen = _PAGES.read_text().partition("[")[2].partition("]")[0]
    except OSError:
        chosen = "unknown"
    usable = chosen in ("always", "madvise")
    without = "" if usable else "weights of many MB lie in small pages: looking them up costs time"
    return Capability("large pages", usable, chosen, without)


def _cache() -> Capability:
    folder = cache_folder(os.environ)
    if not folder.exists():
        return Capability("cache of kernels", True, f"{folder}, empty so far")
    usable = os.access(folder, os.W_OK | os.X_OK)
    kernels = [one.stat().st_size for one in folder.glob("*.o")]
    detail = f"{folder}: {len(kernels)} kernels, {sum(kernels) / 1e6:.1f} MB"
    return Capability("cache of kernels", usable, detail, "" if usable else "each process compiles its kernels anew")
