"""What the shim knows of kernels: keys that are the same in every process, handles that die, and first launches."""

from __future__ import annotations

import struct
from pathlib import Path

from tests.device.cuda.kit import Device, line_of, needs_fake, resume, tenant

pytestmark = needs_fake

# The runtime loads a fat binary by a wrapper of pointers.
WRAPPED = """
import struct
s = setup()
text = PTX.encode() + bytes(1)
binary = c.create_string_buffer(struct.pack("<IHHQ", 0xba55ed50, 1, 16, len(text)) + text)
junk = [c.create_string_buffer(os.urandom(64)) for _ in range(8)]
pointers = struct.pack("<IIQQ", 0x466243b1, 1, c.addressof(binary), c.addressof(junk[3]))
wrapper = c.create_string_buffer(pointers + os.urandom(64))
library, kernel = c.c_void_p(), c.c_void_p()
check(cu.cuLibraryLoadData(byref(library), wrapper, None, None, 0, None, None, 0))
check(cu.cuLibraryGetKernel(byref(kernel), library, b"nothing"))
for _ in range(4):
    launch(kernel, 1, 1)
    check(cu.cuCtxSynchronize())
"""


def entries(path: Path) -> list[tuple[int, int, int]]:
    """Of a file of profiles: hash, how often it was seen, and the mean time of the whole kernel."""
    data = path.read_bytes()
    words = [struct.unpack_from("<14Q", data, at) for at in range(64, len(data) - 111, 112)]
    return [(one[2], one[13] & 0xFFFFFF, one[7]) for one in words if one[1]]


def test_a_kernel_has_the_same_key_in_every_process(tmp_path: Path) -> None:
    device = Device(tmp_path)
    with device.page():
        for _ in range(3):
            device.run(WRAPPED, "best-effort", profile=str(tmp_path / "profile"), ways="whole")
    ((_, seen, _),) = entries(tmp_path / "profile")
    assert seen >= 3 * 2


def test_the_first_launch_in_a_process_is_not_timed(tmp_path: Path) -> None:
    device = Device(tmp_path)
    program = """
s = setup()
for _ in range(int(sys.argv[1])):
    launch(s["nothing_us50"], 1, 1)
    check(cu.cuCtxSynchronize())
"""
    with device.page():
        for count in ("1", "1", "1"):
            device.run(program, "best-effort", count, profile=str(tmp_path / "profile"), ways="whole")
        assert entries(tmp_path / "profile") == []
        device.run(program, "best-effort", "3", profile=str(tmp_path / "profile"), ways="whole")
    ((_, seen, _),) = entries(tmp_path / "profile")
    assert seen == 1, "of the second; the third has not been read"


UNLOADS = """
s = setup()
first, library, kernel = s["nothing"], c.c_void_p(), c.c_void_p()
only = kernels("blocks")
for turn in range(3):
    check(cu.cuLibraryLoadData(byref(library), only.encode(), None, None, 0, None, None, 0))
    check(cu.cuLibraryGetKernel(byref(kernel), library, b"blocks"))
    out = memory(8 * 64)
    launch(kernel, 64, 32, out)
    check(cu.cuCtxSynchronize())
    check(cu.cuLibraryUnload(library))
    module, function = c.c_void_p(), c.c_void_p()
    check(cu.cuModuleLoadData(byref(module), only.encode()))
    found = set()
    for name in (b"blocks", b"blocks__shoal_slice", b"blocks__shoal_ticket"):
        check(cu.cuModuleGetFunction(byref(function), module, name))
        found.add(function.value)
    assert kernel.value in found, "the handle was given out again"
    check(cu.cuModuleGetFunction(byref(function), module, b"blocks"))
    launch(function, 64, 32, out)
    check(cu.cuCtxSynchronize())
    check(cu.cuModuleUnload(module))
say("done")
"""


def test_a_handle_that_was_unloaded_may_become_one_of_another_kind(tmp_path: Path) -> None:
    device = Device(tmp_path)
    with device.page():
        for cls in (None, "guaranteed", "best-effort"):
            assert device.run(UNLOADS, cls) == "done\n"


def test_a_handle_of_unknown_origin_is_asked_nothing_and_goes_whole(tmp_path: Path) -> None:
    """Got past the shim, as by a private table of the driver's: the driver's own library is open in every process."""
    device = Device(tmp_path)
    program = """
driver = [line.split()[-1] for line in open("/proc/self/maps") if "fake/libcuda.so.1" in line][0]
s = setup()
library, kernel = c.c_void_p(), c.c_void_p()
libc = ctypes.CDLL(None)
libc.dlsym.restype = libc.dlmopen.restype = c.c_void_p
opened = libc.dlmopen(c.c_long(0), driver.encode(), 2)
get = ctypes.CFUNCTYPE(c.c_int, c.c_void_p, c.c_void_p, c.c_char_p)(
    libc.dlsym(c.c_void_p(opened), b"cuLibraryGetKernel"))
check(cu.cuLibraryLoadData(byref(library), PTX.encode(), None, None, 0, None, None, 0))
check(get(byref(kernel), library, b"blocks"))
out = memory(8 * 64)
launch(kernel, 64, 32, out)
check(cu.cuCtxSynchronize())
say(words(out, 64)[63])
"""
    with device.page():
        assert device.run(program, "best-effort") == "64000000064\n"
    assert [name for _, name, *_ in device.log()] == ["blocks"]


def test_kernels_with_and_without_variants_are_counted_and_the_trace_tells_how_each_went(tmp_path: Path) -> None:
    device = Device(tmp_path)
    program = """
s = setup(kernels("blocks_us100") + ".visible .entry plain()\\n{ ret; }\\n")
out = memory(8 * 64)
for _ in range(2):
    launch(s["blocks_us100"], 64, 32, out)
    launch(s["plain"], 1, 1)
check(cu.cuCtxSynchronize())
say("done")
sys.stdin.readline()
"""
    with device.page() as page:
        process = device.start(program, "best-effort", ways="slice", trace=str(tmp_path / "trace"))
        assert line_of(process) == "done\n"
        seen = tenant(page, process)
        assert (seen.kernels, seen.variants) == (2, 1)
        assert seen.pieces > seen.kernels
        assert 64 <= seen.parts <= seen.pieces - 2, "the first launch, in slices of one block; no plain one"
        resume(process)
    lines = [line.split() for line in (tmp_path / "trace").read_text().splitlines()]
    assert {int(pid) for pid, *_ in lines} == {process.pid}
    told = {(what, name) for _, what, name, *_ in lines}
    assert {("kernel", "blocks_us100"), ("kernel", "plain"), ("slice", "blocks_us100"), ("whole", "plain")} <= told
    assert [what for _, what, *_ in lines].count("image") == 1
