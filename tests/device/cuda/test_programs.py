"""Programs that know nothing of the shim do the same with it and without it, in either class."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from shoal.device.policy import Class
from tests.device.cuda.kit import HERE, PROGRAM, Device, finish, line_of, needs_fake, resume, tenant

pytestmark = needs_fake
CLASSES = ("guaranteed", "best-effort")


def test_a_program_linked_to_the_driver(tmp_path: Path) -> None:
    device = Device(tmp_path)
    plain = finish(device.command([str(PROGRAM)], None))
    ran = device.kernels()
    with device.page():
        for cls in CLASSES:
            device.forget()
            assert finish(device.command([str(PROGRAM)], cls, ways="whole")) == plain
            assert device.kernels() == ran
            assert finish(device.command([str(PROGRAM)], cls)) == plain
    assert plain.endswith("done\n")


@pytest.mark.parametrize("per_thread", ["0", "1"])
def test_a_program_in_python_that_looks_the_functions_up(tmp_path: Path, per_thread: str) -> None:
    pytest.importorskip("cuda.bindings.driver")
    device = Device(tmp_path)
    command = [sys.executable, str(HERE / "bindings_program.py"), per_thread]
    plain = finish(device.command(command, None))
    with device.page() as page:
        for cls in CLASSES:
            process = device.command(command, cls)
            assert "".join(iter(lambda one=process: line_of(one), "waits\n")) == plain.removesuffix("waits\n")
            seen = tenant(page, process)  # the gate has seen its launches
            assert seen.launches >= 11
            assert seen.cls == (Class.GUARANTEED if cls == "guaranteed" else Class.BEST_EFFORT)
            assert seen.pending == 0
            resume(process)


def test_without_a_page_the_shim_is_not_noticed(tmp_path: Path) -> None:
    device = Device(tmp_path)
    plain = finish(device.command([str(PROGRAM)], None))
    told = device.command([str(PROGRAM)], "best-effort").communicate(timeout=60)  # no page was made
    assert told[0] == plain
    assert "launches are not gated" in told[1]


def test_without_a_driver_the_program_is_told_that_there_is_no_device(tmp_path: Path) -> None:
    device = Device(tmp_path)
    environment = device.environment("guaranteed")
    environment["LD_LIBRARY_PATH"] = environment["LD_LIBRARY_PATH"].split(":")[0]
    environment["SHOAL_REAL_LIBCUDA"] = str(tmp_path / "absent")
    program = """
import ctypes
cu = ctypes.CDLL("libcuda.so.1")
function = ctypes.c_void_p()
print(cu.cuInit(0), cu.cuDeviceGetCount(None), cu.cuLaunchKernel(*[None] * 11),
      cu.cuGetProcAddress_v2(b"cuInit", ctypes.byref(function), 12000, ctypes.c_uint64(0), None))
"""
    told = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["100"] * 4


def test_where_the_device_cannot_write_to_the_page_the_driver_calls_back(tmp_path: Path) -> None:
    device = Device(tmp_path)
    program = """
s = setup()
y, x = floats(100), floats(100, 1.0)
for _ in range(20):
    launch(s["axpy"], 1, 128, y, x, c.c_float(1), c.c_uint32(100))
check(cu.cuCtxSynchronize())
say(sum((c.c_float * 100).from_buffer_copy(read(y, 400))))
sys.stdin.readline()
"""
    with device.page() as page:
        for missing in ("cuStreamWriteValue32", "cuMemHostRegister"):
            for cls in CLASSES:
                process = device.start(program, cls, fake_without=missing)
                assert float(line_of(process)) == 2000
                assert (tenant(page, process).launches, tenant(page, process).pending) == (20, 0)
                resume(process)


def test_more_streams_than_lanes_and_streams_that_come_and_go(tmp_path: Path) -> None:
    device = Device(tmp_path)
    program = """
s = setup()
ys = [(floats(64), stream(i % 2)) for i in range(40)]
x = floats(64, 1.0)
check(cu.cuCtxSynchronize())
for _ in range(3):
    for y, on in ys:
        launch(s["axpy_us20"], 1, 64, y, x, c.c_float(1), c.c_uint32(64), stream=on)
for y, on in ys[:20]:
    check(cu.cuStreamDestroy_v2(on))
for _ in range(50):
    on = stream()
    launch(s["axpy"], 1, 64, ys[0][0], x, c.c_float(1), c.c_uint32(64), stream=on)
    check(cu.cuStreamSynchronize(on))
    check(cu.cuStreamDestroy_v2(on))
