"""Parts of the compiled policy that front ends call and Python does not: profiles, and how a kernel is launched."""

from __future__ import annotations

import ctypes
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from shoal.core import Unavailable
from shoal.device import native
from shoal.device.policy import Rules, Way, Ways


@dataclass(frozen=True, slots=True)
class Profile:
    """What is known of one (kernel, grid, block): means and mean deviations; 0 for never seen."""

    whole_ns: int = 0
    whole_dev_ns: int = 0
    slice_ns: int = 0
    slice_dev_ns: int = 0
    ticket_ns: int = 0
    ticket_whole_ns: int = 0
    slice_blocks: int = 0
    seen: int = 0
    wave_blocks: int = 0
    """How many of its blocks the device runs at once; 0: not known."""
    firsts: int = 0
    """Of each mean how many samples it began with, two bits each: whole, slice, ticket, whole by ticket."""


@dataclass(frozen=True, slots=True)
class Plan:
    way: Way
    blocks: int
    cost_ns: int
    violates: bool


def next_gap_ns(rules: Rules, estimate_ns: int, gap_ns: int) -> int:
    """The next estimate of a guaranteed tenant's p95 gap between launches, after one: 0 when the device had work."""
    return int(native.library().shoal_next_gap(rules.to_native(), estimate_ns, gap_ns))


def start_ns(rules: Rules, used_ns: int, weight: int, fair_ns: int) -> int:
    """What a best-effort tenant's fair clock is set to when it begins to wait."""
    return int(native.library().shoal_start(rules.to_native(), used_ns, weight, fair_ns))


def choose(profile: Profile, ways: Ways, *, blocks: int, bound_ns: int) -> Plan:
    """How to launch a best-effort kernel of `blocks` thread blocks so that its pieces stay under the bound."""
    found = native.library().shoal_choose(native.NativeProfile(**asdict(profile)), int(ways), blocks, bound_ns)
    return Plan(Way(found.way), found.blocks, found.cost_ns, bool(found.violates))


def learn(profile: Profile, way: Way, *, blocks: int, took_ns: int) -> Profile:
    """What is known after one more piece has run. By ticket, `blocks` 0 is the time from stop to end."""
    known = native.NativeProfile(**asdict(profile))
    native.library().shoal_learn(known, int(way), blocks, took_ns)
    return Profile(**{field.name: getattr(known, field.name) for field in fields(Profile)})


@dataclass(frozen=True, slots=True)
class Kernel:
    """`hash`: of code and name, see `hash_of`."""

    hash: int
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (1, 1, 1)

    def to_native(self) -> native.Key:
        return native.Key(self.hash, (native.u32 * 3)(*self.grid), (native.u32 * 3)(*self.block))


class Profiles:
    """Open for the life of the process. Raises Unavailable."""

    def __init__(self, path: Path) -> None:
        self._library = native.library()
        self._address = self._library.shoal_profiles_open(str(path).encode())
        if not self._address:
            text = self._library.shoal_page_error(ctypes.get_errno()).decode()
            raise Unavailable(f"the profiles cannot be used: {text}", where=str(path))

    def look(self, kernel: Kernel) -> Profile:
        found = native.NativeProfile()
        self._library.shoal_profiles_look(self._address, kernel.to_native(), found)
        return Profile(**{field.name: getattr(found, field.name) for field in fields(Profile)})

    def note(self, kernel: Kernel, way: Way, *, blocks: int, took_ns: int) -> None:
        """A piece has run. By ticket, `blocks` 0 is the time from stop to end."""
        self._library.shoal_profiles_note(self._address, kernel.to_native(), int(way), blocks, took_ns)


def hash_of(data: bytes, seed: int = 0) -> int:
    return int(native.library().shoal_hash(data, len(data), seed))
