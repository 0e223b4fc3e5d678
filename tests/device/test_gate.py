"""The gate, as front ends use it: in processes of their own, found by the environment."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.device import native
from shoal.device.page import Occupant, Page
from shoal.device.policy import Class, Rules, Verdict
from tests.device.kit import run, start, until

pytestmark = pytest.mark.skipif(not native.capability().available, reason=native.capability().detail)

WHY = "print(gate, lib.shoal_gate_why().decode())"
NEVER = 1 << 60


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "page"


@pytest.fixture
def page(path: Path) -> Iterator[Page]:
    with Page.create(path, device="GPU-1") as made:
        yield made


def only(page: Page, cls: Class) -> Occupant:
    (found,) = [one for one in page.occupants() if one.cls is cls]
    return found


def service(page: Page) -> int:
    """A guaranteed tenant that is this process."""
    slot = page.join(Class.GUARANTEED, name="web")
    page.struct.slot[slot].lanes = 1
    return slot


def test_without_a_page_launches_go_straight_through(path: Path) -> None:
    out, err = run(WHY, "", "guaranteed")
    assert out == "None SHOAL_DEVICE_PAGE is not set\n"
    assert err == ""
    out, err = run(WHY, path, "guaranteed")
    assert out == "None No such file or directory\n"
    assert err.count("launches are not gated") == 1


def test_what_is_wrong_is_said_once_and_launches_go_through(page: Page, path: Path, tmp_path: Path) -> None:
    out, err = run(WHY + "\nlib.shoal_gate_get()", path, "silver")
    assert "neither guaranteed nor best-effort" in out
    assert err.count("SHOAL_DEVICE_CLASS is silver") == 1
    foreign = tmp_path / "foreign"
    foreign.write_bytes(bytes(40000))
    log = tmp_path / "log"
    out, err = run(WHY, foreign, "guaranteed", log=str(log))
    assert "not a page" in out
    assert err == ""
    assert "launches are not gated" in log.read_text()
    for _ in range(64):
        page.join(Class.GUARANTEED)
    out, err = run(WHY, path, "guaranteed")
    assert "no free place" in out
    out, err = run(WHY, path, "best-effort", weight="-1", memory="20GiB")
    assert "SHOAL_DEVICE_WEIGHT is no number" in err
    assert "memory is not limited" in err


def test_a_process_shows_what_it_is(page: Page, path: Path) -> None:
    process = start(
        "print(gate is not None, flush=True); input()", path, "best-effort", weight="3", memory="500", name="train"
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "True\n"
    found = only(page, Class.BEST_EFFORT)
    assert (found.pid, found.name, found.weight, found.memory_quota) == (process.pid, "train", 3, 500)
    process.communicate("\n")
    assert page.occupants() == [], "one that ended leaves at once"


def test_launches_are_counted_by_lane(page: Page, path: Path) -> None:
    out, _ = run(
        """
