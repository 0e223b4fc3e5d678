"""The shared page of a device: which processes use it, with which class and weight, and how they fare.

The library (`native/device/page.cpp`) makes, opens and changes it; this module reads it. Front ends join by themselves.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from shoal.core import Unavailable
from shoal.device import native
from shoal.device.policy import Class, Rules, Tenant, Verdict


@dataclass(frozen=True, slots=True)
class Occupant:
    """A process that has a slot, whether it still runs or not."""

    slot: int
    pid: int
    name: str
    cls: Class
    weight: int
    pending: int
    waiting: bool
    last_active_ns: int
    outstanding_ns: int
    ran_ns: int
    memory_quota: int
    memory_used: int
    launches: int
    pieces: int
    violations: int
    shares: int
    collectives: int
    kernels: int
    variants: int
    """Of the kernels, those that can be launched in parts."""
    parts: int
    """Of the pieces, slices and launches by ticket."""
    waited_ns: dict[Verdict, int]


class Page:
    """Open until `close`, or as a context. `running` takes the kernel's place in saying which processes are alive, in
    tests and simulations."""

    def __init__(self, path: Path, address: int, running: Callable[[native.Process], bool] | None = None) -> None:
        self.path = path
        self._address = address
        self._library = native.library()
        self._running = native.Running(lambda one: running(one[0])) if running is not None else None
        self._seen = self._library.shoal_seen_new(self._running)
        self.struct = native.PageStruct.from_address(address)

    @classmethod
    def create(
        cls,
        path: Path,
        *,
        device: str,
        memory_total: int = 0,
        rules: Rules | None = None,
        running: Callable[[native.Process], bool] | None = None,
    ) -> Self:
        """Make it, or open the one that is there (its rules stay). Raises Unavailable."""
        asked = (rules or Rules()).to_native()
        return cls(path, _opened(path, "shoal_page_create", device.encode(), memory_total, asked), running)

    @classmethod
    def open(cls, path: Path, running: Callable[[native.Process], bool] | None = None) -> Self:
        """Raises Unavailable: there is none, or it is another version's, foreign, or not safe to use."""
        return cls(path, _opened(path, "shoal_page_open"), running)

    def close(self) -> None:
        if self._address:
            self._library.shoal_seen_free(self._seen)
            self._library.shoal_page_close(self._address)
            self._address = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def device(self) -> str:
        return bytes(self.struct.header.device).decode(errors="replace")

    @property
    def memory_total(self) -> int:
        """Bytes; 0 when not known."""
        return int(self.struct.header.memory_total)

    def rules(self) -> Rules:
        found = native.NativeRules()
        self._library.shoal_page_rules(self._address, found)
        return Rules.of_native(found)

    def set_rules(self, rules: Rules) -> None:
        """For all tenants, from their next decision on. Raises Unavailable."""
        code = self._library.shoal_page_write_rules(str(self.path).encode(), rules.to_native())
        if code:
            raise _error(self.path, code)

    def occupants(self) -> list[Occupant]:
        found = []
        for index in range(min(self.struct.header.top, native.SLOTS)):
            slot = self.struct.slot[index]
            owner = slot.owner
            if not owner & 0xFFFFFFFF or slot.ready != owner:
                continue
            lanes = slot.lane[: min(slot.lanes, native.LANES)]
            found.append(Occupant(
                slot=index,
                pid=owner & 0xFFFFFFFF,
                name=slot.name.decode(errors="replace"),
                cls=Class(slot.cls),
                weight=slot.weight,
                pending=sum((lane.submitted - lane.done) & 0xFFFFFFFF for lane in lanes),
                waiting=bool(slot.waiting),
                last_active_ns=slot.last_active_ns,
                outstanding_ns=slot.outstanding_ns,
                ran_ns=slot.ran_ns,
                memory_quota=slot.memory_quota,
                memory_used=slot.memory_used,
                launches=slot.launches,
                pieces=slot.pieces,
                violations=slot.violations,
                shares=slot.shares,
                collectives=slot.collectives,
                kernels=slot.kernels,
                variants=slot.variants,
                parts=slot.parts,
                waited_ns=dict(zip(list(Verdict)[Verdict.WAIT_BUSY :], slot.waited_ns, strict=True)),
            ))  # fmt: skip
        return found

    def snapshot(self, now_ns: int | None = None) -> list[Tenant]:
        """The tenants as the policy sees them, by slot; those of processes that are gone are `FREE`."""
        tenants = self.snapshot_native(self._library.shoal_device_now() if now_ns is None else now_ns)
        return [
            Tenant(
                cls=Class(one.cls),
                weight=one.weight,
                pending=one.pending,
                waiting=bool(one.waiting),
                last_active_ns=one.last_active_ns,
                progress_ns=one.progress_ns,
                gap_ns=one.gap_ns,
                outstanding_ns=one.outstanding_ns,
                running_ns=one.running_ns,
                used_ns=one.used_ns,
                name=self.struct.slot[index].name.decode(errors="replace"),
            )
            for index, one in enumerate(tenants)
        ]

    def snapshot_native(self, now_ns: int) -> list[native.NativeTenant]:
        found = (native.NativeTenant * native.SLOTS)()
        return found[: self._library.shoal_page_snapshot(self._address, now_ns, self._seen, found)]

    def reap(self) -> int:
        """Free the slots of processes that are gone; how many."""
        return int(self._library.shoal_page_reap(self._address, self._running))

    def join(
        self,
        cls: Class,
        *,
        weight: int = 1,
        memory_quota: int = 0,
        name: str = "",
        process: native.Process | None = None,
        now_ns: int | None = None,
    ) -> int:
        """Take a slot for `process`, by default this one. Raises Unavailable when all are taken."""
        now = self._library.shoal_device_now() if now_ns is None else now_ns
        found = self._library.shoal_page_join(
            self._address, process, self._running, int(cls), weight, memory_quota, name.encode(), now
        )
        if found < 0:
            raise Unavailable(f"{native.SLOTS} processes use the device already", where=str(self.path))
        return int(found)

    def leave(self, slot: int) -> None:
        self._library.shoal_page_leave(self._address, slot)


def _opened(path: Path, function: str, *arguments: object) -> int:
    address = getattr(native.library(), function)(str(path).encode(), *arguments)
    if not address:
        raise _error(path, ctypes.get_errno())
    return int(address)


def _error(path: Path, code: int) -> Unavailable:
    text = native.library().shoal_page_error(code).decode()
    return Unavailable(f"the page cannot be used: {text}", where=str(path))
