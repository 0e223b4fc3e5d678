"""Whether the ends of guaranteed launches are told: not at all while none waits for them, in batches otherwise, and
whenever the host looks at the stream."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.device.policy import Class
from tests.device.cuda.kit import Device, line_of, needs_fake, resume, tenant

pytestmark = needs_fake

# The first kernel holds the stream until all are launched.
BURST = """
s = setup()
on = {"own": stream(), "legacy": LEGACY, "thread": PER_THREAD}[sys.argv[2]]
flag = memory(4)
write(flag, bytes(4))
event = c.c_void_p()
check(cu.cuEventCreate(byref(event), 0))
host = c.create_string_buffer(4)
called = threading.Event()
CALLED = c.CFUNCTYPE(None, c.c_void_p)(lambda _: called.set())
looks = {
    "stream": lambda: check(cu.cuStreamSynchronize(on)),
    "context": lambda: check(cu.cuCtxSynchronize()),
    "event": lambda: check(cu.cuEventRecord(event, on)) or check(cu.cuEventSynchronize(event)),
    "copy": lambda: check(cu.cuMemcpyDtoH_v2(host, flag, c.c_size_t(4))) or check(cu.cuStreamSynchronize(on)),
    "copy behind": lambda: check(cu.cuMemcpyDtoHAsync_v2(host, flag, c.c_size_t(4), on)) or time.sleep(0.2),
    "callback": lambda: check(cu.cuLaunchHostFunc(on, CALLED, None)) or called.wait(),
    "query": lambda: [time.sleep(0.001) for _ in iter(lambda: cu.cuStreamQuery(on), 0)],
    "destroyed": lambda: check(cu.cuStreamDestroy_v2(on)) or check(cu.cuCtxSynchronize()),
}
look = looks[sys.argv[3]]
launch(s["wait"], 1, 1, flag, stream=on)
for _ in range(int(sys.argv[1])):
    launch(s["nothing"], 1, 1, stream=on)
if sys.argv[3] in ("stream", "context", "copy", "event", "destroyed"):
    threading.Timer(0.05, lambda: setattr(c.c_uint32.from_address(flag.value), "value", 1)).start()
else:
    c.c_uint32.from_address(flag.value).value = 1
look()
say("over")
sys.stdin.readline()
"""


def writes(device: Device) -> int:
    path = device.folder / "writes"
    count = len(path.read_text()) if path.exists() else 0
    path.unlink(missing_ok=True)
    return count


def burst(device: Device, count: int, where: str, look: str) -> object:
    process = device.start(BURST, "guaranteed", str(count), where, look, fake_writes=str(device.folder / "writes"))
    assert line_of(process) == "over\n"
    return process


def test_alone_a_guaranteed_process_marks_nothing(tmp_path: Path) -> None:
    device = Device(tmp_path)
    with device.page() as page:
        slot = page.join(Class.BEST_EFFORT)
        page.leave(slot)
        page.join(Class.GUARANTEED)
        process = burst(device, 99, "own", "stream")
        assert (tenant(page, process).launches, tenant(page, process).pending) == (100, 0)  # type: ignore[arg-type]
        assert page.struct.slot[tenant(page, process).slot].last_active_ns > 0  # type: ignore[arg-type]
        resume(process)  # type: ignore[arg-type]
    assert writes(device) == 0


def test_beside_best_effort_work_one_mark_is_for_many_launches(tmp_path: Path) -> None:
    device = Device(tmp_path)
    with device.page() as page:
        page.join(Class.BEST_EFFORT)
        process = burst(device, 99, "own", "stream")
        assert (tenant(page, process).launches, tenant(page, process).pending) == (100, 0)  # type: ignore[arg-type]
        resume(process)  # type: ignore[arg-type]
    assert writes(device) == 100 // 16 + 1, "one of sixteen, and what was left"


@pytest.mark.few(count=3)
@pytest.mark.parametrize(
    "look", ["stream", "context", "event", "copy", "copy behind", "callback", "query", "destroyed"]
)
def test_when_the_host_looks_nothing_is_left_pending(tmp_path: Path, look: str) -> None:
    device = Device(tmp_path)
    with device.page() as page:
        page.join(Class.BEST_EFFORT)
        for where in ("own", "legacy", "thread"):
            if look == "destroyed" and where != "own":
                continue
            process = burst(device, 7, where, look)
            assert (tenant(page, process).launches, tenant(page, process).pending) == (8, 0)  # type: ignore[arg-type]
            resume(process)  # type: ignore[arg-type]


def test_a_program_that_never_looks_is_marked_at_each_launch_soon(tmp_path: Path) -> None:
    device = Device(tmp_path)
    program = """
s = setup()
on, flag = stream(), memory(4)
for _ in range(4):
    write(flag, bytes(4))
    launch(s["wait"], 1, 1, flag, stream=on)
    for _ in range(3):
        launch(s["nothing"], 1, 1, stream=on)
    c.c_uint32.from_address(flag.value).value = 1
    time.sleep(0.05)
say("over")
sys.stdin.readline()
"""
    with device.page() as page:
        page.join(Class.BEST_EFFORT)
        process = device.start(program, "guaranteed")
        assert line_of(process) == "over\n"
        assert (tenant(page, process).launches, tenant(page, process).pending) == (16, 0)
        resume(process)


def test_what_was_launched_before_best_effort_work_came_is_over_for_it_and_what_follows_is_marked(
    tmp_path: Path,
) -> None:
    device = Device(tmp_path)
    program = """
s = setup()
on = stream()
for _ in range(20):
    launch(s["nothing"], 1, 1, stream=on)
    say("launched")
    sys.stdin.readline()
check(cu.cuCtxSynchronize())
"""
    with device.page() as page:
        process = device.start(program, "guaranteed", fake_writes=str(tmp_path / "writes"))
        assert process.stdin is not None
        for turn in range(20):
            assert line_of(process) == "launched\n"
            if turn == 9:
                assert (tenant(page, process).launches, tenant(page, process).pending) == (10, 0)
                assert writes(device) == 0
                page.join(Class.BEST_EFFORT)
            process.stdin.write("\n")
            process.stdin.flush()
        process.communicate(timeout=60)
    assert writes(device) > 0
