"""The CUDA driver by ctypes: whichever libcuda.so.1 the library path has, the shim, NVIDIA's or the tests' fake one."""

from __future__ import annotations

import ctypes as c
import time
from collections.abc import Sequence

cu = c.CDLL("libcuda.so.1")

# A block takes N microseconds: on a device by its clock, on the fake driver by its name.
_SPIN = """
.visible .entry nothing_us{us}()
{{
    .reg .pred %p<2>;
    .reg .b64 %t<4>;
    mov.u64 %t1, %globaltimer;
AGAIN:
    mov.u64 %t2, %globaltimer;
    sub.u64 %t3, %t2, %t1;
    setp.lt.u64 %p1, %t3, {ns};
    @%p1 bra AGAIN;
    ret;
}}
"""


def spin_text(*us: int) -> str:
    """PTX of kernels `nothing_usN`."""
    return ".version 7.0\n.target sm_70\n.address_size 64\n" + "".join(_SPIN.format(us=n, ns=n * 1000) for n in us)


def check(result: int) -> None:
    if result:
        raise SystemExit(f"CUDA error {result}")


class Module:
    """The primary context of the first device, and a module in it."""

    def __init__(self, text: str) -> None:
        check(cu.cuInit(0))
        device, context = c.c_int(), c.c_void_p()
        check(cu.cuDeviceGet(c.byref(device), 0))
        check(cu.cuDevicePrimaryCtxRetain(c.byref(context), device))
        check(cu.cuCtxSetCurrent(context))
        self._module = c.c_void_p()
        check(cu.cuModuleLoadData(c.byref(self._module), text.encode()))

    def __getitem__(self, name: str) -> c.c_void_p:
        function = c.c_void_p()
        check(cu.cuModuleGetFunction(c.byref(function), self._module, name.encode()))
        return function


def stream(priority: int = 0) -> c.c_void_p:
    made = c.c_void_p()
    check(cu.cuStreamCreateWithPriority(c.byref(made), 1, priority))
    return made


def launch(function: c.c_void_p, blocks: int, on: c.c_void_p, arguments: Sequence[object] = ()) -> None:
    pointers = (c.c_void_p * max(len(arguments), 1))(*(c.cast(c.byref(one), c.c_void_p) for one in arguments))  # type: ignore[arg-type]
    check(cu.cuLaunchKernel(function, blocks, 1, 1, 32, 1, 1, 0, on, pointers, None))


def finish(on: c.c_void_p) -> None:
    check(cu.cuStreamSynchronize(on))


def now_us() -> float:
    return time.perf_counter_ns() / 1e3
