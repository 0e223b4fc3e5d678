"""The kinds of change that a guard makes to a host, and how each is taken back.

Taking back may be repeated, and respects others: what does not stand as it was left belongs to others by now, and
stays. Errors are OSError; that the thing or process is gone is none.
"""

from __future__ import annotations

import contextlib
import errno
import signal
import struct
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import Any, ClassVar

from shoal.host.linux import cpus
from shoal.host.linux.fs import Kernel, family, start_time, threads

GONE = (errno.ENOENT, errno.ENODEV, errno.ESRCH)


@dataclass(frozen=True, slots=True)
class Write:
    """A file said `before` and says `after` now. `earlier` is what it was left at the time before: a guard that dies
    between its note and the write leaves that one."""

    kind: ClassVar[str] = "write"
    path: str
    before: str
    after: str
    earlier: str = ""

    @property
    def key(self) -> str:
        return f"write {self.path}"

    def revert(self, kernel: Kernel) -> bool:
        now = says(self.path, kernel.read(self.path))
        before = says(self.path, self.before)
        if now == before:
            return True
        left = {says(self.path, self.after), says(self.path, self.earlier)}
        if isinstance(before, frozenset):
            return self._revert_cpus(kernel, now, before, left)
        if now not in left:
            return False
        kernel.write(self.path, self.before)
        return True

    def _revert_cpus(self, kernel: Kernel, now: object, before: frozenset[int], left: set[object]) -> bool:
        """A cpuset of version 1 lies within its parent's and around its children's at every moment. One that cannot
        go back yet becomes the union of now and before, so that its parent or children can."""
        assert isinstance(now, frozenset)
        if now not in left and now not in {before | one for one in left if isinstance(one, frozenset)}:
            return False
        try:
            kernel.write(self.path, self.before or "\n")  # a write of nothing would not reach the kernel
        except OSError:
            kernel.write(self.path, cpus.render(before | now))
            raise
        return True


@dataclass(frozen=True, slots=True)
class Directory:
    """A cgroup or resctrl group was made. Its processes go back to where it was made, unless removing it does that."""

    kind: ClassVar[str] = "directory"
    path: str

    @property
    def key(self) -> str:
        return f"directory {self.path}"

    def revert(self, kernel: Kernel) -> bool:
        parent = self.path.rpartition("/")[0]
        if kernel.exists(f"{self.path}/cgroup.procs"):
            for pid in kernel.read(f"{self.path}/cgroup.procs").split():
                try:
                    kernel.write(f"{parent}/cgroup.procs", pid)
                except ProcessLookupError:
                    continue
        kernel.rmdir(self.path)
        return True


@dataclass(frozen=True, slots=True)
class Bits:
    """Of a model-specific register (8 bytes at `register` of the file), the bits in `mask`."""

    kind: ClassVar[str] = "bits"
    path: str
    register: int
    mask: int
    before: int
    after: int
    earlier: int = -1

    @property
    def key(self) -> str:
        return f"bits {self.path} {self.register}"

    def revert(self, kernel: Kernel) -> bool:
        (now,) = struct.unpack("<Q", kernel.pread(self.path, 8, self.register))
        if now & self.mask == self.before & self.mask:
            return True
        if now & self.mask not in (self.after & self.mask, self.earlier & self.mask):
            return False
        restored = now & ~self.mask | self.before & self.mask
        kernel.pwrite(self.path, struct.pack("<Q", restored), self.register)
        return True


@dataclass(frozen=True, slots=True)
class AffinityChange:
    """A thread ran on `before` and runs on `after`; lists of CPUs. `pid` and `start` are its process. With a process's
    first thread go those that were born bound: its later threads, and its descendants."""

    kind: ClassVar[str] = "affinity"
    pid: int
    start: int
    tid: int
    before: str
    after: str
    earlier: str = ""

    @property
    def key(self) -> str:
        return f"affinity {self.pid} {self.start} {self.tid}"

    def revert(self, kernel: Kernel) -> bool:
        if start_time(kernel, self.pid) != self.start or self.tid not in threads(kernel, self.pid):
            return True
        before, left = cpus.parse(self.before), (cpus.parse(self.after), cpus.parse(self.earlier))
        if self.tid == self.pid:
            for tid in chain.from_iterable(threads(kernel, pid) for pid in family(kernel, self.pid)):
                with contextlib.suppress(ProcessLookupError):
                    if tid != self.tid and kernel.affinity(tid) in left:
                        kernel.set_affinity(tid, before)
        now = kernel.affinity(self.tid)
        if now != before and now not in left:
            return False
        kernel.set_affinity(self.tid, before)
        return True


@dataclass(frozen=True, slots=True)
class Stopped:
    """A process got SIGSTOP."""

    kind: ClassVar[str] = "stopped"
    pid: int
    start: int

    @property
    def key(self) -> str:
        return f"stopped {self.pid} {self.start}"

    def revert(self, kernel: Kernel) -> bool:
        kernel.signal(self.pid, self.start, signal.SIGCONT)
        return True


Change = Write | Directory | Bits | AffinityChange | Stopped
_KINDS: dict[str, type[Change]] = {one.kind: one for one in (Write, Directory, Bits, AffinityChange, Stopped)}


def later(known: Change | None, change: Change) -> Change:
    """What is to be taken back when a thing is changed once more: its first state comes back, not the last."""
    if isinstance(known, Write) and isinstance(change, Write):
        return replace(known, after=change.after, earlier=known.after)
    if isinstance(known, Bits) and isinstance(change, Bits):
        return replace(known, after=change.after, earlier=known.after)
    if isinstance(known, AffinityChange) and isinstance(change, AffinityChange):
        return replace(known, after=change.after, earlier=known.after)
    return change


def as_json(change: Change) -> dict[str, Any]:
    return {"kind": change.kind, **asdict(change)}


def from_json(record: dict[str, Any]) -> Change:
    """Raises KeyError or TypeError for what is no change."""
    fields = dict(record)
    return _KINDS[fields.pop("kind")](**fields)


def says(path: str, text: str) -> object:
    """What a file says, however the kernel spells it."""
    text = text.strip()
    name = path.rpartition("/")[2]
    if name == "freezer.state":
        return text.replace("FREEZING", "FROZEN")
    if name in ("cpuset.cpus", "cpuset.mems"):
        return cpus.parse(text)
    return tuple(text.split())
