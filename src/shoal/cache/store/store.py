"""A directory of read-only files named by the hash of their content, within limits that hold at every moment.

    ROOT/lock                        held by the one daemon of the directory
    ROOT/chunks/HASH                 contents; only the daemon may enter this directory
    ROOT/fills/                      what is being written, removed at a start
    ROOT/dying/HASH                  evicted, and still open somewhere
    ROOT/links/TENANT/...            see `links`
    ROOT/views/TENANT/...            see `views`
    ROOT/index.db                    see `index`

Space is reserved, and allocated, before a byte of a fill is written. What is evicted loses its links and counts until
the last reader has closed it, and no view of a job keeps it: a write lease, which the kernel grants only for a file
that is open nowhere, tells.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

from shoal.base.locks import lock_file
from shoal.cache.store.index import Index, ObjectInfo
from shoal.cache.store.links import Links, linked, remove_links
from shoal.cache.store.views import Views
from shoal.core import Conflict, Invalid, Unavailable

CHUNK_BYTES = 64 << 20
_BLOCK = 4096
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Limits:
    """`bytes` as the disk counts them, in blocks; `files`: contents, fills and what is dying, not links; `keep_free`:
    bytes that are left on the disk for others."""

    bytes: int
    files: int = 1_000_000
    keep_free: int = 0


@dataclass(frozen=True, slots=True)
class Usage:
    """Bytes in blocks, and files. `dying` and `filling` are among them."""

    bytes: int
    files: int
    dying: int
    filling: int


@dataclass(slots=True)
class Content:
    """`references` are the (object, chunk) that this is; `allocated` is in blocks."""

    bytes: int
    allocated: int
    references: set[tuple[str, int]] = field(default_factory=set)


@dataclass(slots=True)
class Held:
    """What is there of an object: hashes by number of the chunk."""

    info: ObjectInfo
    chunks: dict[int, str] = field(default_factory=dict)


class Store:
    """Thread-safe. `fault(point)` lets tests crash it at a named point."""

    def __init__(
        self, root: Path, limits: Limits, *, chunk_bytes: int = CHUNK_BYTES,
        fault: Callable[[str], None] = lambda _point: None,
    ) -> None:  # fmt: skip
        """Open it. Raises Conflict where another process has it, Invalid where the directory cannot be used."""
        self.root = root
        self.limits = limits
        self.chunk_bytes = chunk_bytes
        self.evictions = 0
        self._fault = fault
        self._mutex = threading.RLock()
        self._contents: dict[str, Content] = {}
        self._objects: dict[str, Held] = {}
        self._dying: dict[str, int] = {}
        self._filling: dict[Path, int] = {}
        self._doubted: set[str] = set()
        self._used = 0
        self._number = 0
        try:
            root.mkdir(mode=0o711, parents=True, exist_ok=True)
            self._lock = lock_file(root / "lock")
            if self._lock is None:
                holder = (root / "lock").read_text().strip() or "another process"
                raise Conflict(f"{holder} has this cache open", where=str(root), hint="a directory has one daemon")
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, f"pid {os.getpid()}\n".encode(), 0)
            root.chmod(0o711)
            for name in ("chunks", "fills", "dying"):
                (root / name).mkdir(mode=0o700, exist_ok=True)
            self.links = Links(root / "links")
            self.views = Views(root / "views")
            self._index = Index(root / "index.db")
        except OSError as error:
            raise Invalid(f"the cache cannot be kept here: {error.strerror or error}", where=str(root)) from error
        self.recover()

    def close(self) -> None:
        with self._mutex:
            self._index.close()
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None

    # --- what is there ---

    def find(self, key: str) -> Held | None:
        with self._mutex:
            return self._objects.get(key)

    def objects(self) -> list[Held]:
        with self._mutex:
            return list(self._objects.values())

    def contents(self) -> dict[str, Content]:
        with self._mutex:
            return dict(self._contents)

    def file(self, digest: str) -> Path:
        return self.root / "chunks" / digest

    def usage(self) -> Usage:
        with self._mutex:
            files = len(self._contents) + len(self._dying) + len(self._filling)
            return Usage(self._used, files, sum(self._dying.values()), sum(self._filling.values()))

    # --- fill ---

    def reserve(self, count: int) -> Fill | None:
        """Space for a file of `count` bytes, or None where the limits, or the disk, have none."""
        allocated = -(-count // _BLOCK) * _BLOCK
        with self._mutex:
            if not self._fits(allocated):
                self.reap()
            if not self._fits(allocated):
                return None
            self._number += 1
            path = self.root / "fills" / f"{self._number}"
            self._filling[path] = allocated
            self._used += allocated
        try:
            return Fill(self, path, count)
        except OSError:  # the disk is full, read-only or gone: readers go to the source
            self._release(path)
            return None

    def _fits(self, allocated: int) -> bool:
        files = len(self._contents) + len(self._dying) + len(self._filling)
        if self._used + allocated > self.limits.bytes or files + 1 > self.limits.files:
            return False
        if not self.limits.keep_free:
            return True
        found = os.statvfs(self.root)
        return found.f_bavail * found.f_frsize - allocated >= self.limits.keep_free

    def _release(self, path: Path) -> None:
        with self._mutex:
            self._used -= self._filling.pop(path, 0)
            with suppress(OSError):
                path.unlink(missing_ok=True)

    def _keep(self, fill: Fill, info: ObjectInfo, number: int, digest: str) -> None:
        """Make a finished fill part of an object. Raises Conflict when it needs more blocks than were reserved."""
        with self._mutex:
            allocated = fill.path.stat().st_blocks * 512
            if self._used - self._filling[fill.path] + allocated > self.limits.bytes:
                raise Unavailable("the file takes more of the disk than the limit allows")
            old = self._objects.get(info.key)
            if old is not None and (old.info.tag, old.info.size) != (info.tag, info.size):
                self.drop(info.key)
            known = self._contents.get(digest)
            if known is None and digest in self._dying:
                known = self._revive(digest)
            if known is None:
                self._fault("before the file has its name")
                fill.path.chmod(0o444)
                fill.path.rename(self.file(digest))
                self._used += allocated - self._filling.pop(fill.path)
                known = self._contents[digest] = Content(fill.size, allocated)
            self._fault("before the index knows it")
            try:
                self._index.add(info, number, digest, fill.size)
            except sqlite3.Error as error:
                raise Unavailable(f"the index of the cache cannot be written: {error}") from error
            known.references.add((info.key, number))
            self._objects.setdefault(info.key, Held(info)).chunks[number] = digest
            self._fault("after the index knows it")

    def _revive(self, digest: str) -> Content:
        (self.root / "dying" / digest).rename(self.file(digest))
        allocated = self._dying.pop(digest)
        size = self.file(digest).stat().st_size
        found = self._contents[digest] = Content(size, allocated)
        return found

    # --- links ---

    def link(self, tenant: str, key: str) -> None:
        """All that is there of the object, for this tenant."""
        with self._mutex:
            held = self._objects.get(key)
            if held is None:
                return
            for digest in self._doubted & set(held.chunks.values()):
                self._verified(digest)
            if held.chunks:
                files = {number: self.file(digest) for number, digest in held.chunks.items()}
                self.links.add(tenant, held.info, files, self.chunk_bytes)
                if held.info.size <= self.chunk_bytes:
                    self.views.link(tenant, key, files[0])

    def unlink(self, tenant: str, key: str) -> None:
        """The tenant may read the object no more."""
        self.links.remove(tenant, key)
        self.views.unlink(key, tenant, for_good=True)

    # --- evict ---

    def evict(self, digest: str, *, damaged: bool = False) -> None:
        """Its bytes count until the last reader has closed it. No view of a job keeps what is `damaged`."""
        with self._mutex:
            content = self._contents.pop(digest, None)
            if content is None:
                return
            for key, number in content.references:
                held = self._objects[key]
                whole = held.info.size <= self.chunk_bytes
                self.links.remove_chunk(key, number, whole=whole)
                if whole:
                    self.views.unlink(key, for_good=damaged)
                del held.chunks[number]
                if not held.chunks:
                    del self._objects[key]
            self._fault("before the file loses its name")
            self._index.remove_hash(digest)
            try:
                self.file(digest).rename(self.root / "dying" / digest)
                self._dying[digest] = content.allocated
            except FileNotFoundError:  # removed by another hand
                self._used -= content.allocated
            self.evictions += 1
            self._fault("after the file lost its name")

    def drop(self, key: str) -> None:
        """Forget an object: it changed, or is gone."""
        with self._mutex:
            held = self._objects.get(key)
            if held is None:
                return
            for number, digest in list(held.chunks.items()):
                content = self._contents[digest]
                if len(content.references) == 1:
                    self.evict(digest)
                    continue
                content.references.discard((key, number))
                self.links.remove_chunk(key, number, whole=held.info.size <= self.chunk_bytes)
                self.views.unlink(key)
            self._objects.pop(key, None)
            self._index.remove_object(key)

    def reap(self) -> None:
        """Remove what was evicted and is open nowhere any more."""
        with self._mutex:
            for digest in list(self._dying):
                path = self.root / "dying" / digest
                with suppress(OSError):
                    if path.stat().st_nlink == 1 and _open_nowhere(path):
                        path.unlink()
                        self._used -= self._dying.pop(digest)

    # --- start ---

    def recover(self) -> None:
        """Take up what the disk holds: at the start, and when a disk that failed is back. Files and rows that have no
        partner go, and so does a file of the wrong size. After another boot the disk may hold less than was written:
        then every file is read again before it gets a link."""
        with self._mutex:
            self._contents, self._objects, self._dying = {}, {}, {}
            for path in (self.root / "fills").iterdir():
                if path not in self._filling:
                    path.unlink()
            for path in (self.root / "dying").iterdir():
                self._dying[path.name] = path.stat().st_blocks * 512
            self._pair_rows_with_files()
            boot = _BOOT.read_text().strip() if _BOOT.exists() else ""
            if self._index.fact("boot") != boot:
                self._doubted = set(self._contents)
                for view in self.views.all():
                    self.views.release(view.tenant, view.name)
                self._index.set_fact("boot", boot)
            for folder, key in list(self.links.all()):
                self._check_link(folder, key)
            taken = [
                *(one.allocated for one in self._contents.values()),
                *self._dying.values(),
                *self._filling.values(),
            ]
            self._used = sum(taken)
            self.reap()

    def _pair_rows_with_files(self) -> None:
        rows: dict[str, list[tuple[str, int, int]]] = {}
        for key, number, digest, count in self._index.chunks():
            rows.setdefault(digest, []).append((key, number, count))
        infos = {info.key: info for info in self._index.objects()}
        for path in (self.root / "chunks").iterdir():
            found, known = path.stat(), rows.pop(path.name, [])
            if not known or any(count != found.st_size or key not in infos for key, _, count in known):
                self._index.remove_hash(path.name)
                path.rename(self.root / "dying" / path.name)
                self._dying[path.name] = found.st_blocks * 512
                continue
            references = {(key, number) for key, number, _ in known}
            self._contents[path.name] = Content(found.st_size, found.st_blocks * 512, references)
            for key, number in references:
                self._objects.setdefault(key, Held(infos[key])).chunks[number] = path.name
        for digest in rows:
            self._index.remove_hash(digest)
        for key in infos.keys() - self._objects.keys():
            self._index.remove_object(key)

    def _check_link(self, folder: Path, key: str) -> None:
        """A link to anything but the present content goes."""
        held = self._objects.get(key)
        if held is None or self._doubted:
            remove_links(folder, key)
            return
        for number, name in linked(folder, key):
            digest = held.chunks.get(number)
            if digest is None or not name.samefile(self.file(digest)):
                name.unlink()

    def check_contents(self) -> Iterator[str]:
        """Read every file again, one a step; evict, and give, the hashes of those that are damaged."""
        for digest in self.contents():
            if not self._verified(digest):
                yield digest

    def _verified(self, digest: str) -> bool:
        """Whether the file is what its name says; it is evicted where it is not."""
        try:
            good = digest_of(self.file(digest)) == digest
        except OSError:
            good = digest not in self._contents  # evicted meanwhile
        with self._mutex:
            self._doubted.discard(digest)
            if not good:
                self.evict(digest, damaged=True)
        return good


class Fill:
    """A file that is being written. `write` and `commit`, or `abort`; as a context manager it aborts by itself."""

    def __init__(self, store: Store, path: Path, size: int) -> None:
        self._store = store
        self.path = path
        self.size = size
        self._written = 0
        self._hash = blake2b(digest_size=32)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        if size:
            try:
                os.posix_fallocate(self._fd, 0, size)
            except OSError:
                os.close(self._fd)
                raise

    def write(self, data: bytes) -> None:
        """Raises Conflict for more than was announced, OSError where the disk fails."""
        self._written += len(data)
        if self._written > self.size:
            raise Conflict(f"the source sent more than the {self.size} bytes that it announced")
        self._hash.update(data)
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]

    def commit(self, info: ObjectInfo, number: int) -> str:
        """Its hash. Raises Conflict when bytes are missing."""
        if self._written != self.size:
            raise Conflict(f"the source sent {self._written} of the {self.size} bytes that it announced")
        digest = self._hash.hexdigest()
        self._store._keep(self, info, number, digest)
        return digest

    def __enter__(self) -> Fill:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)
        self._store._release(self.path)


def digest_of(path: Path) -> str:
    found = blake2b(digest_size=32)
    with path.open("rb", buffering=0) as file:
        while part := file.read(1 << 20):
            found.update(part)
    return found.hexdigest()


def _open_nowhere(path: Path) -> bool:
    """Whether no process has the file open or mapped: only then the kernel grants a write lease. Where there are no
    leases it is taken for closed."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        os.close(descriptor)  # and with it the lease
    return True
