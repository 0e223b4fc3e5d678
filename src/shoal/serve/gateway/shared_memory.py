"""Triton's system shared memory extension: tensors that stay in POSIX shared memory and are only referred to.

A region is registered by a name, a key (the file's name under /dev/shm), an offset and a size, and belongs to the
tenant that registered it. Contents are read and written with pread and pwrite, not through a mapping: a caller that
shrinks the file under a mapping kills the process that touches it (SIGBUS). A caller that changes the file meanwhile
changes what was already checked. Reading costs one copy, still two fewer than a socket.

A client of a server reaches the shared memory of the server's user. So a key is taken only once, names of the server's
own segments not at all, links are not followed, and of other users' segments only those that are open to all users.
"""

from __future__ import annotations

import fcntl
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from shoal.core import Conflict, NotFound, Overloaded
from shoal.inference.errors import BadRequest
from shoal.inference.protocol.regions import Place
from shoal.inference.types import Buffer

MOST_REGIONS = 256
"""Per tenant; each holds a file descriptor."""

_LONGEST = 255
_RESERVED = "shoal-"


@dataclass(frozen=True, slots=True)
class Region:
    """`offset` and `size` in bytes say which part of the file may be referred to."""

    name: str
    key: str
    offset: int
    size: int
    descriptor: int = field(repr=False, compare=False)


class SharedRegions:
    """What is registered, by tenant. Not thread-safe: one event loop uses it."""

    def __init__(
        self,
        *,
        folder: Path = Path("/dev/shm"),  # noqa: S108  # where the system keeps POSIX shared memory
        most_regions: int = MOST_REGIONS,
    ) -> None:
        self._folder = folder
        self._most_regions = most_regions
        self._regions: dict[str, dict[str, Region]] = {}

    def register(self, tenant: str, name: str, key: str, offset: int, size: int) -> None:
        """Raises BadRequest for what cannot be registered, Conflict if the name or the key is taken."""
        where = f"region {name!r:.80}"
        if len(self._regions.get(tenant, {})) >= self._most_regions:
            self._drop_abandoned(tenant)
        own = self._regions.get(tenant, {})
        if not 0 < len(name) <= _LONGEST:
            raise BadRequest("a region's name has 1 to 255 characters", where=where)
        if name in own:
            raise Conflict("already registered", where=where, hint="unregister it first")
        if len(own) >= self._most_regions:
            raise Overloaded(f"a tenant may register {self._most_regions} regions", where=where)
        if offset < 0 or size <= 0:
            raise BadRequest("the offset must not be negative, the byte_size positive", where=where)
        descriptor = self._open(self._file_of(key, where), offset + size, where)
        if self._is_anothers(descriptor, tenant):
            os.close(descriptor)
            raise Conflict(f"the key {key!r:.80} is in use", where=where, hint="create a segment of another name")
        own[name] = Region(name, key, offset, size, descriptor)
        self._regions[tenant] = own

    def unregister(self, tenant: str, name: str | None = None) -> None:
        """Unregister one region, or without a name all of the tenant's. An unknown name is no error."""
        own = self._regions.get(tenant, {})
        for gone in [*own] if name is None else [name]:
            region = own.pop(gone, None)
            if region is not None:
                os.close(region.descriptor)
        if not own:
            self._regions.pop(tenant, None)

    def status(self, tenant: str, name: str | None = None) -> list[Region]:
        """Raises NotFound for a name that is not registered."""
        own = self._regions.get(tenant, {})
        if name is None:
            return [*own.values()]
        if name not in own:
            raise NotFound("not registered", where=f"region {name!r:.80}")
        return [own[name]]

    def check(self, tenant: str, place: Place) -> None:
        """Raises BadRequest unless the place lies in a region of this tenant."""
        self._descriptor(tenant, place)

    def read(self, tenant: str, place: Place) -> Buffer:
        descriptor, start = self._descriptor(tenant, place)
        data = bytearray(place.size)
        if os.preadv(descriptor, [data], start) != place.size:
            raise self._shrunk(place)
        return data

    def write(self, tenant: str, place: Place, data: Buffer) -> None:
        descriptor, start = self._descriptor(tenant, place)
        if os.fstat(descriptor).st_size < start + len(data):
            raise self._shrunk(place)
        try:
            os.pwrite(descriptor, data, start)
        except OSError as error:
            raise BadRequest(f"cannot be written: {error.strerror}", where=f"region {place.region!r:.80}") from None

    def close(self) -> None:
        for tenant in [*self._regions]:
            self.unregister(tenant)

    def _drop_abandoned(self, tenant: str) -> None:
        """Let go of segments without a name, unless a client that unlinked its segment early holds a lock on it."""
        for one in [*self._regions.get(tenant, {}).values()]:
            if os.fstat(one.descriptor).st_nlink == 0 and _lock(one.descriptor):
                self.unregister(tenant, one.name)

    def _is_anothers(self, descriptor: int, tenant: str) -> bool:
        """The file itself is compared: it may have several names."""
        found = os.fstat(descriptor)
        others = (one for other, own in self._regions.items() if other != tenant for one in own.values())
        return any(os.path.samestat(found, os.fstat(one.descriptor)) for one in others)

    def _descriptor(self, tenant: str, place: Place) -> tuple[int, int]:
        """The file, and where in it the place begins."""
        region = self._regions.get(tenant, {}).get(place.region)
        if region is None:
            raise BadRequest("not registered", where=f"region {place.region!r:.80}", hint="register it first")
        if place.offset + place.size > region.size:
            raise BadRequest(
                f"{place.size} bytes from {place.offset} on reach beyond its {region.size} bytes",
                where=f"region {place.region!r:.80}",
            )
        return region.descriptor, region.offset + place.offset

    def _file_of(self, key: str, where: str) -> str:
        """A key is the name of a file directly in the folder, with one slash before it or none (as for shm_open)."""
        file = key.removeprefix("/")
        plain = file.isascii() and file.isprintable() and "/" not in file and file not in ("", ".", "..")
        if not plain or len(file) > _LONGEST:
            raise BadRequest(f"{key!r:.80} is no name of a shared memory segment", where=where)
        if file.startswith(_RESERVED):
            raise BadRequest(f"segments named {file!r:.80} are the server's own", where=where)
        return file

    def _open(self, file: str, wanted: int, where: str) -> int:
        try:
            flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(self._folder / file, flags)
        except OSError as error:
            raise BadRequest(f"cannot open the segment {file!r:.80}: {error.strerror}", where=where) from None
        found = os.fstat(descriptor)
        all_users = stat.S_IROTH | stat.S_IWOTH
        problem = None
        if not stat.S_ISREG(found.st_mode):
            problem = "it is no shared memory"
        elif found.st_uid != os.geteuid() and found.st_mode & all_users != all_users:
            problem = "it is another user's"
        elif found.st_size < wanted:
            problem = f"it has {found.st_size} bytes, offset and byte_size reach to {wanted}"
        if problem is not None:
            os.close(descriptor)
            raise BadRequest(f"cannot use the segment {file!r:.80}: {problem}", where=where)
        return descriptor

    def _shrunk(self, place: Place) -> BadRequest:
        return BadRequest("the segment became shorter after it was registered", where=f"region {place.region!r:.80}")


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
