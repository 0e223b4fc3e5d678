"""libshoalhost, bound: the latency probe, the core-to-core ping-pong.

The library is built by CMake when Shoal is installed, where there is a compiler. `load` says `Missing` where there was
none; nothing here fails at import. Calls let go of the interpreter's lock, so threads measure side by side.
"""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from shoal.core import Capability, Unavailable
from shoal.host.types import Missing

DIRECTORY = Path(__file__).parents[1] / "_native"
ABI = 1
PROBE_BYTES = 64 << 20
"""Twice the largest usual share of a last-level cache that one core can fill, so that loads go to memory."""
PROBE_LOADS = 300
"""About 80 us a shot at 270 ns a load."""
BUILD_IT = "install a C++17 compiler (apt-get install g++), then install Shoal again"
_CONSEQUENCE = "no latency probe, no check of the topology by measurement, no pacing of cores"


class Memory:
    """Touched memory in huge pages, for probes and kernels. Raises Unavailable when there is not enough."""

    def __init__(self, native: Native, size: int) -> None:
        self.size = size
        self._native = native
        self.address = native.library.shoal_memory_new(size)
        if not self.address:
            raise Unavailable(f"no {size >> 20} MiB of memory for a probe or kernel")

    def close(self) -> None:
        if self.address:
            self._native.library.shoal_memory_free(self.address, self.size)
            self.address = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class LatencyProbe:
    """What one dependent load from memory takes, by following a random cycle through `size` bytes: 272 ns beside idle
    neighbours, 572 ns beside streaming stores, on the machine of docs/results/host.md. A shot of 300 loads takes about
    80 us, so ten a second cost less than a thousandth of a core. Not for several threads at once."""

    def __init__(self, native: Native, *, size: int = PROBE_BYTES) -> None:
        self._native = native
        self._memory = Memory(native, size)
        self._cursor = ctypes.c_uint64(0)
        _check(native.library.shoal_probe_lay(self._memory.address, size), "the latency probe")

    def shot(self, loads: int = PROBE_LOADS) -> float:
        """Nanoseconds per load, now, on the CPU of the calling thread."""
        if not self._memory.address:
            raise ValueError("the probe is closed")
        return float(self._native.library.shoal_probe_shot(self._memory.address, ctypes.byref(self._cursor), loads))

    def close(self) -> None:
        self._memory.close()


class Native:
    """The loaded library. Errors of the kernel arrive as OSError."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        pointer, size, u32, u64 = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32, ctypes.c_uint64
        double = ctypes.c_double
        _declare(library, "shoal_memory_new", pointer, size)
        _declare(library, "shoal_memory_free", None, pointer, size)
        _declare(library, "shoal_probe_lay", ctypes.c_int, pointer, size)
        _declare(library, "shoal_probe_shot", double, pointer, ctypes.POINTER(u64), u32)
        _declare(
            library, "shoal_pingpong", ctypes.c_int, ctypes.c_int, ctypes.c_int, u32, u32, u64, ctypes.POINTER(double)
        )

    def ping_pong(
        self, cpu_a: int, cpu_b: int, *, rounds: int = 1000, repeats: int = 20, limit_s: float = 0.5
    ) -> float | Missing:
        """Nanoseconds to hand one cache line from CPU to CPU, the best of `repeats`: 25 to 28 within a Zen 4 core
        complex, 155 to 170 between two. Takes 1 to 7 ms of both CPUs; Missing when they were too busy to play."""
        best = ctypes.c_double()
        limit = ctypes.c_uint64(int(limit_s * 1e9))
        code = self.library.shoal_pingpong(cpu_a, cpu_b, rounds, repeats, limit, ctypes.byref(best))
        if code == 0:
            return best.value
        return Missing(f"no ping-pong between CPUs {cpu_a} and {cpu_b}: {os.strerror(code)}")


def capability(directory: Path = DIRECTORY) -> Capability:
    found = load(directory)
    if isinstance(found, Missing):
        return Capability("native", False, found.reason, _CONSEQUENCE)
    return Capability("native", True, f"{directory / 'libshoalhost.so'}")


@functools.cache
def load(directory: Path = DIRECTORY) -> Native | Missing:
    """The library, or why it is not there."""
    path = directory / "libshoalhost.so"
    if not path.exists():
        return Missing(f"{path.name} was not built: {BUILD_IT}")
    try:
        library = ctypes.CDLL(str(path))
        library.shoal_host_abi.restype = ctypes.c_uint32
        abi = library.shoal_host_abi()
    except (OSError, AttributeError) as problem:
        return Missing(f"{path} cannot be loaded: {problem}")
    if abi != ABI:
        return Missing(f"{path} has interface {abi}, not {ABI}: it is another version's; install Shoal again")
    return Native(library)


def _declare(library: ctypes.CDLL, name: str, result: object, *arguments: object) -> None:
    function = getattr(library, name)
    function.restype, function.argtypes = result, arguments


def _check(code: int, where: str) -> None:
    if code:
        raise OSError(code, os.strerror(code), where)
