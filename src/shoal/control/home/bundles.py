"""Working files that clients upload: kept by content, so that the same files are stored once; known by tenant."""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

from shoal.base.files import flush_folder
from shoal.contract.events import EventKind
from shoal.contract.records import BundleRecord, NewEvent
from shoal.core import Clock, Invalid, Overloaded, Unavailable
from shoal.engine import inspect
from shoal.store import Store

_NOTE_USE_S = 3600.0
"""A bundle's last use is kept to the hour: more would be a write for every submission."""

_ABANDONED_S = 86_400.0


@dataclass(frozen=True, slots=True)
class BundleLimits:
    """`upload_bytes` and `unpacked_bytes` are of one bundle, `count` and `stored_bytes` of all that a tenant has."""

    upload_bytes: int = 64 << 20
    unpacked_bytes: int = 1 << 30
    count: int = 1000
    stored_bytes: int = 10 << 30


class Bundles:
    """The archives in `folder`, and whose they are in the store."""

    def __init__(self, store: Store, clock: Clock, folder: Path, limits: BundleLimits) -> None:
        self._store = store
        self._clock = clock
        self._folder = folder
        self._limits = limits
        self._adding = asyncio.Lock()

    async def add(self, chunks: AsyncIterator[bytes], *, tenant: str, actor: str) -> BundleRecord:
        """Store an archive for a tenant. Raises Invalid for one that is too large or cannot be unpacked, Overloaded
        when the tenant has too much already, Unavailable when it cannot be written; nothing is left behind then."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, name = tempfile.mkstemp(dir=self._folder, prefix=".upload-")
        part = Path(name)
        try:
            digest, size = await self._receive(descriptor, chunks)
            contents = await asyncio.to_thread(inspect, part, limit_bytes=self._limits.unpacked_bytes)
            now = self._clock.now()
            record = BundleRecord(tenant, f"sha256:{digest}", size, contents.unpacked_bytes, now, now)
            async with self._adding:  # so that two uploads at once cannot both be the last that fits
                self._check_total(record)
                note = NewEvent(
                    now, EventKind.BUNDLE_ADDED, actor, f"{size} bytes", tenant, data={"bundle": record.digest}
                )
                await asyncio.to_thread(_put_in_place, part, self._folder / digest)
                await self._store.put_bundle(record, note)
        except OSError as error:
            where = str(self._folder)
            raise Unavailable(f"the upload could not be stored: {error.strerror}", where=where) from error
        finally:
            part.unlink(missing_ok=True)
        return record

    async def _receive(self, descriptor: int, chunks: AsyncIterator[bytes]) -> tuple[str, int]:
        digest, size, most = hashlib.sha256(), 0, self._limits.upload_bytes
        with os.fdopen(descriptor, "wb") as file:
            async for chunk in chunks:
                size += len(chunk)
                if size > most:
                    raise Invalid(
                        f"the files are larger than {most / 2**20:.0f} MiB", where="files",
                        hint="leave data out of `files` and name it under `inputs`",
                    )  # fmt: skip
                digest.update(chunk)
                file.write(chunk)
            file.flush()
            await asyncio.to_thread(os.fsync, file.fileno())
        return digest.hexdigest(), size

    def _check_total(self, new: BundleRecord) -> None:
        others = [one for one in self._store.bundles(new.tenant) if one.digest != new.digest]
        stored = sum(one.size_bytes for one in others) + new.size_bytes
        hint = "bundles that no live job uses are removed some time after their last use: see `shoal gc`"
        if len(others) >= self._limits.count:
            raise Overloaded(f"tenant {new.tenant} has {len(others)} bundles already", where="files", hint=hint)
        if stored > self._limits.stored_bytes:
            most = self._limits.stored_bytes / 2**20
            raise Overloaded(f"tenant {new.tenant} would have over {most:.0f} MiB of bundles", where="files", hint=hint)

    async def remove(self, record: BundleRecord, event: NewEvent) -> int:
        """Forget a tenant's bundle, and remove the file with the last one's; how many bytes that freed."""
        async with self._adding:
            if not await self._store.remove_bundle(record, event):
                return 0
            (self._folder / record.digest.removeprefix("sha256:")).unlink(missing_ok=True)
            return record.size_bytes

    async def sweep(self) -> None:
        """Remove what a server left that was killed in an upload or a removal."""
        async with self._adding:
            known = {one.digest.removeprefix("sha256:") for one in self._store.bundles()}
            for path in self._folder.iterdir() if self._folder.is_dir() else ():
                if path.name not in known and self._clock.now() - path.stat().st_mtime > _ABANDONED_S:
                    path.unlink(missing_ok=True)

    async def use(self, tenant: str, digest: str | None) -> None:
        """Note that a manifest names it."""
        found = self._store.bundle(tenant, digest) if digest else None
        now = self._clock.now()
        if found is not None and now - found.used_at >= _NOTE_USE_S:
            await self._store.put_bundle(replace(found, used_at=now))


def _put_in_place(part: Path, target: Path) -> None:
    """Blocks until the file is on disk under its name."""
    part.replace(target)
    flush_folder(target.parent)
