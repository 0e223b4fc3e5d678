"""The driver API by ctypes, for programs that tests start: whichever libcuda.so.1 the library path has."""

import ctypes
import os
import sys
import threading
import time

__all__ = [
    "LEGACY", "PER_THREAD", "PTX", "Graph", "byref", "c", "check", "ctypes", "cu", "floats", "kernels", "launch",
    "memory", "os", "read", "say", "setup", "stream", "sys", "threading", "time", "words", "write",
]  # fmt: skip

byref = ctypes.byref
c = ctypes
cu = ctypes.CDLL("libcuda.so.1")
LEGACY, PER_THREAD = ctypes.c_void_p(1), ctypes.c_void_p(2)


def kernels(*names):
    """PTX of kernels of the fake driver, with their variants."""
    parameters = {
        "axpy": [".u64 y", ".u64 x", ".f32 a", ".u32 n"],
        "blocks": [".u64 out"],
        "wait": [".u64 flag"],
        "set": [".u64 flag"],
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL": [],
        "_Z19ncclDevKernel_Reduceu": [],
        "lessnccl": [],
        "nothing": [],
    }
    entries = []
    for name in names:
        own = parameters[name.split("_us")[0]]
        for suffix, extra in (
            ("", []),
            ("__shoal_slice", [".align 8 .b8 e[32]"]),
            ("__shoal_ticket", [".align 8 .b8 e[32]"]),
        ):
            listed = ", ".join(f".param {one}" for one in own + extra)
            entries.append(f".visible .entry {name}{suffix}({listed})\n{{ ret; }}")
    return ".version 8.0\n.target sm_80\n.address_size 64\n" + "\n".join(entries)


PTX = kernels(
    "axpy",
    "axpy_us20",
    "axpy_us200",
    "blocks",
    "blocks_us20",
    "blocks_us100",
    "blocks_us1000",
    "wait",
    "set",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
    "_Z19ncclDevKernel_Reduceu",
    "lessnccl",
    "nothing",
    "nothing_us50",
)


def check(result, *expected):
    assert result in (expected or (0,)), f"CUDA error {result}"
    return result


class Setup:
    def __init__(self, ptx=PTX, context=True):
        check(cu.cuInit(0))
        self.device = c.c_int()
        check(cu.cuDeviceGet(byref(self.device), 0))
        self.context = c.c_void_p()
        if context:
            check(cu.cuDevicePrimaryCtxRetain(byref(self.context), self.device))
            check(cu.cuCtxSetCurrent(self.context))
        self.module = c.c_void_p()
        check(cu.cuModuleLoadData(byref(self.module), ptx.encode()))

    def __getitem__(self, name):
        function = c.c_void_p()
        check(cu.cuModuleGetFunction(byref(function), self.module, name.encode()))
        return function


def setup(ptx=PTX):
    return Setup(ptx)


def memory(size):
    at = c.c_uint64()
    check(cu.cuMemAlloc_v2(byref(at), c.c_size_t(size)))
    return at


def write(at, data):
    check(cu.cuMemcpyHtoD_v2(at, data, c.c_size_t(len(bytes(data)))))


def read(at, size):
    data = c.create_string_buffer(size)
    check(cu.cuMemcpyDtoH_v2(data, at, c.c_size_t(size)))
    return data.raw


def floats(count, value=0.0):
    at = memory(4 * count)
    write(at, (c.c_float * count)(*([value] * count)))
    return at


def words(at, count):
    return list((c.c_uint64 * count).from_buffer_copy(read(at, 8 * count)))


def launch(function, grid, block, *arguments, stream=None, how=cu.cuLaunchKernel, shared=0, result=(0,)):
    grid = (*grid, 1, 1)[:3] if isinstance(grid, tuple) else (grid, 1, 1)
    pointers = (c.c_void_p * max(len(arguments), 1))(*(c.cast(byref(one), c.c_void_p) for one in arguments))
    return check(how(function, *grid, block, 1, 1, shared, stream, pointers, None), *result)


def stream(flags=1):
    made = c.c_void_p()
    check(cu.cuStreamCreate(byref(made), flags))
    return made


class Graph:
    """What `body` launches on a stream, captured and instantiated."""

    def __init__(self, on, body, mode=0):
        check(cu.cuStreamBeginCapture_v2(on, mode))
        body()
        self.graph, self.exec = c.c_void_p(), c.c_void_p()
        check(cu.cuStreamEndCapture(on, byref(self.graph)))
        check(cu.cuGraphInstantiateWithFlags(byref(self.exec), self.graph, c.c_uint64(0)))

    def launch(self, on):
        check(cu.cuGraphLaunch(self.exec, on))


def say(*what):
    print(*what, flush=True)
