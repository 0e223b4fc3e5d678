"""Kernel profiles: how long each (kernel, grid, block) takes, in a file that all tenants of a device share."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, fields
from pathlib import Path

from shoal.core import Unavailable
from shoal.device import native
from shoal.device.policy import Profile, Way


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
