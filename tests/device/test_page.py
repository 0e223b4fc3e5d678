"""The shared page: who may use which file, joining and leaving, processes that are gone, and `kill -9` anywhere."""

from __future__ import annotations

import os
import random
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.core import Unavailable
from shoal.device import native
from shoal.device.page import Page
from shoal.device.policy import Class, Rules, Verdict, decide
from tests.device.kit import PRELUDE, environment, until

pytestmark = pytest.mark.skipif(not native.capability().available, reason=native.capability().detail)

SILENT_NS = 600 * 10**9


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "page"


@pytest.fixture
def page(path: Path) -> Iterator[Page]:
    with Page.create(path, device="GPU-1", memory_total=80 << 30) as made:
        yield made


def test_the_page_that_is_there_is_opened_with_its_rules(page: Page, path: Path) -> None:
    page.set_rules(Rules(bound_ns=7))
    with Page.create(path, device="another", rules=Rules(bound_ns=9)) as again, Page.open(path) as third:
        assert again.device == third.device == "GPU-1"
        assert third.memory_total == 80 << 30
        assert again.rules() == third.rules() == Rules(bound_ns=7)
        assert third.occupants() == []
    assert path.stat().st_mode & 0o777 == 0o660
    assert [one.name for one in path.parent.iterdir()] == ["page"]


def test_rules_whose_writer_was_killed_are_the_ones_from_before(page: Page) -> None:
    page.set_rules(Rules(bound_ns=7))
    page.struct.header.rules_epoch += 1
    page.struct.header.rules.bound_ns = 8
    assert page.rules() == Rules(), "a reader that saw none before takes the usual ones"
    page.set_rules(Rules(bound_ns=9))
    assert page.struct.header.rules_epoch % 2 == 0
    assert page.rules() == Rules(bound_ns=9)


def refusal(path: Path) -> str:
    with pytest.raises(Unavailable) as raised:
        Page.open(path)
    assert str(path) in str(raised.value)
    return raised.value.what


def test_files_that_are_no_pages_are_refused(page: Page, path: Path, tmp_path: Path) -> None:
    assert "No such file" in refusal(tmp_path / "none")
    foreign = tmp_path / "foreign"
    foreign.write_bytes(b"x" * 33024)
    assert "not a page" in refusal(foreign)
    foreign.write_bytes(path.read_bytes()[:-1])
    assert "not a page" in refusal(foreign)
    foreign.write_bytes(b"")
    assert "not a page" in refusal(foreign)
    for other in (page.struct.header.version - 1, page.struct.header.version + 1):
        another = bytearray(path.read_bytes())
        struct.pack_into("<I", another, 4, other)
        foreign.write_bytes(another)
        assert "another version" in refusal(foreign)
    link = tmp_path / "link"
    link.symlink_to(path)
    assert "link" in refusal(link)
    assert "directory" in refusal(tmp_path)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    assert "not a page" in refusal(fifo)


def test_files_that_others_could_cut_short_are_refused(page: Page, path: Path) -> None:
    path.chmod(0o666)
    assert "not be writable by others" in refusal(path)
    path.chmod(0o660)
    Page.open(path).close()
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(path, 12345, -1)
    assert "must belong" in refusal(path)
    os.chown(path.parent, 12345, -1)
    Page.open(path).close()
    path.parent.chmod(0o777)
    assert "must belong" in refusal(path)


def test_joining_leaving_and_a_full_page(page: Page) -> None:
    first = page.join(Class.GUARANTEED, name="web" * 99, memory_quota=5)
    others = [page.join(Class.BEST_EFFORT, weight=index) for index in range(1, 64)]
    assert sorted([first, *others]) == list(range(64))
    with pytest.raises(Unavailable, match="64 processes"):
        page.join(Class.GUARANTEED)
    (web,) = [one for one in page.occupants() if one.cls is Class.GUARANTEED]
    assert (web.pid, web.name, web.memory_quota) == (os.getpid(), ("web" * 99)[:47], 5)
    page.struct.slot[9].used_ns = page.struct.slot[9].lane[3].submitted = 77
    page.leave(9)
    assert page.snapshot()[9].cls is Class.FREE
    assert page.join(Class.GUARANTEED) == 9
    again = page.struct.slot[9]
    assert (again.used_ns, again.lane[3].submitted, again.cls, again.owner >> 32) == (0, 0, 1, 3)


class Processes:
    """A kernel made of words."""

    def __init__(self) -> None:
        self.alive: set[int] = set()
        self.asked = 0

    def running(self, process: native.Process) -> bool:
        self.asked += 1
        return process.pid in self.alive

    def start(self, page: Page, pid: int, now: int = 0, cls: Class = Class.BEST_EFFORT) -> int:
        self.alive.add(pid)
        return page.join(cls, process=native.Process(pid, 1, 1), now_ns=now)


