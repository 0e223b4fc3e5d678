"""The file of kernel profiles: what it learns, that it stays small, and what a killed writer leaves."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shoal.core import Unavailable
from shoal.device import native
from shoal.device.policy import Way
from tests.device.launching import Kernel, Profile, Profiles, hash_of

pytestmark = pytest.mark.skipif(not native.capability().available, reason=native.capability().detail)

KERNEL = Kernel(hash_of(b"saxpy"), (128, 2, 1), (256, 1, 1))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "profiles"


def test_an_unknown_kernel_is_unknown(path: Path) -> None:
    assert Profiles(path).look(KERNEL) == Profile()


def test_what_one_process_learns_all_know_and_stays(path: Path) -> None:
    first, second = Profiles(path), Profiles(path)
    first.note(KERNEL, Way.WHOLE, blocks=256, took_ns=8000)
    assert second.look(KERNEL) == Profile(whole_ns=8000, whole_dev_ns=1000, seen=1, firsts=1)
    second.note(KERNEL, Way.WHOLE, blocks=256, took_ns=9000)
    assert Profiles(path).look(KERNEL) == Profile(whole_ns=8000, whole_dev_ns=1000, seen=2, firsts=2)
    for other in (
        Kernel(KERNEL.hash + 1, KERNEL.grid, KERNEL.block),
        Kernel(KERNEL.hash, (128, 1, 1), KERNEL.block),
        Kernel(KERNEL.hash, (128, 2, 2), KERNEL.block),
        Kernel(KERNEL.hash, KERNEL.grid, (256, 2, 1)),
        Kernel(KERNEL.hash, KERNEL.grid, (256, 1, 3)),
    ):
        assert first.look(other) == Profile()
    assert path.stat().st_mode & 0o777 == 0o660


def test_slices_and_tickets_are_known_apart(path: Path) -> None:
    profiles = Profiles(path)
    profiles.note(KERNEL, Way.SLICE, blocks=16, took_ns=4000)
    profiles.note(KERNEL, Way.SLICE, blocks=16, took_ns=6000)
    profiles.note(KERNEL, Way.TICKET, blocks=256, took_ns=160_000)
    profiles.note(KERNEL, Way.TICKET, blocks=0, took_ns=7000)
    assert profiles.look(KERNEL) == Profile(
        slice_ns=4000,
        slice_dev_ns=500,
        slice_blocks=16,
        ticket_ns=7000,
        ticket_whole_ns=160_000,
        seen=4,
        firsts=0b01_01_10_00,
    )
    profiles.note(KERNEL, Way.SLICE, blocks=32, took_ns=9000)
    found = profiles.look(KERNEL)
    assert (found.slice_ns, found.slice_blocks) == (9000, 32), "another size begins anew"


def test_the_mean_follows_what_changes(path: Path) -> None:
    profiles = Profiles(path)
    for _ in range(50):
        profiles.note(KERNEL, Way.WHOLE, blocks=1, took_ns=10_000)
    assert profiles.look(KERNEL).whole_ns == 10_000
    assert profiles.look(KERNEL).whole_dev_ns < 20
    for _ in range(60):
        profiles.note(KERNEL, Way.WHOLE, blocks=1, took_ns=1_000)
    assert profiles.look(KERNEL).whole_ns < 1100
    profiles.note(KERNEL, Way.WHOLE, blocks=1, took_ns=0)


def test_it_holds_a_few_thousand_and_forgets_what_was_not_seen_for_longest(path: Path) -> None:
    profiles = Profiles(path)
    size = None
    kept = Kernel(1)
    for number in range(20_000):
        profiles.note(Kernel(hash_of(str(number).encode())), Way.WHOLE, blocks=1, took_ns=number + 1)
        if number % 4 == 0:
            profiles.note(kept, Way.WHOLE, blocks=1, took_ns=5)
        size = size or path.stat().st_size
    assert path.stat().st_size == size < 1 << 20
    assert profiles.look(kept).seen == 5000
    known = [profiles.look(Kernel(hash_of(str(number).encode()))).whole_ns for number in range(20_000)]
    assert all(value in (0, number + 1) for number, value in enumerate(known))
    assert 3000 < sum(value > 0 for value in known) <= 4096
    assert sum(value > 0 for value in known[:10_000]) < 50
    assert sum(value > 0 for value in known[-2000:]) > 1900


WRITER = """
import os, sys, random
from pathlib import Path
from tests.device.launching import Kernel, Profiles
from shoal.device.policy import Way
profiles, rng = Profiles(Path(sys.argv[1])), random.Random(int(sys.argv[2]))
print("writes", flush=True)
while True:
    number = rng.randrange(20)
    profiles.note(Kernel(number), Way.WHOLE, blocks=1, took_ns=(number + 1) * 1000)
"""


def test_killed_writers_leave_nothing_broken(path: Path) -> None:
    rng = random.Random(3)
    writers = []
    for number in range(6):
        writers.append(subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(number)], stdout=subprocess.PIPE))
    for one in writers:
        assert one.stdout is not None
        one.stdout.readline()
    profiles = Profiles(path)
    for one in writers:
        time.sleep(rng.random() * 0.02)
        one.send_signal(signal.SIGKILL)
        one.communicate()
        for number in range(20):
            assert profiles.look(Kernel(number)).whole_ns in (0, (number + 1) * 1000)
    for number in range(20):
        before = profiles.look(Kernel(number)).seen
        profiles.note(Kernel(number), Way.WHOLE, blocks=1, took_ns=(number + 1) * 1000)
        assert profiles.look(Kernel(number)).seen >= before


def test_an_entry_whose_writer_was_killed_is_used_again_later(path: Path) -> None:
    profiles = Profiles(path)
    profiles.note(KERNEL, Way.WHOLE, blocks=1, took_ns=1000)
    data = bytearray(path.read_bytes())
    at = data.index(KERNEL.hash.to_bytes(8, "little")) - 16
    assert int.from_bytes(data[at : at + 4], "little") == 2

    def claim(second: int) -> None:
        with path.open("r+b") as file:
            file.seek(at)
            file.write((5).to_bytes(4, "little") + second.to_bytes(4, "little"))

    claim(int(time.time()) + 1)
    assert profiles.look(KERNEL) == Profile(), "somebody writes"
    profiles.note(KERNEL, Way.WHOLE, blocks=1, took_ns=3000)
    assert profiles.look(KERNEL).whole_ns in (0, 3000), "the sample is dropped, or kept elsewhere"
    claim(int(time.time()) - 10)
    for _ in range(9):  # other entries of the bucket are free, this one is the last to be taken
        profiles.note(KERNEL, Way.WHOLE, blocks=1, took_ns=4000)
    assert profiles.look(KERNEL).whole_ns > 2000


def test_foreign_files_are_refused(path: Path) -> None:
    path.write_bytes(b"x" * 100)
    with pytest.raises(Unavailable, match="not a page"):
        Profiles(path)
    with pytest.raises(Unavailable, match="No such file"):
        Profiles(path.parent / "none" / "profiles")
    path.unlink()
    Profiles(path)
    path.chmod(0o666)
    with pytest.raises(Unavailable, match="not be writable"):
        Profiles(path)


def test_hashes_spread() -> None:
    seen = {hash_of(bytes([a, b])) for a in range(50) for b in range(50)} | {hash_of(b"a" * n) for n in range(100)}
    assert len(seen) == 2600
    assert hash_of(b"kernel") != hash_of(b"kernel", seed=1)
    assert len({value % 512 for value in seen}) > 490