check(cu.cuCtxSynchronize())
say([sum((c.c_float * 64).from_buffer_copy(read(y, 256))) / 64 for y, _ in ys])
sys.stdin.readline()
"""
    with device.page() as page:
        for cls in CLASSES:
            process = device.start(program, cls)
            assert line_of(process) == f"{[53.0] + [3.0] * 39}\n"
            seen = tenant(page, process)
            assert (seen.launches, seen.pending) == (170, 0)
            resume(process)


def test_threads_on_one_stream_and_on_default_streams_of_their_own(tmp_path: Path) -> None:
    device = Device(tmp_path)
    program = """
s = setup()
x = floats(64, 1.0)
shared, on = floats(64), stream()
own = [floats(64) for _ in range(6)]
check(cu.cuCtxSynchronize())
def work(y):
    check(cu.cuCtxSetCurrent(s.context))
    for _ in range(50):
        launch(s["axpy"], 1, 64, shared, x, c.c_float(1), c.c_uint32(64), stream=on)
        launch(s["axpy"], 1, 64, y, x, c.c_float(1), c.c_uint32(64), how=cu.cuLaunchKernel_ptsz)
        launch(s["axpy"], 1, 64, y, x, c.c_float(1), c.c_uint32(64), stream=PER_THREAD)
    check(cu.cuStreamSynchronize(PER_THREAD))
threads = [threading.Thread(target=work, args=[y]) for y in own]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
check(cu.cuCtxSynchronize())
say([(c.c_float * 1).from_buffer_copy(read(y, 4))[0] for y in [shared, *own]])
sys.stdin.readline()
"""
    with device.page() as page:
        for cls in CLASSES:
            process = device.start(program, cls)
            assert line_of(process) == f"{[300.0] + [100.0] * 6}\n"
            seen = tenant(page, process)
            assert (seen.launches, seen.pending) == (900, 0)
            resume(process)


def test_a_child_has_a_place_of_its_own_and_a_child_of_a_process_that_used_cuda_gets_the_driver_s_error(
    tmp_path: Path,
) -> None:
    device = Device(tmp_path)
    program = """
if sys.argv[1] == "after":
    s = setup()
    launch(s["nothing"], 1, 1)
    check(cu.cuCtxSynchronize())
child = os.fork()
if child == 0:
    if sys.argv[1] == "after":
        say("child", cu.cuInit(0), cu.cuMemAlloc_v2(byref(c.c_uint64()), c.c_size_t(0)))
    else:
        s = setup()
        for _ in range(3):
            launch(s["nothing"], 1, 1)
        check(cu.cuCtxSynchronize())
        say("child", os.getpid())
        time.sleep(0.2)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
s = setup()
launch(s["nothing"], 1, 1)
check(cu.cuCtxSynchronize())
say("parent")
"""
    with device.page() as page:
        for cls in CLASSES:
            assert device.run(program, cls, "after") == "child 3 1\nparent\n"
            process = device.start(program, cls, "before")
            child = int(line_of(process).split()[1])
            assert child != process.pid
            seen = {one.pid: one.launches for one in page.occupants()}
            assert seen.get(child, 3) == 3
            finish(process)
            assert device.kernels(child) == ["nothing"] * 3


def test_a_context_that_is_destroyed_leaves_nothing_pending(tmp_path: Path) -> None:
    device = Device(tmp_path)
    program = """
s = setup()
for how in range(4):
    made = c.c_void_p()
    check(cu.cuCtxCreate_v2(byref(made), 0, s.device))
    at = memory(1 << 20)
    on = stream()
    for _ in range(5):
        launch(s["nothing"], 1, 1, stream=on)
        launch(s["nothing"], 1, 1)
    check(cu.cuCtxDestroy_v2(made))
check(cu.cuCtxSetCurrent(s.context))
launch(s["nothing"], 1, 1)
check(cu.cuCtxSynchronize())
check(cu.cuDevicePrimaryCtxReset_v2(s.device))
say("done")
sys.stdin.readline()
"""
    with device.page() as page:
        process = device.start(program, "guaranteed", memory=str(3 << 20))
        assert line_of(process) == "done\n"
        seen = tenant(page, process)
        assert (seen.launches, seen.pending, seen.memory_used) == (41, 0, 0)
        resume(process)