lanes = [lib.shoal_gate_open_lane(gate) for _ in range(34)]
first = [lib.shoal_gate_submit(gate, lanes[0]) for _ in range(3)]
lib.shoal_gate_done(gate, lanes[0], 2)
second = lib.shoal_gate_submit(gate, lanes[1])
lib.shoal_gate_release(gate, lanes[1], second, 0)
lib.shoal_gate_close_lane(gate, lanes[0])
lib.shoal_gate_close_lane(gate, lanes[1])
print(lanes, first, second, [lib.shoal_gate_open_lane(gate) for _ in range(2)])
print(lib.shoal_gate_submit(gate, lanes[1]))
refused = lib.shoal_gate_submit(gate, lanes[2])
lib.shoal_gate_cancel(gate, lanes[2], refused)
sys.stdout.flush(); os._exit(0)
""",
        path,
        "guaranteed",
    )
    lines = out.splitlines()
    # The last lane is for all streams over the others; a lane that is not drained is not given out again.
    assert lines[0] == f"{[*range(31), 31, 31, 31]} [1, 2, 3] 1 [1, 31]"
    assert lines[1] == "2"
    slot = page.struct.slot[0]
    assert [(one.submitted, one.done) for one in slot.lane[:4]] == [(3, 2), (2, 1), (0, 0), (0, 0)]
    assert slot.lanes == 32
    assert slot.launches == 6


def test_best_effort_work_waits_until_guaranteed_work_is_quiet(page: Page, path: Path) -> None:
    page.set_rules(replace(Rules(), stuck_ns=NEVER))
    slot = page.struct.slot[service(page)]
    slot.lane[0].submitted, slot.last_active_ns = 1, native.library().shoal_device_now()
    process = start("print(lib.shoal_gate_acquire(gate, 0, 1000), flush=True); input()", path, "best-effort")
    until(lambda: any(one.waiting for one in page.occupants()), "it waits")
    until(lambda: only(page, Class.BEST_EFFORT).waited_ns[Verdict.WAIT_BUSY] > 1_000_000, "for guaranteed work")
    assert only(page, Class.BEST_EFFORT).pieces == 0
    slot.lane[0].done = 1
    assert process.stdout is not None
    assert process.stdout.readline() == "1\n"
    found = only(page, Class.BEST_EFFORT)
    assert (found.pieces, found.pending, found.waiting, found.outstanding_ns) == (1, 1, False, 1000)
    assert found.waited_ns[Verdict.WAIT_GRACE] > 0
    process.communicate("\n")


def test_a_killed_guaranteed_process_is_waited_for_no_more(page: Page, path: Path) -> None:
    page.set_rules(replace(Rules(), stuck_ns=NEVER))
    web = start("lib.shoal_gate_submit(gate, 0); print(1, flush=True); input()", path, "guaranteed")
    assert web.stdout is not None
    web.stdout.readline()
    train = start("print(lib.shoal_gate_acquire(gate, 0, 1000), flush=True)", path, "best-effort")
    until(lambda: any(one.waiting for one in page.occupants()), "it waits")
    web.send_signal(signal.SIGKILL)  # and stays a zombie: nobody has waited for it yet
    out, _ = train.communicate(timeout=60)
    assert out == "1\n"
    web.communicate()


def test_no_more_than_the_bound_is_outstanding(page: Page, path: Path) -> None:
    page.set_rules(replace(Rules(), idle_bound_ns=100_000))
    process = start(
        """
for cost in (40_000, 40_000, 20_000, 50_000):
    print(lib.shoal_gate_acquire(gate, 0, cost), flush=True)
lib.shoal_gate_release(gate, 0, 4, 0)
print(lib.shoal_gate_acquire(gate, 0, 900_000), flush=True)
lib.shoal_gate_release(gate, 0, 5, 600_000)
input()
""",
        path, "best-effort",
    )  # fmt: skip
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(3)] == ["1\n", "2\n", "3\n"]
    until(lambda: only(page, Class.BEST_EFFORT).waited_ns[Verdict.WAIT_BOUND] > 1_000_000, "the fourth waits")
    assert only(page, Class.BEST_EFFORT).outstanding_ns == 100_000
    page.struct.slot[0].lane[0].done = 1  # as the device would
    assert process.stdout.readline() == "4\n"
    assert process.stdout.readline() == "5\n"
    until(lambda: only(page, Class.BEST_EFFORT).outstanding_ns == 0, "all has ended")
    found = only(page, Class.BEST_EFFORT)
    assert (found.pending, found.pieces, found.violations) == (0, 5, 1)
    assert found.ran_ns == 150_000 + 600_000
    assert page.struct.slot[0].used_ns == 150_000 + 600_000
    process.communicate("\n")


def test_a_launch_that_the_driver_refused_is_taken_back(page: Page, path: Path) -> None:
    out, _ = run(
        """
first = lib.shoal_gate_acquire(gate, 0, 1000)
second = lib.shoal_gate_acquire(gate, 0, 2000)
lib.shoal_gate_cancel(gate, 0, second)
third = lib.shoal_gate_acquire(gate, 0, 4000)
lib.shoal_gate_cancel(gate, 0, first)
print(first, second, third, flush=True)
os._exit(0)
""",
        path,
        "best-effort",
    )
    assert out == "1 2 2\n"
    slot = page.struct.slot[0]
    assert (slot.outstanding_ns, slot.used_ns, slot.lane[0].submitted) == (4000, 4000, 2)


def test_the_longest_wait_passes_guaranteed_work_and_is_counted(page: Page, path: Path) -> None:
    page.set_rules(replace(Rules(), stuck_ns=NEVER, max_wait_ns=3_000_000))
    slot = page.struct.slot[service(page)]
    slot.lane[0].submitted = 1
    out, _ = run(
        """
for _ in range(3):
    lib.shoal_gate_release(gate, 0, lib.shoal_gate_acquire(gate, 0, 1000), 0)
