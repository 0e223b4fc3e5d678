"""The names under which a tenant reads: hard links to cached files, in a directory that it alone can enter.

`links/TENANT/KEY` is an object in one file. `links/TENANT/KEY.d/` is one in chunks: `meta` says of which version, and
the links are named by number. A new version is another directory, so that a reader which has one open sees no mix.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from shoal.base.files import write_whole
from shoal.cache.store.index import ObjectInfo

META = "meta"


def folder_name(tenant: str) -> str:
    return quote(tenant, safe="").replace(".", "%2E")


class Links:
    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(mode=0o711, exist_ok=True)
        root.chmod(0o711)

    def folder(self, tenant: str, uid: int | None = None) -> Path:
        """The tenant's directory, made where there is none. `uid` may enter it, and change nothing there."""
        path = self._root / folder_name(tenant)
        if not path.exists() or uid is not None:
            path.mkdir(mode=0o700, exist_ok=True)
            own = uid is None or uid == os.geteuid()
            if not own:
                os.chown(path, os.geteuid(), uid or 0)
            path.chmod(0o700 if own else 0o750)
        return path

    def all(self) -> Iterator[tuple[Path, str]]:
        """(folder, key) of every object that some tenant has links to. What was left half made is removed."""
        for folder in self._root.iterdir():
            for entry in folder.iterdir():
                if entry.name.startswith("."):
                    _remove(entry)
                else:
                    yield folder, entry.name.removesuffix(".d")

    def add(self, tenant: str, info: ObjectInfo, files: Mapping[int, Path], chunk_bytes: int) -> None:
        """Link these files, by number of the chunk. Those linked before stay."""
        folder = self.folder(tenant)
        if info.size <= chunk_bytes:
            _link(files[0], folder / info.key)
            return
        inside = folder / f"{info.key}.d"
        meta = json.dumps({"tag": info.tag, "size": info.size, "chunk_bytes": chunk_bytes})
        with suppress(FileNotFoundError):
            if (inside / META).read_text() != meta:
                self.remove(tenant, info.key)
        if not inside.exists():
            beside = folder / f".{info.key}.new"
            beside.mkdir(mode=0o755, exist_ok=True)
            beside.chmod(0o755)
            write_whole(beside / META, meta, mode=0o444, durable=False)
            beside.rename(inside)
        for number, file in files.items():
            _link(file, inside / str(number))

    def remove(self, tenant: str, key: str) -> None:
        remove_links(self.folder(tenant), key)

    def remove_chunk(self, key: str, number: int, *, whole: bool) -> None:
        """Of all tenants."""
        for folder in self._root.iterdir():
            (folder / key if whole else folder / f"{key}.d" / str(number)).unlink(missing_ok=True)


def remove_links(folder: Path, key: str) -> None:
    (folder / key).unlink(missing_ok=True)
    inside = folder / f"{key}.d"
    if not inside.is_dir():
        return
    gone = folder / f".{key}.gone"  # a reader that comes now finds no half of it
    inside.rename(gone)
    _remove(gone)


def linked(folder: Path, key: str) -> list[tuple[int, Path]]:
    """The links of a tenant to an object, by number of the chunk."""
    whole, inside = folder / key, folder / f"{key}.d"
    found = [(0, whole)] if whole.exists() else []
    if inside.is_dir():
        found += [(int(entry.name), entry) for entry in inside.iterdir() if entry.name.isdigit()]
    return found


def _remove(path: Path) -> None:
    """A file, or a folder of files."""
    if not path.is_dir():
        path.unlink()
        return
    for entry in path.iterdir():
        entry.unlink()
    path.rmdir()


def _link(file: Path, name: Path) -> None:
    """Replaces what has the name, and leaves it alone where it is the same file."""
    try:
        name.hardlink_to(file)
    except FileExistsError:
        if name.samefile(file):
            return
        beside = name.with_name(f".{name.name}.new")
        beside.unlink(missing_ok=True)
        beside.hardlink_to(file)
        beside.replace(name)