@pytest.fixture
def kernel() -> Processes:
    return Processes()


@pytest.fixture
def simulated(path: Path, kernel: Processes) -> Iterator[Page]:
    Page.create(path, device="simulated").close()
    with Page.open(path, running=kernel.running) as made:
        yield made


def test_processes_that_are_gone_do_not_count_and_make_room(simulated: Page, kernel: Processes) -> None:
    for pid in range(1, 65):
        kernel.start(simulated, pid)
    kernel.alive -= {5, 6}
    now = 10**12
    assert [one.cls for one in simulated.snapshot(now)].count(Class.FREE) == 2
    assert kernel.start(simulated, 70) == 4
    assert simulated.reap() == 1
    assert simulated.reap() == 0
    assert kernel.start(simulated, 71) == 5


def test_a_process_is_asked_for_every_ten_milliseconds(simulated: Page, kernel: Processes) -> None:
    slot = kernel.start(simulated, 1)
    now = 10**12
    kernel.asked = 0
    for later in (0, 1, 9_999_999):
        assert simulated.snapshot(now + later)[slot].cls is Class.BEST_EFFORT
    assert kernel.asked == 1
    kernel.alive.clear()
    assert simulated.snapshot(now + 10_000_000)[slot].cls is Class.FREE
    assert kernel.asked == 2
    simulated.snapshot(now + 90_000_000)
    assert kernel.asked == 2, "who is gone stays gone"
    assert kernel.start(simulated, 2) == slot
    assert simulated.snapshot(now + 90_000_000)[slot].cls is Class.BEST_EFFORT


def test_one_that_died_while_it_joined_holds_no_place(simulated: Page, kernel: Processes) -> None:
    slot = kernel.start(simulated, 1)
    simulated.struct.slot[slot].ready = 0
    assert simulated.snapshot(10**12)[slot].cls is Class.FREE
    assert simulated.reap() == 0, "it may still be at it"
    kernel.alive.clear()
    assert simulated.reap() == 1
    assert kernel.start(simulated, 2) == slot


def test_progress_is_what_one_sees(simulated: Page, kernel: Processes) -> None:
    slot = kernel.start(simulated, 1, cls=Class.GUARANTEED)
    service = simulated.struct.slot[slot]
    service.lanes = 2
    now = 10**12
    service.lane[1].submitted = 3
    service.last_active_ns = service.progress_ns = now - 5
    assert simulated.snapshot(now)[slot].progress_ns == now, "not seen before: it may have moved just now"
    assert simulated.snapshot(now + 100)[slot].progress_ns == now
    service.lane[1].done = 2
    seen = simulated.snapshot(now + 200)[slot]
    assert (seen.pending, seen.progress_ns, seen.last_active_ns) == (1, now + 200, now + 200)
    service.lane[1].done = 3
    seen = simulated.snapshot(now + 300)[slot]
    assert (seen.pending, seen.last_active_ns) == (0, now + 300)
    service.lane[0].submitted, service.lane[0].done = 0, 0xFFFFFFFF
    assert simulated.snapshot(now + 400)[slot].pending == 1, "sequences wrap"
    service.lane[0].submitted, service.lane[0].done = 0, 1
    assert simulated.snapshot(now + 400)[slot].pending == 0, "never ahead of what was submitted"
    service.lane[7].submitted = 5
    assert simulated.snapshot(now + 500)[slot].pending == 0, "only lanes in use"


def test_a_process_of_another_pid_namespace_is_judged_by_its_progress(path: Path) -> None:
    with Page.create(path, device="GPU-1") as page:
        now = 10**15
        slot = page.join(Class.GUARANTEED, process=native.Process(999_999_999, 1, 77), now_ns=now)
        own = page.join(Class.BEST_EFFORT, now_ns=now)
        page.struct.slot[slot].lanes = 1
        page.struct.slot[slot].lane[0].submitted = 1

        def verdict(at: int) -> Verdict:
            return decide(Rules(), page.snapshot(at), own, cost_ns=1, since_ns=at, now_ns=at).verdict

        assert verdict(now) is Verdict.WAIT_BUSY
        assert verdict(now + Rules().stuck_ns - 1) is Verdict.WAIT_BUSY
        assert verdict(now + Rules().stuck_ns) is Verdict.GO, "gone or stuck: no difference"
        assert page.reap() == 0, "it cannot be asked for"
        for _ in range(62):
            page.join(Class.BEST_EFFORT, now_ns=now)
        with pytest.raises(Unavailable):
            page.join(Class.BEST_EFFORT, now_ns=now + SILENT_NS - 1)
        assert page.join(Class.BEST_EFFORT, now_ns=now + SILENT_NS) == slot