print(lib.shoal_gate_bound(gate), flush=True); os._exit(0)
""",
        path,
        "best-effort",
    )
    assert out == "50000\n"
    assert page.struct.slot[1].shares == 3


def test_memory_is_limited_by_the_quota(page: Page, path: Path) -> None:
    program = """
free, total = native.u64(), native.u64()
told = lambda: (lib.shoal_gate_memory(gate, free, total), free.value, total.value)
tries = [lib.shoal_gate_allocate(gate, size) for size in (600, 500, 400, 1, 1 << 64 - 1)]
print(tries, told())
lib.shoal_gate_deallocate(gate, 1000); lib.shoal_gate_deallocate(gate, 9)
print(told(), lib.shoal_gate_allocate(gate, 1000))
"""
    out, _ = run(program, path, "best-effort", memory="1000")
    assert out == "[1, 0, 1, 0, 0] (1, 0, 1000)\n(1, 1000, 1000) 1\n"
    out, _ = run(program, path, "best-effort")
    assert out == "[1, 1, 1, 1, 1] (0, 0, 0)\n(0, 0, 0) 1\n"


def test_a_fork_has_a_place_of_its_own(page: Page, path: Path) -> None:
    out, _ = run(
        """
lane = lib.shoal_gate_open_lane(gate)
lib.shoal_gate_submit(gate, lane)
lib.shoal_gate_submit(gate, lane)
again = lib.shoal_gate_open_lane(gate)
if os.fork() == 0:
    child = lib.shoal_gate_get()
    numbers = lib.shoal_gate_submit(child, again), lib.shoal_gate_open_lane(child)
    print("child", child != gate, lib.shoal_gate_owner(child) & 0xffffffff == os.getpid(), *numbers, flush=True)
    os.kill(os.getpid(), 9)
os.wait()
print("parent", lib.shoal_gate_get() == gate, lib.shoal_gate_submit(gate, lane), flush=True)
os._exit(0)
""",
        path,
        "guaranteed",
    )
    assert out == "child True True 1 2\nparent True 3\n"
    assert [page.struct.slot[i].lane[0].submitted for i in (0, 1)] == [3, 0]
    assert page.reap() == 2


def test_one_whose_place_was_taken_starts_anew(page: Page, path: Path) -> None:
    for cls, launch in (("guaranteed", "submit(gate, 0)"), ("best-effort", "acquire(gate, 0, 1000)")):
        process = start(
            f"print(lib.shoal_gate_{launch}, flush=True); input(); print(lib.shoal_gate_{launch}, flush=True); input()",
            path, cls,
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "1\n"
        slot = page.occupants()[0].slot
        page.struct.slot[slot].owner += 1 << 32
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "1\n", "a lane of another slot"
        assert [one.slot for one in page.occupants()] == [slot + 1]
        process.communicate("\n")
        page.reap()
        page.struct.slot[slot].owner = 0


def test_many_threads_launch_on_many_streams(page: Page, path: Path) -> None:
    """Each on its own lane, and some on the shared one, whose launches their front end ends one by one."""
    program = """
counted = []
shared = threading.Lock()
def work(number):
    lane = lib.shoal_gate_open_lane(gate)
    for turn in range(300):
        if lane == native.LANES - 1:
            shared.acquire()
        sequence = %s
        lib.shoal_gate_release(gate, lane, sequence, 0)
        if lane == native.LANES - 1:
            shared.release()
    counted.append(lane)
threads = [threading.Thread(target=work, args=(i,)) for i in range(40)]
[one.start() for one in threads]; [one.join() for one in threads]
print(len(counted), flush=True)
os._exit(0)
"""
    for cls, launch in (
        ("guaranteed", "lib.shoal_gate_submit(gate, lane)"),
        ("best-effort", "lib.shoal_gate_acquire(gate, lane, 100 + number)"),
    ):
        out, _ = run(program % launch, path, cls)
        assert out == "40\n"
        slot = page.struct.slot[0]
        assert sum(one.submitted for one in slot.lane) == 40 * 300
        assert [one.submitted - one.done for one in slot.lane] == [0] * 32
        assert slot.launches == 40 * 300
        assert slot.outstanding_ns == 0
        if cls == "best-effort":
            assert slot.ran_ns == slot.used_ns == 300 * sum(100 + number for number in range(40))


def test_processes_share_the_bound_and_take_turns(page: Page, path: Path) -> None:
    """Two programs whose pieces never end by themselves: this test is the device, ends one at a time, and sees all."""
    page.set_rules(replace(Rules(), idle_bound_ns=0, bound_ns=0, quantum_ns=100_000, stuck_ns=NEVER))
    program = """
