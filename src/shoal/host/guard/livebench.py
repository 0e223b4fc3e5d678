"""Policies against each other on this machine: a small input pipeline beside a neighbour that floods memory.

Both are processes of ours: *feed* copies fixed pieces of memory and times each, *flood* writes with streaming stores.
Before each window the flood is stopped for a moment, to see what the feed does alone. Whether the two cores share a
memory domain is measured before and after: where they do not there is next to no contention to guard against.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shoal.core import Unavailable
from shoal.host import native, topology
from shoal.host.guard.config import parse_config
from shoal.host.guard.daemon import Guard
from shoal.host.guard.live import LiveHost
from shoal.host.guard.loop import Tick
from shoal.host.ring import Reader, Ring
from shoal.host.types import Missing

ALONE_S = 0.5
_PIECE, _PIECES = 256 << 10, 16
"""A unit copies 4 MiB, in pieces too small for the library's own streaming stores."""
_FEED_BYTES, _FLOOD_BYTES = 128 << 20, 256 << 20
_READY_S = 20.0


@dataclass(frozen=True, slots=True)
class Measured:
    """One policy's window. `speed`, `p50` and `p99` are of the feed against alone, by its CPU time; `same_domain` is
    None if the cores' places changed meanwhile or could not be told; `guard_cpu` is CPUs that the guard kept busy."""

    policy: str
    speed: float
    p50: float
    p99: float
    units: int
    flood_bytes_per_s: float
    same_domain: bool | None
    guard_cpu: float
    seconds: float

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"simulated": False}


def choose_cpus() -> tuple[int, int]:
    """Two CPUs of one memory domain if there are, else any two. Raises Unavailable on a machine with one."""
    ours = os.sched_getaffinity(0)
    for home in topology.here().domains:
        near = sorted(home.cpus & ours)
        if len(near) > 1:
            return near[0], near[1]
    if len(ours) < 2:
        raise Unavailable("a neighbour needs a second CPU, and this process may run on one only")
    first, second, *_ = sorted(ours)
    return first, second


def measure(policies: Sequence[str], *, seconds: float = 5.0) -> Iterator[Measured]:
    """One window for each policy. Raises Unavailable where the native part is not built or a second CPU is missing."""
    if isinstance(found := native.load(), Missing):
        raise Unavailable(f"nothing here can flood memory: {found.reason}")
    cpus = choose_cpus()
    with tempfile.TemporaryDirectory(prefix="shoal-guard-bench-") as folder, _workers(Path(folder), cpus) as workers:
        for policy in policies:
            yield _window(policy, workers, cpus, Path(folder), seconds)


@dataclass(slots=True)
class _Workers:
    feed: subprocess.Popen[bytes]
    flood: subprocess.Popen[bytes]
    ring: Path
    moved: ctypes.c_uint64


