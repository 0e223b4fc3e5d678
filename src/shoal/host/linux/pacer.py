"""The process `shoal-pace` (native/host/pace.cpp) and the page through which it is steered.

It keeps a real-time thread on each paced core that spins for all but R of every P, so that the work on that core gets R
out of P. Settings go through shared memory, so that a change costs no system call. The process ends with its parent,
stops pacing when the page is not renewed for a lease, and does not burn a core on which nothing runs.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from shoal.core import Unavailable
from shoal.host.linux.native import DIRECTORY

PERIOD_NS = 500_000
"""Shorter than a guaranteed step (about 1 ms), so that every step meets the same disturbance; long against a switch."""
LOST_NS = 10_000
"""What of each window goes to timer and switches where it was not calibrated (9 to 11 us in a Firecracker guest)."""
LEASE_S = 1.0
BINARY = "shoal-pace"
START_S = 2.0
_MAGIC, _VERSION = 0x53484F43, 1
_UNUSED = 0xFFFFFFFF


class State(IntEnum):
    STARTING = 0
    OFF = 1
    PACING = 2
    IDLE = 3
    LAPSED = 4
    FAILED = 5


class _Header(ctypes.Structure):
    _fields_ = (
        ("magic", ctypes.c_uint32),
        ("version", ctypes.c_uint32),
        ("slots", ctypes.c_uint32),
        ("owner", ctypes.c_int32),
        ("heartbeat_ns", ctypes.c_uint64),
        ("lease_ns", ctypes.c_uint64),
        ("stop", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32 * 7),
    )


class _Slot(ctypes.Structure):
    _fields_ = (
        ("cpu", ctypes.c_uint32),
        ("burn_when_idle", ctypes.c_uint32),
        ("window", ctypes.c_uint64),
        ("phase_ns", ctypes.c_uint64),
        ("reserved", ctypes.c_uint64 * 5),
        ("state", ctypes.c_uint32),
        ("error", ctypes.c_int32),
        ("periods", ctypes.c_uint64),
        ("given_ns", ctypes.c_uint64),
        ("burned_ns", ctypes.c_uint64),
        ("idle_ns", ctypes.c_uint64),
        ("late", ctypes.c_uint64),
        ("worst_late_ns", ctypes.c_uint64),
        ("reserved_out", ctypes.c_uint64),
    )


@dataclass(frozen=True, slots=True)
class CoreStatistics:
    """Since the pacer was started: time left to the work (`given_s`), burned, and not paced because nothing ran
    (`idle_s`); windows that ended over 0.1 ms late, and the worst."""

    state: State
    periods: int
    given_s: float
    burned_s: float
    idle_s: float
    late: int
    worst_late_s: float


def window(share: float, *, period_ns: int = PERIOD_NS, lost_ns: int = LOST_NS) -> tuple[int, int]:
    """(R, P) in nanoseconds such that the work gets `share` of the time, what each switch loses made up for; (0, 0)
    when that is no limit."""
    run_ns = round(share * period_ns) + lost_ns
    return (0, 0) if run_ns >= period_ns else (run_ns, period_ns)


class Pacer:
    """The process `shoal-pace` and its page. `set` may be called at any rate: it writes memory."""

    def __init__(
        self,
        *,
        directory: Path = DIRECTORY,
        lease_s: float = LEASE_S,
    ) -> None:
        self._binary = directory / BINARY
        count = os.cpu_count() or 1
        size = ctypes.sizeof(_Header) + count * ctypes.sizeof(_Slot)
        self._fd = os.memfd_create(
            "shoal-pace", os.MFD_CLOEXEC
        )  # in no file system: no write-back, nothing left behind
        os.ftruncate(self._fd, size)
        page = mmap.mmap(self._fd, size)
        self._header = _Header.from_buffer(page)
        self._slots = (_Slot * count).from_buffer(page, ctypes.sizeof(_Header))
        self._header.magic, self._header.version, self._header.slots = _MAGIC, _VERSION, count
        self._header.lease_ns = int(lease_s * 1e9)
        for slot in self._slots:
            slot.cpu = _UNUSED
        self._slot_of: dict[int, _Slot] = {}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def renew(self) -> None:
        """Keep the limits in force for another lease."""
        self._header.heartbeat_ns = time.monotonic_ns()

    def set(self, windows: Mapping[int, tuple[int, int]]) -> None:
        """Make these the windows (R, P in nanoseconds) of all cores; one that is not named, or has (0, 0), is let go.

        Windows of several cores are spread over the period, so that few are open at the same time. Raises Unavailable
        when a core cannot be paced; then none is.
        """
        self.renew()
        if any(period for _, period in windows.values()):
            self.start()
        for cpu, slot in self._slot_of.items():
            if cpu not in windows:
                slot.window = 0
        limited = sorted(cpu for cpu, (_, period) in windows.items() if period)
        for at, cpu in enumerate(limited):
            run_ns, period_ns = windows[cpu]
            slot = self._slot(cpu)
            slot.phase_ns = at * period_ns // len(limited)
            slot.window = run_ns << 32 | period_ns
        for cpu in set(windows) - set(limited):
            if cpu in self._slot_of:
                self._slot_of[cpu].window = 0
        self._verify(limited)

    def statistics(self) -> dict[int, CoreStatistics]:
        """Of every core that was ever paced."""
        return {
            cpu: CoreStatistics(
                State(slot.state), slot.periods, slot.given_ns / 1e9, slot.burned_ns / 1e9, slot.idle_ns / 1e9,
                slot.late, slot.worst_late_ns / 1e9,
            )
            for cpu, slot in sorted(self._slot_of.items())
        }  # fmt: skip

    def close(self) -> str:
        """End the process; every core is let go. It is started again by the next `set` that limits one. Returns what it
        had to complain about."""
        for slot in self._slot_of.values():
            slot.window = 0
        if self._process is None:
            return ""
        process, self._process = self._process, None
        process.terminate()
        try:
            return process.communicate(timeout=START_S)[1].decode().strip()
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return "it did not end when told to"

    def _slot(self, cpu: int) -> _Slot:
        slot = self._slot_of.get(cpu)
        if slot is None:
            if len(self._slot_of) == len(self._slots):
                raise Unavailable(f"CPU {cpu} cannot be paced: the page has room for {len(self._slots)} cores")
            slot = self._slot_of[cpu] = self._slots[len(self._slot_of)]
            slot.cpu = cpu
            if self._process is not None:
                self._process.send_signal(signal.SIGCONT)  # look at the page now; harmless if it is still starting
        return slot

    def start(self) -> None:
        """Start the process, if it does not run. It paces nothing before `set`. Raises Unavailable."""
        if self.alive:
            return
        for slot in self._slot_of.values():
            slot.state = State.STARTING
        self._header.owner = os.getpid()
        try:
            self._process = subprocess.Popen(
                [self._binary, f"/proc/self/fd/{self._fd}"],
                pass_fds=(self._fd,),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,  # an interrupt from the terminal is the parent's to handle
                cwd="/",
            )
        except OSError as problem:
            raise Unavailable(f"shoal-pace cannot be started: {problem.strerror}", where=str(self._binary)) from problem

    def _verify(self, limited: list[int]) -> None:
        until = time.monotonic() + START_S
        while any(self._slot_of[cpu].state == State.STARTING for cpu in limited):
            ended = self._process is None or self._process.poll() is not None
            if ended or time.monotonic() > until:
                said = self.close()
                raise Unavailable(f"shoal-pace ended at once: {said}" if ended else "shoal-pace does not get to run")
            time.sleep(0.0005)
        for cpu in limited:
            slot = self._slot_of[cpu]
            if slot.state == State.FAILED:
                code = slot.error
                self.close()
                raise Unavailable(f"CPU {cpu} cannot be paced: {os.strerror(code)}")


def calibrate(cpu: int, *, directory: Path = DIRECTORY) -> int:
    """Nanoseconds of a window that go to timer and switches, measured from inside on this CPU (30 ms, in which nothing
    else runs there); LOST_NS when it cannot be measured."""
    with suppress(OSError, subprocess.SubprocessError, ValueError, KeyError):
        ran = subprocess.run(
            [directory / BINARY, "--calibrate", str(cpu)], capture_output=True, timeout=START_S, check=True
        )
        lost = int(json.loads(ran.stdout)["lost_ns"])
        if 0 < lost < PERIOD_NS // 10:
            return lost
    return LOST_NS
