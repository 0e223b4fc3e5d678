"""The quota: what a process may hold on the device, and what it is told of the device's memory."""

from __future__ import annotations

from pathlib import Path

from tests.device.cuda.kit import Device, line_of, needs_fake, resume, tenant

pytestmark = needs_fake
MIB = 1 << 20

INFO = """
def info():
    free, total, whole = c.c_size_t(), c.c_size_t(), c.c_size_t()
    check(cu.cuMemGetInfo_v2(byref(free), byref(total)))
    check(cu.cuDeviceTotalMem_v2(byref(whole), s.device))
    return free.value >> 20, total.value >> 20, whole.value >> 20
MIB = 1 << 20
s = setup()
on = stream()
at = c.c_uint64()
"""


def test_an_allocation_over_the_quota_gets_the_driver_s_error_and_the_numbers_agree(tmp_path: Path) -> None:
    device = Device(tmp_path)
    program = (
        INFO
        + """
say(info())
blocks = []
for size in (40, 40, 30, 20):
    at = c.c_uint64()
    blocks.append((check(cu.cuMemAlloc_v2(byref(at), c.c_size_t(size * MIB)), 0, 2), at))
say([result for result, _ in blocks], info())
check(cu.cuMemFree_v2(blocks[0][1]))
say(info())
sys.stdin.readline()
"""
    )
    with device.page() as page:
        for cls in ("guaranteed", "best-effort"):
            process = device.start(program, cls, memory=str(100 * MIB))
            assert line_of(process) == "(100, 100, 100)\n"
            assert line_of(process) == "[0, 0, 2, 0] (0, 100, 100)\n"
            assert line_of(process) == "(40, 100, 100)\n"
            assert tenant(page, process).memory_used == 60 * MIB
            assert tenant(page, process).memory_quota == 100 * MIB
            resume(process)
        # The device itself may have less.
        told = device.start(program, "best-effort", memory=str(4096 * MIB), fake_memory=str(90 * MIB))
        assert line_of(told) == "(90, 90, 90)\n"
        assert line_of(told) == "[0, 0, 2, 2] (10, 90, 90)\n"
        assert line_of(told) == "(50, 90, 90)\n"
        assert tenant(page, told).memory_used == 40 * MIB  # what the driver refused is not counted
        resume(told)


def test_every_way_to_allocate_counts_and_every_way_to_free(tmp_path: Path) -> None:
    device = Device(tmp_path)
    program = (
        INFO
        + """
pitch, pool, none = c.c_size_t(), c.c_void_p(), None
size = c.c_size_t(20 * MIB)
ways = {
    "alloc": lambda: cu.cuMemAlloc_v2(byref(at), size),
    "pitch": lambda: cu.cuMemAllocPitch_v2(byref(at), byref(pitch), c.c_size_t(20 * 1024), c.c_size_t(1024), 4),
    "managed": lambda: cu.cuMemAllocManaged(byref(at), size, 1),
    "async": lambda: cu.cuMemAllocAsync(byref(at), size, on),
    "pool": lambda: cu.cuMemAllocFromPoolAsync(byref(at), size, pool, on),
    "async ptsz": lambda: cu.cuMemAllocAsync_ptsz(byref(at), size, none),
    "pool ptsz": lambda: cu.cuMemAllocFromPoolAsync_ptsz(byref(at), size, pool, none),
}
frees = [
    lambda at: cu.cuMemFree_v2(at), lambda at: cu.cuMemFreeAsync(at, on), lambda at: cu.cuMemFreeAsync_ptsz(at, none)
]
for turn, (name, allocate) in enumerate(ways.items()):
    check(allocate())
    used = 50 - info()[0]
    over = check(cu.cuMemAlloc_v2(byref(c.c_uint64()), c.c_size_t(31 * MIB)), 0, 2)
    check(frees[turn % 3](at))
    check(cu.cuCtxSynchronize())
    say(name, used, over, 50 - info()[0])
"""
    )
    with device.page():
        told = device.run(program, "best-effort", memory=str(50 * MIB)).splitlines()
    assert told == [
        f"{name} 20 2 0" for name in ("alloc", "pitch", "managed", "async", "pool", "async ptsz", "pool ptsz")
    ]


def test_physical_memory_counts_until_it_is_neither_held_nor_mapped(tmp_path: Path) -> None:
    device = Device(tmp_path)
    program = (
        INFO
        + """
class Property(c.Structure):
    _fields_ = [(name, c.c_int) for name in ("type", "handles", "location", "id")] + [("more", c.c_char * 16)]
base, handle = c.c_uint64(), c.c_uint64()
size = c.c_size_t(20 * MIB)
on_device, on_host = Property(1, 0, 1, 0), Property(1, 0, 2, 0)
zero = c.c_uint64(0)
def used():
    return 50 - info()[0]
check(cu.cuMemAddressReserve(byref(base), c.c_size_t(100 * MIB), c.c_size_t(0), zero, zero))
check(cu.cuMemCreate(byref(handle), size, byref(on_device), zero))
steps = [used()]
check(cu.cuMemCreate(byref(c.c_uint64()), c.c_size_t(40 * MIB), byref(on_device), zero), 2)
check(cu.cuMemCreate(byref(c.c_uint64()), c.c_size_t(40 * MIB), byref(on_host), zero))
check(cu.cuMemMap(base, size, c.c_size_t(0), handle, zero))
check(cu.cuMemRelease(handle))
steps.append(used())
check(cu.cuMemUnmap(base, size))
steps.append(used())
check(cu.cuMemCreate(byref(handle), size, byref(on_device), zero))
check(cu.cuMemMap(base, size, c.c_size_t(0), handle, zero))
check(cu.cuMemUnmap(base, size))
steps.append(used())
check(cu.cuMemRelease(handle))
steps.append(used())
say(steps)
"""
    )
    with device.page():
        assert device.run(program, "best-effort", memory=str(50 * MIB)) == "[20, 20, 0, 20, 0]\n"
