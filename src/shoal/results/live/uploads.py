"""Files that clients send in pieces. What arrived stays for a day, and an upload of the same content goes on there."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from pathlib import Path
from weakref import WeakValueDictionary

from shoal.core import Conflict, Invalid, NotFound, Overloaded, Unavailable
from shoal.extension import Server
from shoal.results.keeping.retention import Kept
from shoal.results.keeping.take import Content, NotTaken
from shoal.results.live.artifact_store import ArtifactStore, Place

PIECE = 8 << 20
"""Bytes of a piece at most."""
_MOST_OPEN = 20
_COMPLETE = "complete one; each is removed a day after its last piece"
_ABANDONED_S = 86_400.0
_PART = re.compile(r"[0-9a-f]{64}\.(\d+)(?:\.[0-9a-f]{16})?\.part")


class Uploads:
    """`folder/TENANT/DIGEST.BYTES.part` holds what arrived; its size is where the upload goes on. That of a member who
    may open only what is his is his alone: `DIGEST.BYTES.OWNER.part`."""

    def __init__(self, server: Server, artifact_store: ArtifactStore, folder: Path) -> None:
        self._server = server
        self._artifact_store = artifact_store
        self._folder = folder
        self._locks: WeakValueDictionary[Path, asyncio.Lock] = WeakValueDictionary()

    async def begin(
        self, place: Place, name: str, digest: str, size: int, by: str, *, alone: bool
    ) -> tuple[int, Kept | None]:
        """How many bytes are here, and the artifact where all are. Repeated, it does no more. `alone`: `by` may open
        only what is his; of others, who knows the digest of a content of the tenant's may have it. Raises Overloaded
        where the tenant has no room, and Invalid where what arrived is not what was announced: it is begun anew."""
        if not alone and (found := await self._artifact_store.link(place, name, digest, by)) is not None:
            return size, found
        part = self._part(place.tenant, digest, size, by if alone else None)
        async with self._lock(part):
            try:
                have = await asyncio.to_thread(self._have, part)
                if have is None:
                    self._check_room(place.tenant, size)
                    await asyncio.to_thread(self._make, part)
                    have = 0
                if have < size:
                    return have, None
                return size, await self._finish(place, name, Content(digest, size), part, by)
            except OSError as problem:
                raise _unavailable(problem) from None

    def _lock(self, part: Path) -> asyncio.Lock:
        """One for all who are at this upload now: a tenant may name any number of digests."""
        return self._locks.setdefault(part, asyncio.Lock())

    async def append(
        self, tenant: str, digest: str, size: int, offset: int, data: bytes, *, owner: str | None = None
    ) -> int:
        """Add a piece; how many bytes are here then. `owner` is a member who may open only what is his. Raises Conflict
        for one that does not begin where the last ended, and NotFound for an upload that was not begun."""
        part = self._part(tenant, digest, size, owner)
        async with self._lock(part):
            try:
                have = await asyncio.to_thread(self._have, part)
                if have is None:
                    raise NotFound("this upload was not begun, or is over", where="upload", hint="begin it again")
                if offset != have:
                    raise Conflict(f"{have} bytes are here, and the piece begins at {offset}", where="offset",
                                   hint="ask where it goes on")  # fmt: skip
                if have + len(data) > size:
                    raise Invalid(f"the file was announced with {size} bytes, and this is more", where="body")
                await asyncio.to_thread(_append, part, data, have)
            except OSError as problem:
                raise _unavailable(problem) from None
            return have + len(data)

    async def _finish(self, place: Place, name: str, content: Content, part: Path, by: str) -> Kept:
        found = await asyncio.to_thread(_digest, part)
        if found != content.digest:
            await asyncio.to_thread(part.unlink, missing_ok=True)
            raise Invalid("what arrived is not the file that was announced", where="sha256", hint="send it again")
        return await self._artifact_store.publish(place, name, content, part, by)

    def _check_room(self, tenant: str, size: int) -> None:
        if self._artifact_store.allowance.together and len(list(self._folder.glob("*/*.part"))) >= _MOST_OPEN:
            raise Overloaded(f"{_MOST_OPEN} uploads are not complete", where="uploads", hint=_COMPLETE)
        others = self._open(tenant)
        if len(others) >= _MOST_OPEN:
            raise Overloaded(f"the tenant has {len(others)} uploads that are not complete", where="uploads",
                             hint=_COMPLETE)  # fmt: skip
        try:
            self._artifact_store.check_room(tenant, size + sum(others))
        except NotTaken as problem:
            raise Overloaded(f"the file cannot be kept: {problem}", where="bytes",
                             hint="`shoal artifacts --delete` makes room", retry_after_s=60.0) from None  # fmt: skip

    def _open(self, tenant: str) -> list[int]:
        """How large the uploads will be that are not complete."""
        folder = self._folder / tenant
        found = [_PART.fullmatch(one.name) for one in folder.iterdir()] if folder.is_dir() else []
        return [int(one[1]) for one in found if one is not None]

    async def tidy(self) -> None:
        """Remove what nobody went on with."""
        await asyncio.to_thread(self._tidy)

    def _tidy(self) -> None:
        before = self._server.clock.now() - _ABANDONED_S
        for path in self._folder.glob("*/*.part"):
            try:
                if path.stat().st_mtime < before:
                    path.unlink(missing_ok=True)
            except OSError:
                continue

    def _part(self, tenant: str, digest: str, size: int, owner: str | None) -> Path:
        own = f".{hashlib.sha256(owner.encode()).hexdigest()[:16]}" if owner is not None else ""
        return self._folder / tenant / f"{digest}.{size}{own}.part"

    @staticmethod
    def _have(part: Path) -> int | None:
        try:
            return part.stat().st_size
        except FileNotFoundError:
            return None

    @staticmethod
    def _make(part: Path) -> None:
        part.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _append(part: Path, data: bytes, have: int) -> None:
    file = os.open(part, os.O_WRONLY | os.O_CLOEXEC)
    try:
        rest = memoryview(data)
        at = have
        try:
            while rest:
                written = os.pwrite(file, rest, at)
                rest, at = rest[written:], at + written
            os.fsync(file)
        except OSError:
            os.ftruncate(file, have)
            raise
    finally:
        os.close(file)


def _digest(part: Path) -> str:
    with part.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _unavailable(problem: OSError) -> Unavailable:
    return Unavailable(f"the file cannot be kept: {problem.strerror or problem}", where="results.store")
