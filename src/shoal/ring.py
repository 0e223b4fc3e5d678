"""Steps of work, told by the program that does them through a small file: two looks at the clock, no dependency.

    from shoal.ring import Ring

    ring = Ring.from_environment()      # writes nothing unless SHOAL_RING names a file or directory
    for batch in loader:
        train(batch)
        ring.step()                     # one unit of work since the last call

One process writes a ring, anyone reads it (`shoal.host` to guard the program's speed). It stands below everything else,
as both the training hooks and the components write it. Layout (little-endian), version 1:

    header, 64 bytes   8 magic, u32 version, u32 slots, u32 pid, u32 unused, u64 count of slots ever written,
                       and of all those: u64 end of the last, u64 wall, u64 cpu (sums), u32 units (modulo 2^32), u32
                       CRC-32 from the count to here; a writer that keeps no such sums leaves zeros
    slots, 40 bytes    u64 number (from 1), u64 end, u64 wall, u64 cpu (nanoseconds; end on the monotonic clock),
                       u32 units, u32 CRC-32 of what stands before it

A reader knows a slot that is being overwritten by its checksum or its number.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

VERSION = 1
ENVIRONMENT = "SHOAL_RING"
DEFAULT_SLOTS = 1024
MOST_SLOTS = 1 << 16
"""A reader refuses larger rings: it reads all slots at once, which are 2.6 MB here."""
_MAGIC = b"SHOALRNG"
_HEADER = struct.Struct("<8sIIIIQ")
_HEADER_BYTES = 64
_TOTALS_AT = 24
_COUNT = struct.Struct("<Q")
_UNITS_MASK, _TIME_MASK = (1 << 32) - 1, (1 << 64) - 1
_BODY = struct.Struct("<QQQQI")
_CHECK = struct.Struct("<I")
_SLOT = struct.Struct("<QQQQII")
_SLOT_BYTES = _SLOT.size
_SPENT = struct.Struct("<24xQI4x")
_EMPTY = bytes(_BODY.size)
_SOUND = _EMPTY + _CHECK.pack(zlib.crc32(_EMPTY))


class Unit(NamedTuple):
    """Some units of work that ended together: times in seconds, of all of them."""

    end_s: float
    wall_s: float
    cpu_s: float
    units: int = 1


class Columns(NamedTuple):
    """The same of many, the oldest first: a column for each value, times in whole nanoseconds."""

    end_ns: tuple[int, ...] = ()
    wall_ns: tuple[int, ...] = ()
    cpu_ns: tuple[int, ...] = ()
    units: tuple[int, ...] = ()


class Totals(NamedTuple):
    """Sums over all that a program has ever written, so that what is new is a difference, however much that is.
    `slots` is how many were written, `units` modulo 2^32."""

    slots: int
    end_ns: int
    wall_ns: int
    cpu_ns: int
    units: int

    def since(self, before: Totals) -> Totals:
        """The same of what was written in between; `end_ns` is of the last."""
        return Totals(
            self.slots - before.slots, self.end_ns, self.wall_ns - before.wall_ns, self.cpu_ns - before.cpu_ns,
            self.units - before.units & _UNITS_MASK,
        )  # fmt: skip


class Ring:
    """The writer. Not for several threads at once; a forked child opens its own."""

    def __init__(self, path: str | os.PathLike[str], *, slots: int = DEFAULT_SLOTS) -> None:
        if not 1 <= slots <= MOST_SLOTS:
            raise ValueError(f"a ring has 1 to {MOST_SLOTS} slots")
        self.path = Path(path)
        draft = f"{self.path}.{os.getpid()}"
        size = _HEADER_BYTES + slots * _SLOT_BYTES
        fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            os.posix_fallocate(fd, 0, size)  # a full disk is an error here, not a SIGBUS later
            self._map: mmap.mmap | None = mmap.mmap(fd, size)
        finally:
            os.close(fd)
        self._slots = slots
        self._totals = Totals(0, 0, 0, 0, 0)
        _HEADER.pack_into(self._map, 0, _MAGIC, VERSION, slots, os.getpid(), 0, 0)
        Path(draft).replace(self.path)  # a reader finds the old ring or the whole new one
        self.start()

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Ring:
        """A ring at SHOAL_RING; in a directory, this process's own. Without it, or where it cannot be written, one
        that goes nowhere."""
        path = environ.get(ENVIRONMENT)
        if not path:
            return _Nowhere()
        try:
            return cls(Path(path) / f"{os.getpid()}.ring" if Path(path).is_dir() else path)
        except OSError:
            return _Nowhere()

    def start(self) -> None:
        """A unit begins now; the time since the last one counts for no unit."""
        self._wall, self._cpu = time.monotonic_ns(), time.process_time_ns()

    def step(self, units: int = 1) -> None:
        """Record that this number of units ended since the last call. CPU time counts all of the process's threads."""
        wall, cpu = time.monotonic_ns(), time.process_time_ns()
        self.add(wall - self._wall, cpu - self._cpu, units=units, end_ns=wall)
        self._wall, self._cpu = wall, cpu

    def add(self, wall_ns: int, cpu_ns: int, *, units: int = 1, end_ns: int | None = None) -> None:
        """Units that were timed by the caller."""
        if self._map is None:
            return
        end = time.monotonic_ns() if end_ns is None else end_ns
        count, _, wall, cpu, so_far = self._totals
        body = _BODY.pack(count + 1, end, wall_ns, cpu_ns, units)
        at = _HEADER_BYTES + count % self._slots * _SLOT_BYTES
        self._map[at : at + _SLOT_BYTES] = body + _CHECK.pack(zlib.crc32(body))
        if units:
            wall, cpu, so_far = wall + wall_ns & _TIME_MASK, cpu + cpu_ns & _TIME_MASK, so_far + units & _UNITS_MASK
        self._totals = Totals(count + 1, end, wall, cpu, so_far)
        body = _BODY.pack(*self._totals)  # it is laid out as a slot is
        self._map[_TOTALS_AT:_HEADER_BYTES] = body + _CHECK.pack(zlib.crc32(body))

    def close(self) -> None:
        """Write nothing any more; the file stays for its readers."""
        if self._map is not None:
            self._map.close()
            self._map = None


