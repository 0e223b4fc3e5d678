"""Counters as perf_event_open gives them."""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.host.fake.model import CLOCK_HZ
from tests.host.fake.trees import refuse

if TYPE_CHECKING:
    from tests.host.fake.host import FakeHost

IMC, CHA, UMC = 12, 20, 30


@dataclass
class Uncore:
    """One counter of a memory controller, of all last-level caches of its socket."""

    type: int
    config: int
    value: float = 0.0

    def advance(self, host: FakeHost, dt: float) -> None:
        event, umask = self.config & 0xFF, self.config >> 8 & 0xFF
        lines = sum(host.bandwidth.values()) * dt / 64
        if self.type == IMC and event == 0x04:
            self.value += lines * (0.75 if umask == 0x03 else 0.25)
        elif self.type == UMC and event == 0x0A:
            self.value += lines
        elif self.type == CHA and event == 0xA5:
            self.value += max(host.saturation.values()) * CLOCK_HZ * dt
        elif event == 0x00:
            self.value += CLOCK_HZ * dt


@dataclass
class Counter:
    leader: int
    opened_at: float
    uncore: Uncore
    followers: list[int] = field(default_factory=list)


class FakePerf:
    """`multiplexed` is the part of the time in which counters are on the hardware."""

    def __init__(self, host: FakeHost, *, multiplexed: float) -> None:
        self._host, self._multiplexed = host, multiplexed
        self.open: dict[int, Counter] = {}
        self._next = 100

    def perf_open(self, attr: bytes, cpu: int, leader: int) -> int:
        kind, size, config = struct.unpack_from("<IIQ", attr)
        assert size == len(attr) == 112
        host = self._host
        if kind not in host.pmu_cpus:
            raise refuse(errno.ENOENT)
        if cpu not in host.pmu_cpus[kind]:
            raise refuse(errno.EINVAL)
        uncore = Uncore(kind, config)
        host.uncore.append(uncore)
        counter = Counter(leader, host.now, uncore)
        self._next += 1
        self.open[self._next] = counter
        if leader >= 0:
            self.open[leader].followers.append(self._next)
        return self._next

    def read_fd(self, fd: int) -> bytes:
        leader = self.open[fd]
        enabled = int((self._host.now - leader.opened_at) * 1e9)
        counters = [leader, *(self.open[one] for one in leader.followers)]
        values = [int(one.uncore.value * self._multiplexed) for one in counters]
        return struct.pack(f"<{3 + len(values)}Q", len(values), enabled, int(enabled * self._multiplexed), *values)

    def close(self, fd: int) -> None:
        self._host.uncore.remove(self.open.pop(fd).uncore)
