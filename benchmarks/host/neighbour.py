"""A neighbour that does one thing to memory, as hard as it can: `--kernel nt-store` is the worst (streaming stores, as
in a large memset or copy), `spin` only takes CPU time.

    cd benchmarks; python -m host.neighbour --kernel nt-store --cpu 1

Runs until it is killed, or its parent ends. With `--page FILE`, the first 8 bytes of the file count the bytes moved.
"""

from __future__ import annotations

import argparse
import ctypes
import mmap
import os
from pathlib import Path

from host.kernels import MemoryKernel, run_kernel
from shoal.base.processes import end_with_parent
from shoal.core import Unavailable
from shoal.host.linux.native import Memory, load
from shoal.host.types import Missing

MIB = 256
"""Eight times the L3 of one core complex, so that nothing of it stays there."""
_SLICE_S = 0.2


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [kernel.name.lower().replace("_", "-") for kernel in MemoryKernel]
    arguments.add_argument("--kernel", choices=names, default=names[0])
    arguments.add_argument("--cpu", type=int, help="the CPU to run on")
    arguments.add_argument("--mib", type=int, default=MIB, help=f"the memory it goes through (default: {MIB})")
    arguments.add_argument("--page", type=Path, help="a file for the count of bytes moved")
    options = arguments.parse_args()
    if options.cpu is not None:
        os.sched_setaffinity(0, {options.cpu})
    end_with_parent(os.getppid())  # what floods memory must not outlive the one that measures with it
    native = load()
    if isinstance(native, Missing):
        raise SystemExit(str(Unavailable(native.reason)))
    kernel = MemoryKernel[options.kernel.upper().replace("-", "_")]
    moved = ctypes.c_uint64(0) if options.page is None else counter(options.page)
    memory = None if kernel is MemoryKernel.SPIN else Memory(native, options.mib << 20)
    while True:
        run_kernel(native, kernel, memory, _SLICE_S, moved)


def counter(path: Path) -> ctypes.c_uint64:
    """The first 8 bytes of a file as a number that other processes see grow."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.posix_fallocate(fd, 0, mmap.PAGESIZE)
        return ctypes.c_uint64.from_buffer(mmap.mmap(fd, mmap.PAGESIZE))
    finally:
        os.close(fd)


if __name__ == "__main__":
    main()