def _window(policy: str, workers: _Workers, cpus: tuple[int, int], folder: Path, seconds: float) -> Measured:
    reader = Reader(workers.ring)
    try:
        workers.flood.send_signal(signal.SIGSTOP)
        time.sleep(0.05)
        reader.read()
        alone: list[float] = []
        until = time.monotonic() + ALONE_S
        while time.monotonic() < until:
            time.sleep(0.05)
            alone += [unit.cpu_s / unit.units for unit in reader.read()]
        before = topology.same_domain(*cpus)
        steps: list[float] = []
        busy, moved, began = _guarded(policy, workers, folder, seconds, reader, steps)
        lasted = time.monotonic() - began
        after = topology.same_domain(*cpus)
    finally:
        reader.close()
        with suppress(ProcessLookupError):
            workers.flood.send_signal(signal.SIGCONT)
    if not alone or not steps:
        raise Unavailable("the feed did no work: the machine is too busy to measure on")
    usual = sum(alone) / len(alone)
    ordered = sorted(steps)
    return Measured(
        policy, usual * len(steps) / sum(steps), ordered[len(ordered) // 2] / usual,
        ordered[int(0.99 * (len(ordered) - 1))] / usual, len(steps), moved / lasted,
        before if before == after else None, busy / lasted, lasted,
    )  # fmt: skip


def _guarded(
    policy: str, workers: _Workers, folder: Path, seconds: float, reader: Reader, steps: list[float]
) -> tuple[float, int, float]:
    """The guard's CPU seconds, what the flood moved, and when it began."""
    told = parse_config(
        {
            "policy": policy,
            "groups": [
                {"name": "feed", "class": "guaranteed", "pids": [workers.feed.pid], "ring": str(workers.ring)},
                {"name": "flood", "class": "best-effort", "pids": [workers.flood.pid]},
            ],
        }
    )
    machine = LiveHost(told, folder)
    try:

        def look(_tick: Tick) -> None:
            steps.extend(unit.cpu_s / unit.units for unit in reader.read())
            if time.monotonic() - began >= seconds:
                guard.stop()

        guard = Guard(told, machine, folder / f"{policy}.jsonl", on_tick=look)
        reader.read()
        began, busy, moved = time.monotonic(), time.process_time(), workers.moved.value
        workers.flood.send_signal(signal.SIGCONT)
        try:
            guard.run()
        finally:
            guard.close()
        return time.process_time() - busy, workers.moved.value - moved, began
    finally:
        machine.close()


@contextmanager
def _workers(folder: Path, cpus: tuple[int, int]) -> Iterator[_Workers]:
    ring, page = folder / "feed.ring", folder / "flood.page"
    page.write_bytes(b"\0" * mmap.PAGESIZE)
    with page.open("r+b") as file:
        shared = mmap.mmap(file.fileno(), mmap.PAGESIZE)
    moved = ctypes.c_uint64.from_buffer(shared)
    started: list[subprocess.Popen[bytes]] = []
    try:
        for role, cpu, path in (("feed", cpus[0], ring), ("flood", cpus[1], page)):
            started.append(_start(role, cpu, path))
        deadline = time.monotonic() + _READY_S
        while not (ring.exists() and moved.value):
            if any(one.poll() is not None for one in started) or time.monotonic() > deadline:
                raise Unavailable("the feed and the flood did not start", hint="is there 1 GiB of free memory?")
            time.sleep(0.02)
        yield _Workers(started[0], started[1], ring, moved)
    finally:
        for one in started:
            one.kill()
            one.wait()
            if one.stdin is not None:
                one.stdin.close()


def _start(role: str, cpu: int, path: Path) -> subprocess.Popen[bytes]:
    source = str(Path(__file__).parents[3])
    code = (
        "import sys; sys.path[:0] = [sys.argv[1]]; from shoal.host.guard import livebench; livebench.main(sys.argv[2:])"
    )
    return subprocess.Popen(
        [sys.executable, "-I", "-c", code, source, role, str(cpu), str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def main(arguments: list[str]) -> None:
    """The life of the feed or the flood; it ends when its parent does."""
    role, cpu, path = arguments
    os.sched_setaffinity(0, {int(cpu)})  # before there are threads: all of them stay there
    threading.Thread(target=_end_with_parent, daemon=True).start()
    found = native.load()
    assert not isinstance(found, Missing), "looked for by the parent"
    (_feed if role == "feed" else _flood)(found, path)


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def _feed(found: native.Native, path: str) -> None:
    source, target = native.Memory(found, _FEED_BYTES), native.Memory(found, _FEED_BYTES)
    assert source.address is not None
    assert target.address is not None
    ring, at = Ring(path), 0
    while True:
        for _ in range(_PIECES):
            ctypes.memmove(target.address + at, source.address + at, _PIECE)
            at = (at + _PIECE) % _FEED_BYTES
        ring.step()


def _flood(found: native.Native, path: str) -> None:
    memory = native.Memory(found, _FLOOD_BYTES)
    with Path(path).open("r+b") as file:
        shared = mmap.mmap(file.fileno(), mmap.PAGESIZE)
    moved = ctypes.c_uint64.from_buffer(shared)
    while True:
        found.run_kernel(native.Kernel.NT_STORE, memory, 3600.0, moved)