def test_the_kernel_knows_the_dead_the_recycled_and_zombies() -> None:
    library = native.library()
    own = native.Process()
    library.shoal_this_process(own)
    assert own.pid == os.getpid()
    assert own.start_time > 0
    assert library.shoal_is_running(own)
    assert not library.shoal_is_running(native.Process(own.pid, own.start_time + 1, own.pid_space)), "recycled"
    assert library.shoal_is_running(native.Process(own.pid, 0, own.pid_space))
    child = subprocess.Popen(["/bin/true"])
    zombie = native.Process(child.pid, 0, own.pid_space)
    until(lambda: not library.shoal_is_running(zombie), "a zombie does not run")
    child.wait()
    assert not library.shoal_is_running(zombie)
    assert library.shoal_is_running(native.Process(child.pid, 0, own.pid_space + 1))


CHILD = """
import random
rng = random.Random(int(sys.argv[1]))
if os.environ["SHOAL_DEVICE_CLASS"] == "guaranteed":
    lane = lib.shoal_gate_open_lane(gate)
    print("joined", flush=True)
    while True:
        for _ in range(rng.randrange(1, 200)):
            sequence = lib.shoal_gate_submit(gate, lane)
            if rng.random() < 0.9:
                lib.shoal_gate_done(gate, lane, sequence)
        lib.shoal_gate_done(gate, lane, sequence)
        time.sleep(rng.random() * 0.003)
else:
    print("joined", flush=True)
    while True:
        lane = lib.shoal_gate_open_lane(gate)
        for _ in range(50):
            sequence = lib.shoal_gate_acquire(gate, lane, rng.randrange(1, 100_000))
            lib.shoal_gate_release(gate, lane, sequence, 0)
        lib.shoal_gate_close_lane(gate, lane)
"""


def test_kill_9_anywhere_leaves_a_page_that_others_use(path: Path) -> None:
    """Real processes of both classes, killed at random moments while others join: in the end no place is lost, and the
    one that is left gets the device."""
    rng = random.Random(7)
    rules = replace(Rules(), max_wait_ns=5_000_000)
    with Page.create(path, device="GPU-1", rules=rules) as page:
        alive: list[subprocess.Popen[bytes]] = []
        try:
            for number in range(24):
                cls = "guaranteed" if number % 3 == 0 else "best-effort"
                alive.append(subprocess.Popen(
                    [sys.executable, "-c", PRELUDE + CHILD, str(number)],
                    env=environment(path, cls), stdout=subprocess.PIPE,
                ))  # fmt: skip
                if len(alive) >= 5:
                    victim = alive.pop(rng.randrange(len(alive)))
                    if rng.random() < 0.8:  # the others are killed while they start or join
                        assert victim.stdout is not None
                        victim.stdout.readline()
                    victim.send_signal(signal.SIGKILL)
                    victim.wait()
                    victim.stdout and victim.stdout.close()
            survivor = alive[-1]
            assert survivor.stdout is not None
            assert survivor.stdout.readline() == b"joined\n"
            for one in alive[:-1]:
                one.kill()
                one.wait()
            page.reap()
            until(lambda: len(page.occupants()) == 1, "the dead leave")
            (left,) = page.occupants()
            assert left.pid == survivor.pid
            until(lambda: page.occupants()[0].pieces > left.pieces + 100, "the one that is left goes on")
        finally:
            for one in alive:
                one.kill()
                one.wait()
                one.stdout and one.stdout.close()
        assert page.reap() == 1
        assert page.struct.header.top <= 12
        joined = [page.join(Class.BEST_EFFORT) for _ in range(64)]
        assert sorted(joined) == list(range(64)), "no place is lost"


def test_work_that_the_device_has_ended_counts_no_more_although_its_process_idles(page: Page) -> None:
    slot = page.struct.slot[page.join(Class.BEST_EFFORT)]
    slot.lanes, slot.outstanding_ns, slot.running_ns = 1, 5_000, 2_000
    slot.lane[0].submitted = 2
    assert [(one.outstanding_ns, one.running_ns) for one in page.snapshot()] == [(5_000, 2_000)]
    slot.lane[0].done = 1
    assert page.snapshot()[0].outstanding_ns == 5_000
    slot.lane[0].done = 2
    assert [(one.outstanding_ns, one.running_ns) for one in page.snapshot()] == [(0, 0)]


def test_a_claim_counts_until_its_process_was_stopped_for_long(page: Page) -> None:
    slot = page.struct.slot[page.join(Class.BEST_EFFORT, now_ns=10**9)]
    slot.claim_ns = 7_000
    for later, counts in ((-1, 7_000), (0, 7_000), (49_999_999, 7_000), (50_000_000, 0)):
        assert page.snapshot(10**9 + later)[0].outstanding_ns == counts
    slot.lanes, slot.outstanding_ns, slot.lane[0].submitted = 1, 2_000, 1
    assert page.snapshot(10**9)[0].outstanding_ns == 9_000
