"""By whichever name a program opens the driver, it goes through the gate, and so does everything in its process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.device.cuda.kit import FAKE, Device, line_of, needs_fake, resume, tenant

pytestmark = needs_fake

OPENS = """
import ctypes, sys
for name in sys.argv[1:]:
    cu = ctypes.CDLL(name)
PTX = ".version 8.0\\n.target sm_80\\n.address_size 64\\n.visible .entry nothing()\\n{ ret; }\\n"
def check(result):
    assert result == 0, result
device, context, module, function = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
check(cu.cuInit(0))
check(cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
check(cu.cuCtxSetCurrent(context))
check(cu.cuModuleLoadData(ctypes.byref(module), PTX.encode()))
check(cu.cuModuleGetFunction(ctypes.byref(function), module, b"nothing"))
for _ in range(3):
    check(cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None))
check(cu.cuCtxSynchronize())
files = {line.split()[-1] for line in open("/proc/self/maps") if "libcuda.so.1" in line}
print(len(files), flush=True)
sys.stdin.readline()
"""
NUMBER = "libcuda.so.1"
PATH = str(FAKE / NUMBER)


@pytest.mark.parametrize(
    "names", [(NUMBER,), ("libcuda.so",), (PATH,), (PATH, NUMBER), ("libcuda.so", NUMBER), (NUMBER, "libcuda.so", PATH)]
)
def test_a_program_that_opens_the_driver_by_this_name_is_at_the_gate(tmp_path: Path, names: tuple[str, ...]) -> None:
    device = Device(tmp_path)
    with device.page() as page:
        process = device.command([sys.executable, "-c", OPENS, *names], "guaranteed")
        assert line_of(process) == "2\n", "the shim, and the driver behind it"
        assert tenant(page, process).launches == 3
        resume(process)


def test_a_driver_under_a_name_of_its_version_and_another_library_that_begins_alike(tmp_path: Path) -> None:
    device = Device(tmp_path)
    for name in ("libcuda.so.580.1", "libcudart.so.1", "libcuda.sox"):
        (tmp_path / name).symlink_to(FAKE / NUMBER)
    with device.page() as page:
        for name, gated in (("libcuda.so.580.1", True), ("libcudart.so.1", False), ("libcuda.sox", False)):
            process = device.command([sys.executable, "-c", OPENS, str(tmp_path / name)], "guaranteed")
            assert line_of(process) == ("2\n" if gated else "1\n")
            assert (process.pid in [one.pid for one in page.occupants()]) is gated
            resume(process)


def test_a_program_without_a_seat_opens_what_it_names(tmp_path: Path) -> None:
    device = Device(tmp_path)
    environment = device.environment("guaranteed")
    del environment["SHOAL_DEVICE_PAGE"]
    plain = device.command([sys.executable, "-c", OPENS, PATH], None)
    assert line_of(plain) == "1\n"
    resume(plain)
    import subprocess

    told = subprocess.run(
        [sys.executable, "-c", OPENS, PATH], env=environment, input="\n", capture_output=True, text=True, check=True
    )
    assert told.stdout == "1\n"


def test_a_library_s_own_search_path_still_holds(tmp_path: Path) -> None:
    """`dlopen` looks along the path of the library that calls it."""
    import subprocess

    from tests.device.cuda.kit import compiler

    command = compiler()
    if command is None:
        pytest.skip("no compiler")
    (tmp_path / "hidden").mkdir()
    (tmp_path / "inner.cpp").write_text('extern "C" int answer() { return 42; }')
    (tmp_path / "outer.cpp").write_text(
        '#include <dlfcn.h>\nextern "C" int ask() { void* at = dlopen("libinner_of_test.so", RTLD_NOW); '
        'return at ? reinterpret_cast<int (*)()>(dlsym(at, "answer"))() : -1; }'
    )
    shared = [*command, "-shared", "-fPIC"]
    inner = tmp_path / "hidden/libinner_of_test.so"
    subprocess.run([*shared, "-o", inner, tmp_path / "inner.cpp"], check=True)
    runpath = f"-Wl,-rpath,{tmp_path / 'hidden'}"
    subprocess.run([*shared, "-o", tmp_path / "outer.so", tmp_path / "outer.cpp", runpath, "-ldl"], check=True)
    program = f"import ctypes; print(ctypes.CDLL({str(tmp_path / 'outer.so')!r}).ask())"
    environment = Device(tmp_path).environment("guaranteed")
    told = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert told.stdout == "42\n"
