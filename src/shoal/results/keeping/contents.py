"""Stores of contents: one copy of each for a tenant, in a folder or at a URL. Everything here blocks.

A content is known by a row of the database, written once it is here. What has no row is not there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from shoal.base import trees
from shoal.base.files import flush_folder

_DIGEST = re.compile(r"[0-9a-f]{64}")
_DEPTH = 3
"""Parts of the path of a content: tenant, beginning of the digest, digest."""


class Contents(Protocol):
    """By tenant and digest. All may raise OSError."""

    def put(self, tenant: str, digest: str, source: Path) -> None:
        """Keep what a local file holds. It is on disk, or at the other place, when this returns."""
        ...

    def read(self, tenant: str, digest: str, offset: int, limit: int) -> bytes: ...

    def remove(self, tenant: str, digest: str) -> None:
        """One that is not there is no trouble."""
        ...

    def listed(self) -> Iterator[tuple[str, str]]:
        """Tenant and digest of all that is there, whole or not."""
        ...


def place_of(where: str, plane: str) -> str:
    """Where a plane has the contents of its tenants: below the place of the server's. Those names are no tenant's
    there: nothing of a plane is at the depth of a content of the server's."""
    links = where.split("::")  # such as simplecache::s3://bucket/kept: the first one with a path has them
    at = next((at for at, link in enumerate(links) if "://" in link or link.startswith("/")), 0)
    links[at] = f"{links[at].rstrip('/')}/planes/{plane}"
    return "::".join(links) if where else ""


def remove_place(where: str) -> None:
    """With all that is there; where nothing is left, that is no trouble. Raises OSError, ValueError and ImportError."""
    plain = where.removeprefix("file://")
    if "://" not in plain and "::" not in plain:
        if (remains := trees.remove(plain)) is not None:
            raise OSError(f"cannot be removed: {remains}")
        return
    UrlContents(where).remove_all()


def contents_at(where: str, own: Path) -> Contents:
    """Those at a folder or URL; empty: in the folder `own`. Raises OSError, ValueError and ImportError."""
    plain = where.removeprefix("file://")
    if "://" not in plain and "::" not in plain:
        folder = Path(plain) if plain else own
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return FolderContents(folder)
    return UrlContents(where)


class FolderContents:
    """`FOLDER/TENANT/ab/DIGEST`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, tenant: str, digest: str, source: Path) -> None:
        target = self._path(tenant, digest)
        for folder in (target.parent.parent, target.parent):
            if not folder.is_dir():
                folder.mkdir(mode=0o700, exist_ok=True)
                flush_folder(folder.parent)
        if source.stat().st_dev == target.parent.stat().st_dev:
            source.replace(target)
        else:
            _copy_whole(source, target)
        flush_folder(target.parent)

    def read(self, tenant: str, digest: str, offset: int, limit: int) -> bytes:
        file = os.open(self._path(tenant, digest), os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(file, limit, offset)
        finally:
            os.close(file)

    def remove(self, tenant: str, digest: str) -> None:
        self._path(tenant, digest).unlink(missing_ok=True)

    def listed(self) -> Iterator[tuple[str, str]]:
        for path in self._folder.glob("*/??/*"):
            if _DIGEST.fullmatch(path.name):
                yield path.parent.parent.name, path.name
            elif path.name.endswith(".part"):
                path.unlink(missing_ok=True)

    def _path(self, tenant: str, digest: str) -> Path:
        return self._folder / tenant / digest[:2] / digest


def _copy_whole(source: Path, target: Path) -> None:
    import shutil

    part = target.with_name(f"{target.name}.part")
    try:
        with source.open("rb") as reader, part.open("wb") as writer:
            shutil.copyfileobj(reader, writer, 1 << 20)
            writer.flush()
            os.fsync(writer.fileno())
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    source.unlink()


class UrlContents:
    """The same below an URL that fsspec knows. What a client of a store raises is told as an OSError."""

    def __init__(self, url: str) -> None:
        import fsspec

        self._files, self._root = fsspec.core.url_to_fs(url)

    def put(self, tenant: str, digest: str, source: Path) -> None:
        target, size = self._path(tenant, digest), source.stat().st_size

        def send() -> None:
            self._files.makedirs(target.rpartition("/")[0], exist_ok=True)
            self._files.put_file(str(source), target)
            self._files.invalidate_cache()
            if self._files.size(target) != size:
                raise OSError(0, "the store did not keep all of it", target)

        _of_store(send)
        source.unlink(missing_ok=True)

    def read(self, tenant: str, digest: str, offset: int, limit: int) -> bytes:
        path = self._path(tenant, digest)
        return bytes(_of_store(lambda: self._files.cat_file(path, start=offset, end=offset + limit)))

    def remove(self, tenant: str, digest: str) -> None:
        path = self._path(tenant, digest)

        def drop() -> None:
            try:
                self._files.rm_file(path)
            except FileNotFoundError:
                return

        _of_store(drop)

    def listed(self) -> Iterator[tuple[str, str]]:
        self._files.invalidate_cache()
        if not _of_store(lambda: self._files.exists(self._root)):
            return
        above = len(str(self._root).strip("/").split("/"))
        for path in _of_store(lambda: self._files.find(self._root)):
            parts = str(path).strip("/").split("/")[above:]
            if len(parts) == _DEPTH and _DIGEST.fullmatch(parts[-1]):
                yield parts[0], parts[-1]

    def remove_all(self) -> None:
        """Everything below the URL."""
        self._files.invalidate_cache()
        if _of_store(lambda: self._files.exists(self._root)):
            _of_store(lambda: self._files.rm(self._root, recursive=True))

    def _path(self, tenant: str, digest: str) -> str:
        return f"{str(self._root).rstrip('/')}/{tenant}/{digest[:2]}/{digest}"


def _of_store(act: Any) -> Any:
    """Clients of stores have errors of their own."""
    try:
        return act()
    except OSError:
        raise
    except Exception as problem:
        raise OSError(0, f"the store says: {type(problem).__name__}: {problem}"[:300]) from problem