class _Nowhere(Ring):
    def __init__(self) -> None:
        self._map = None
        self._wall = self._cpu = 0

    def start(self) -> None:
        return

    def step(self, units: int = 1) -> None:  # noqa: ARG002
        return


class Reader:
    """Reads what was added since it was read before. `torn` counts slots that were being written, `lost` units that
    were overwritten before they were read. The file is another's: it is read, not mapped, since a mapped file that is
    cut short kills who looks at it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Raises OSError, ValueError when it is no ring, or one of another version."""
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            stat = os.fstat(self._fd)
            self.inode = stat.st_ino
            header = os.pread(self._fd, _HEADER_BYTES, 0)
            if len(header) < _HEADER_BYTES:
                raise ValueError("it is shorter than a ring's header")
            magic, version, self._slots, self.pid, _, count = _HEADER.unpack_from(header)
            if magic != _MAGIC:
                raise ValueError(f"it is no ring of version {VERSION}")
            if version != VERSION:
                raise ValueError(f"its version is {version}, not {VERSION}")
            if self._slots > MOST_SLOTS:
                raise ValueError(f"it has {self._slots} slots, over the {MOST_SLOTS} that are read")
            if self._slots < 1 or stat.st_size != _HEADER_BYTES + self._slots * _SLOT_BYTES:
                raise ValueError("its size is not that of a ring of its number of slots")
        except BaseException:
            os.close(self._fd)
            raise
        self._next = max(1, count - self._slots + 1)
        self.torn = 0
        self.lost = 0

    def read(self) -> tuple[Unit, ...]:
        """New units, oldest first. Raises OSError, ValueError when the file was cut short."""
        columns = self.read_columns()
        return tuple(
            Unit(end / 1e9, wall / 1e9, cpu / 1e9, units) for end, wall, cpu, units in zip(*columns, strict=True)
        )

    def read_columns(self) -> Columns:
        """As `read`, without an object for each unit: a third of the time."""
        (count,) = _COUNT.unpack_from(self._header())
        oldest = max(1, count - self._slots + 1)
        self.lost += max(0, oldest - self._next)
        wanted = max(self._next, oldest)
        if wanted > count:
            return Columns()
        block = self._block(wanted, count)
        self._next = count + 1
        return self._whole(block, wanted) or self._one_by_one(block, wanted)

    def totals(self) -> Totals | None:
        """Of all that was written so far; None while that is being written, and of a writer that keeps no sums. Raises
        OSError, ValueError as `read`."""
        header = self._header()
        *totals, check = _SLOT.unpack(header)
        return Totals(*totals) if zlib.crc32(header[: _BODY.size]) == check else None

    def skip(self, count: int) -> None:
        """Read no more what is among the first `count` slots that were written."""
        self._next = max(self._next, count + 1)

    def newest(self, most: int) -> tuple[float, ...]:
        """CPU time per unit, in nanoseconds, of the last units that were written, read before or not. Half of the
        slots at most, so that none of them is being written."""
        (count,) = _COUNT.unpack_from(self._header())
        wanted = max(1, count - min(most, self._slots // 2) + 1)
        block = self._block(wanted, count) if count else b""
        return tuple([cpu / units for cpu, units in _SPENT.iter_unpack(block) if units])

    def close(self) -> None:
        os.close(self._fd)

    def _header(self) -> bytes:
        """From the count on."""
        header = os.pread(self._fd, _SLOT_BYTES, _TOTALS_AT)
        if len(header) < _SLOT_BYTES:
            raise ValueError("it was cut short")
        return header

    def _block(self, wanted: int, count: int) -> bytes:
        """Their slots, one after the other."""
        first, new = (wanted - 1) % self._slots, count - wanted + 1
        block = self._slots_from(first, min(new, self._slots - first))
        return block + self._slots_from(0, first + new - self._slots) if first + new > self._slots else block

    def _slots_from(self, first: int, run: int) -> bytes:
        block = os.pread(self._fd, run * _SLOT_BYTES, _HEADER_BYTES + first * _SLOT_BYTES)
        if len(block) < run * _SLOT_BYTES:
            raise ValueError("it was cut short")
        return block

    @staticmethod
    def _whole(block: bytes, wanted: int) -> Columns | None:
        """The units of slots that follow each other; None unless all are sound, as is usual. Done for every step of
        guaranteed work: the checksum of what ends in its own does not depend on what it says, so that of any row of
        sound slots is that of as many empty ones."""
        run = len(block) // _SLOT_BYTES
        if zlib.crc32(block) != zlib.crc32(_SOUND * run):
            return None
        numbers, ends, walls, cpus, units, _ = zip(*_SLOT.iter_unpack(block), strict=True)
        if numbers != tuple(range(wanted, wanted + run)) or not all(units):
            return None
        return Columns(ends, walls, cpus, units)

    def _one_by_one(self, block: bytes, wanted: int) -> Columns:
        found: list[tuple[int, int, int, int]] = []
        slots = (block[at : at + _SLOT_BYTES] for at in range(0, len(block), _SLOT_BYTES))
        for due, slot in enumerate(slots, wanted):
            number, end, wall, cpu, units, check = _SLOT.unpack(slot)
            if zlib.crc32(slot[: _BODY.size]) != check or not units:
                self.torn += 1
            elif number != due:  # the writer came round
                self.lost += 1
            else:
                found.append((end, wall, cpu, units))
        return Columns(*zip(*found, strict=True)) if found else Columns()
