"""Kernels of the native library that do one thing to memory, for neighbours and their measurement."""

from __future__ import annotations

import ctypes
import os
from enum import IntEnum

from shoal.host.linux.native import Memory, Native


class MemoryKernel(IntEnum):
    """From the hardest on its neighbours to none at all. Bytes are counted as the program sees them: a plain store also
    reads its line first."""

    NT_STORE = 0
    STORE = 1
    READ = 2
    TRIAD = 3
    SPIN = 4


def run_kernel(
    native: Native, kernel: MemoryKernel, memory: Memory | None, seconds: float, moved: ctypes.c_uint64
) -> None:
    """Run over `memory` again and again; `moved` grows all along by the bytes moved (by rounds, for SPIN)."""
    run = native.library.shoal_kernel_run
    run.restype = ctypes.c_int
    run.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64, ctypes.c_void_p)
    address, size = (memory.address, memory.size) if memory is not None else (None, 0)
    if code := run(kernel, address, size, int(seconds * 1e9), ctypes.addressof(moved)):
        raise OSError(code, os.strerror(code), f"memory kernel {kernel.name}")