while True:
    lib.shoal_gate_acquire(gate, 0, 50_000)
"""
    programs = [start(program, path, "best-effort", weight=str(weight), name=str(weight)) for weight in (1, 3)]
    try:
        until(lambda: sum(one.waiting for one in page.occupants()) == 2, "one holds the device, both wait")
        went: list[str] = []
        while len(went) < 80:
            busy = [one for one in page.occupants() if one.pending]
            assert len(busy) <= 1, "a piece over the bound goes alone"
            if not busy:
                continue
            until(lambda: sum(one.waiting for one in page.occupants()) == 2, "both wait")
            went.append(busy[0].name)
            lane = page.struct.slot[busy[0].slot].lane[0]
            lane.done = lane.submitted
        had = {name: went.count(name) for name in ("1", "3")}
        assert abs(had["1"] - had["3"] / 3) * 50_000 <= 100_000 + 2 * 50_000, json.dumps(went)
    finally:
        for one in programs:
            os.kill(one.pid, signal.SIGKILL)
            one.communicate()


def test_alone_a_guaranteed_launch_leaves_its_time_and_its_count_only(page: Page, path: Path) -> None:
    out, _ = run(
        """
lane = lib.shoal_gate_open_lane(gate)
print(lib.shoal_gate_beside(gate), flush=True)
for _ in range(3):
    lib.shoal_gate_pass(gate)
os._exit(0)
""",
        path,
        "guaranteed",
    )
    assert out == "0\n"
    slot = page.struct.slot[0]
    assert (slot.launches, slot.lane[0].submitted) == (3, 0)
    assert slot.last_active_ns > 0


def test_whether_best_effort_work_is_beside_is_known_from_joining_to_the_end(page: Page, path: Path) -> None:
    header = page.struct.header
    process = start("print(1, flush=True); input()", path, "best-effort")
    assert process.stdout is not None
    process.stdout.readline()
    assert header.best_effort == 1 << page.occupants()[0].slot
    process.communicate("\n")
    assert header.best_effort == 0, "it ended"
    process = start("print(1, flush=True); input()", path, "best-effort")
    assert process.stdout is not None
    process.stdout.readline()
    process.kill()
    process.communicate()
    assert header.best_effort != 0
    page.reap()
    assert header.best_effort == 0, "its slot was freed"
    process = start(
        "input(); lib.shoal_gate_acquire(gate, 0, 1000); print(1, flush=True); input()", path, "best-effort"
    )
    until(lambda: bool(page.occupants()), "it has joined")
    header.best_effort = 0  # another took it for gone in that moment
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    process.stdout.readline()
    assert header.best_effort == 1 << page.occupants()[0].slot
    process.communicate("\n")


def test_a_collective_passes_guaranteed_work_and_counts_as_outstanding(page: Page, path: Path) -> None:
    page.set_rules(replace(Rules(), stuck_ns=NEVER))
    page.struct.slot[service(page)].lane[0].submitted = 1
    run("print(lib.shoal_gate_pass_piece(gate, 2, 7000), flush=True); os._exit(0)", path, "best-effort")
    slot = page.struct.slot[1]
    assert (slot.collectives, slot.pieces, slot.outstanding_ns, slot.lane[2].submitted) == (1, 1, 7000, 1)


def test_a_process_has_a_gate_at_each_device_whose_page_it_is_given(page: Page, path: Path, tmp_path: Path) -> None:
    program = """
gates = [lib.shoal_gate_of(name) for name in (b"GPU-1", b"GPU-2", b"GPU-3", b"other")]
print([gates.index(one) if one else None for one in gates], lib.shoal_gate_get() == gates[0])
"""
    with Page.create(tmp_path / "second", device="GPU-2") as second:
        out, _ = run(program, f"{path}:{tmp_path / 'second'}", "guaranteed")
        assert out == "[0, 1, None, None] True\n"
        assert run(program, path, "guaranteed")[0] == "[0, None, None, None] True\n"
        assert second.occupants() == []
    with Page.create(tmp_path / "named", device="n0-a100-0"):
        out, _ = run(program, tmp_path / "named", "guaranteed")
        assert out == "[0, 0, 0, 0] True\n", "it is not named by a UUID: it is that of every device"
