"""Views of jobs on their inputs: names that lead to the fast disk where an object is there whole, else to the source.

    ROOT/views/TENANT/VIEW/KEY/files/   NAME is a hard link to an object, or a symbolic link into `rest`
    ROOT/views/TENANT/VIEW/KEY/rest/    a FUSE mount of the source; absent where there is none
    ROOT/views/TENANT/VIEW/KEY/names    JSON: the set, and the name of each object by its key

With a mount, what is evicted becomes a symbolic link, and what arrives a hard one, so that a job holds nothing back.
Without one, a job keeps what it was linked until its view ends: such a file counts against the limit, evicted or not.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from shoal.base import trees
from shoal.base.files import write_whole
from shoal.cache.sources.source import key_of
from shoal.cache.store.links import folder_name

_FILES, _REST, NAMES, _BESIDE = "files", "rest", "names", "new"


@dataclass(slots=True)
class View:
    """One input of one attempt of a job: a data set. `linked` are the keys of what is a hard link now."""

    tenant: str
    name: str
    part_of: str
    folder: Path
    names: Mapping[str, str]
    mounted: bool = False
    linked: set[str] = field(default_factory=set)

    @property
    def files(self) -> Path:
        return self.folder / _FILES

    @property
    def rest(self) -> Path:
        return self.folder / _REST


class Views:
    """Thread-safe. No call follows a symbolic link of a view: it would wait for FUSE."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._mutex = threading.RLock()
        self._views: dict[Path, View] = {}
        self._by_key: dict[str, list[View]] = {}
        root.mkdir(mode=0o711, exist_ok=True)
        root.chmod(0o711)
        for folder in root.glob("*/*/*"):
            self._load(folder)
        for view in root.glob("*/*"):  # empty where its daemon was killed just before or after
            with suppress(OSError):
                view.rmdir()

    def all(self) -> list[View]:
        with self._mutex:
            return list(self._views.values())

    def make(self, tenant: str, name: str, part_of: str, uid: int, names: Mapping[str, str]) -> View:
        """An empty view of these objects, or the one that there is. Names that are no file's are left out."""
        view = tenant_folder(self._root, tenant) / name
        folder = view / key_of(part_of)
        with self._mutex:
            if (found := self._views.get(folder)) is not None:
                return found
            view.mkdir(mode=0o700, exist_ok=True)
            own = uid == os.geteuid()
            if not own:
                os.chown(view, os.geteuid(), uid)
            view.chmod(0o700 if own else 0o750)
            _remove(folder)
            for path in (folder, folder / _FILES):
                path.mkdir(mode=0o755)
                path.chmod(0o755)
            kept = {key: below for key, below in names.items() if _is_name(below)}
            made = View(tenant, name, part_of, folder, kept)
            write_whole(folder / NAMES, json.dumps({"set": part_of, "names": kept}), mode=0o444, durable=False)
            self._add(made)
            return made

    def mount(self, view: View) -> None:
        """`rest` shows the source now: what is not linked leads there."""
        with self._mutex:
            view.mounted = True
            for key in view.names.keys() - view.linked:
                self._place(view, key, None)

    def link(self, tenant: str, key: str, file: Path) -> None:
        """The object is there, and the tenant may read it."""
        with self._mutex:
            for view in self._by_key.get(key, ()):
                if view.tenant == tenant:
                    self._place(view, key, file)

    def unlink(self, key: str, tenant: str | None = None, *, for_good: bool = False) -> None:
        """The object is evicted. `for_good`: it may be read no more, by this tenant or by any: no view keeps it."""
        with self._mutex:
            for view in self._by_key.get(key, ()):
                if tenant in (None, view.tenant) and (view.mounted or for_good):
                    self._place(view, key, None)

    def release(self, tenant: str, name: str) -> None:
        """The job is over: all views of this name end."""
        with self._mutex:
            over = [one for one in self._views.values() if (one.tenant, one.name) == (tenant, name)]
            for view in over:
                del self._views[view.folder]
                for key in view.names:
                    self._by_key[key].remove(view)
                    if not self._by_key[key]:
                        del self._by_key[key]
        for view in over:
            _remove(view.folder)
        with suppress(OSError):
            (self._root / folder_name(tenant) / name).rmdir()

    def _load(self, folder: Path) -> None:
        try:
            told = json.loads((folder / NAMES).read_bytes())
            part_of, names = str(told["set"]), dict(told["names"])
        except (OSError, ValueError, TypeError, KeyError):  # half made
            _remove(folder)
            return
        view = View(_tenant(folder.parents[1]), folder.parent.name, part_of, folder, names, (folder / _REST).exists())
        for key, name in names.items():
            with suppress(OSError):
                if stat.S_ISREG((view.files / name).lstat().st_mode):
                    view.linked.add(key)
        self._add(view)

    def _add(self, view: View) -> None:
        self._views[view.folder] = view
        for key in view.names:
            self._by_key.setdefault(key, []).append(view)

    def _place(self, view: View, key: str, file: Path | None) -> None:
        """One step from what was there: a reader finds one or the other."""
        name, beside = view.files / view.names[key], view.folder / _BESIDE
        try:
            beside.unlink(missing_ok=True)
            if file is None and not view.mounted:
                name.unlink(missing_ok=True)
            else:
                name.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
                if file is not None:
                    beside.hardlink_to(file)
                else:
                    beside.symlink_to(view.rest / view.names[key])
                beside.replace(name)
                beside.unlink(missing_ok=True)  # it was the same file already
        except OSError:  # of a name that is a folder of another, or of a disk that is full: it is read another way
            return
        if file is not None:
            view.linked.add(key)
        else:
            view.linked.discard(key)


def tenant_folder(root: Path, tenant: str) -> Path:
    """Of all views of a tenant, made where there is none. Each view in it is closed to other users."""
    path = root / folder_name(tenant)
    path.mkdir(mode=0o711, parents=True, exist_ok=True)
    path.chmod(0o711)
    return path


def mounts_of(root: Path, tenant: str, name: str) -> Iterator[Path]:
    """The mounts in a view, which a sandbox does not see with the folder around them. None of them is touched."""
    for folder in sorted((root / folder_name(tenant) / name).glob("*")):
        if _REST in os.listdir(folder):  # noqa: PTH208 no stat of a mount
            yield folder / _REST


def _tenant(folder: Path) -> str:
    from urllib.parse import unquote

    return unquote(folder.name)


def _is_name(below: str) -> bool:
    parts = PurePosixPath(below).parts
    return (
        "/".join(parts) == below and ".." not in parts and "\0" not in below
        and bool(parts) and parts[0] != "/" and all(len(os.fsencode(one)) < 256 for one in parts)
    )  # fmt: skip


def _remove(folder: Path) -> None:
    """Of a view, with its mount. What cannot be unmounted stays, without names, for the next start."""
    (folder / NAMES).unlink(missing_ok=True)  # the process of the mount ends when this is gone
    rest = folder / _REST
    if folder.is_dir() and _REST in os.listdir(folder):  # noqa: PTH208
        with suppress(OSError):
            subprocess.run(["fusermount3", "-u", "-z", rest], check=False, capture_output=True)
    trees.remove(str(folder))
