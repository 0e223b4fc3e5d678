"""Hardware prefetchers, off on some of a group's cores. The cheapest bandwidth to reclaim: streaming work loses most.

Sources: Intel, "Disclosure of Hardware Prefetcher Control on Some Intel Processors" (MSR 0x1A4); AMD's PPR for family
19h (MSR C000_0108h), as likwid uses it. A set bit turns a prefetcher off.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from shoal.core import Capability, Unavailable
from shoal.host.linux import cpus
from shoal.host.linux.fs import LINUX, Kernel
from shoal.host.linux.members import Found
from shoal.host.types import Control, Group, Setting
from shoal.host.undo.resctrl import online
from shoal.host.undo.write_ahead_log import WriteAheadLog


@dataclass(frozen=True, slots=True)
class Register:
    number: int
    mask: int


INTEL = Register(0x1A4, 0b1111)
"""L2 stream, L2 adjacent line, L1 next line, L1 instruction pointer."""
AMD = Register(0xC000_0108, 0b10_1111)
"""L1 stream, L1 stride, L1 region, L2 stream, up-down."""
_AMD_FAMILY = 0x19
_COSTS = "prefetchers stay on; bandwidth is reclaimed by shares and cores alone"


class Prefetchers:
    """Cores that guaranteed work may use, or whose sibling thread it may use, are never touched."""

    name = "prefetchers"
    control = Control.PREFETCHING
    least_share = 1.0

    def __init__(self, wal: WriteAheadLog, *, kernel: Kernel = LINUX) -> None:
        self._wal = wal
        self._kernel = kernel
        self._off: dict[str, frozenset[int]] = {}
        self._register, self._detail = _probe(kernel)

    def capability(self) -> Capability:
        return Capability(self.name, self._register is not None, self._detail, "" if self._register else _COSTS)

    def apply(self, group: Group, found: Found, setting: Setting) -> Setting:
        if self._register is None:
            raise Unavailable(self._detail, where=group.name)
        wanted: frozenset[int] = frozenset()
        if setting.prefetching is not None:
            own = [cpu for cpu in sorted(found.exclusive, reverse=True) if self._siblings(cpu) <= found.exclusive]
            off = max(0, len(found.cpus) - setting.prefetching)
            if off and not own:
                raise Unavailable("guaranteed work may use all of its cores", where=group.name)
            wanted = frozenset(own[:off])
        self._turn(group.name, wanted)
        if setting.prefetching is None:
            return setting
        return replace(setting, prefetching=len(found.cpus) - len(wanted))

    def restore(self, group: str | None = None) -> None:
        for name in list(self._off):
            if group in (None, name):
                self._turn(name, frozenset())

    def _turn(self, group: str, wanted: frozenset[int]) -> None:
        """A core that several groups share is on when none of them wants it off."""
        assert self._register is not None
        before = frozenset[int]().union(*self._off.values())
        self._off[group] = wanted
        after = frozenset[int]().union(*self._off.values())
        if not wanted:
            del self._off[group]
        for cpu in sorted(after):
            path, mask = f"/dev/cpu/{cpu}/msr", self._register.mask
            self._wal.set_bits(f"{self.name}/{cpu}", path, self._register.number, mask, mask)
        for cpu in sorted(before - after):
            self._wal.revert(f"{self.name}/{cpu}")

    def _siblings(self, cpu: int) -> frozenset[int]:
        try:
            topology = f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
            return cpus.parse(self._kernel.read(topology))
        except OSError:
            return frozenset({cpu})


def _probe(kernel: Kernel) -> tuple[Register | None, str]:
    info = kernel.read("/proc/cpuinfo")
    vendor = re.search(r"vendor_id\s*: (\S+)", info)
    family = re.search(r"cpu family\s*: (\d+)", info)
    if vendor is None or family is None:
        return None, "not an x86 processor"
    if vendor[1] == "GenuineIntel" and int(family[1]) == 6:
        register = INTEL
    elif vendor[1] == "AuthenticAMD" and int(family[1]) >= _AMD_FAMILY:
        register = AMD
    else:
        return None, f"how to turn off prefetchers of {vendor[1]} family {family[1]} is not known"
    path = f"/dev/cpu/{min(online(kernel))}/msr"
    try:
        kernel.pwrite(path, kernel.pread(path, 8, register.number), register.number)
    except FileNotFoundError:
        return None, f"{path} is missing: needs the msr module, root and no kernel lockdown; never there in a VM"
    except OSError as problem:
        return None, f"{path}, register {register.number:#x}: {problem.strerror}"
    return register, f"register {register.number:#x}"
