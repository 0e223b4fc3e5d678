"""Single measurements of a device, without PyTorch: measures.py WHAT ROUNDS. Prints one object of JSON."""

from __future__ import annotations

import ctypes as c
import json
import statistics
import sys
import time

from driver import Module, check, cu, finish, launch, now_us, spin_text, stream

BLOCKS = 64


def launches(rounds: int) -> dict[str, float]:
    """CPU time of a launch of a kernel that does nothing, and until all are done."""
    module, on = Module(spin_text(1)), stream()
    launch(module["nothing_us1"], 1, on)
    finish(on)
    kernel, began = module["nothing_us1"], now_us()
    for _ in range(rounds):
        launch(kernel, 1, on)
    cpu = now_us() - began
    finish(on)
    return {"launch, CPU us": cpu / rounds, "launch, done us": (now_us() - began) / rounds}


def writes(rounds: int) -> dict[str, float]:
    """What a write of the stream to host memory costs, and how late the host sees it."""
    Module(spin_text(1))
    on, place = stream(), c.c_void_p()
    check(cu.cuMemAllocHost_v2(c.byref(place), c.c_size_t(4096)))
    address = c.c_uint64()
    check(cu.cuMemHostGetDevicePointer_v2(c.byref(address), place, 0))
    seen = c.c_uint32.from_address(place.value or 0)
    late = []
    for number in range(1, rounds + 1):
        began = now_us()
        check(cu.cuStreamWriteValue32_v2(on, address, c.c_uint32(number), 0))
        while seen.value != number:
            pass
        late.append(now_us() - began)
    began = now_us()
    for number in range(rounds):
        check(cu.cuStreamWriteValue32_v2(on, address, c.c_uint32(number), 0))
    cpu = now_us() - began
    finish(on)
    done = now_us() - began
    return {
        "stream write, CPU us": cpu / rounds, "stream write, done us": done / rounds,
        "stream write, until the host sees it, median us": statistics.median(late),
    }  # fmt: skip


def switch(rounds: int) -> dict[str, float]:
    """From a launch until its end, beside whatever else runs: what a process waits for the device."""
    module, on = Module(spin_text(1)), stream()
    kernel, took = module["nothing_us1"], []
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(rounds):
        time.sleep(0.001)
        began = now_us()
        launch(kernel, 1, on)
        finish(on)
        took.append(now_us() - began)
    took.sort()
    return {"median us": statistics.median(took), "p99 us": took[int(len(took) * 0.99)]}


def busy(rounds: int) -> dict[str, float]:
    """Kernels of 50 us, two ahead, for so many milliseconds: what `switch` runs beside."""
    module, on = Module(spin_text(50)), stream()
    kernel = module["nothing_us50"]
    print("ready", flush=True)
    sys.stdin.readline()
    count, end = 0, now_us() + 1e3 * rounds
    while now_us() < end:
        launch(kernel, 1, on)
        launch(kernel, 1, on)
        finish(on)
        count += 2
    return {"kernels": count}


def parts(rounds: int) -> dict[str, float]:
    """A kernel whole, in eight slices, and by ticket, without a gate."""
    from shoal.device.ptx.launch import control_bytes, launch_parameter
    from shoal.device.ptx.transform import transform

    module, on = Module(transform(spin_text(20)).text), stream()
    control, size = c.c_uint64(), control_bytes((BLOCKS, 1, 1))
    check(cu.cuMemAlloc_v2(c.byref(control), c.c_size_t(size)))

    def extra(base: int, at: int) -> object:
        return (c.c_char * 32).from_buffer_copy(launch_parameter((BLOCKS, 1, 1), base=base, control=at))

    def whole() -> None:
        launch(module["nothing_us20"], BLOCKS, on)

    def sliced() -> None:
        for base in range(0, BLOCKS, BLOCKS // 8):
            launch(module["nothing_us20__shoal_slice"], BLOCKS // 8, on, [extra(base, 0)])

    def ticket() -> None:
        check(cu.cuMemsetD32Async(control, 0, c.c_size_t(2), on))
        launch(module["nothing_us20__shoal_ticket"], BLOCKS, on, [extra(0, control.value)])

    found = {}
    for name, way in (("whole", whole), ("in 8 slices", sliced), ("by ticket", ticket)):
        took = []
        for _ in range(rounds):
            began = now_us()
            way()
            finish(on)
            took.append(now_us() - began)
        found[f"kernel of {BLOCKS} blocks, {name}, median us"] = statistics.median(took)
    return found


def graph(rounds: int) -> dict[str, float]:
    """A graph of 20 kernels of 50 us: a best-effort process launches it node by node, since it exceeds the bound."""
    module, on = Module(spin_text(50)), stream()
    check(cu.cuStreamBeginCapture_v2(on, 2))
    for _ in range(20):
        launch(module["nothing_us50"], 1, on)
    made, executable = c.c_void_p(), c.c_void_p()
    check(cu.cuStreamEndCapture(on, c.byref(made)))
    check(cu.cuGraphInstantiateWithFlags(c.byref(executable), made, c.c_uint64(0)))
    took = []
    for _ in range(rounds):
        began = now_us()
        check(cu.cuGraphLaunch(executable, on))
        finish(on)
        took.append(now_us() - began)
    return {"graph of 20 kernels of 50 us, median us": statistics.median(took)}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](int(sys.argv[2]))))
