"""The folders of planes, each named by its plane's id.

A folder is made under another name and takes its own only once its plane is recorded; it loses that name before the
record goes. So whatever kills the server, a folder that bears an id belongs to the plane of that id, and what is left
over of a plane that never was, or is no more, is known by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

from shoal.base import trees
from shoal.base.files import flush_folder, write_whole
from shoal.core import Unavailable
from shoal.store import find_loss
from shoal.tenancy.records import PlaneRecord

_NEW, _DELETED, _MOVING = ".new-", ".deleted-", ".moving-"
_BY_ID = ".by-id"
"""Stands there once no folder is looked for by its plane's name any more, as folders once were named."""


def remove_tree(path: Path) -> None:
    """Raises OSError where something of it stays."""
    if (remains := trees.remove(str(path))) is not None:
        raise OSError(f"cannot be removed: {remains}")


class PlaneHomes:
    """Those below `folder`. `forget` is called with the id of a plane that is no more, before its folder is removed.
    Every method blocks, and raises OSError."""

    def __init__(
        self, folder: Path, remove: Callable[[Path], None] = remove_tree,
        forget: Callable[[str], None] = lambda _: None,
    ) -> None:  # fmt: skip
        self._folder = folder
        self._forget = forget
        self._remove = remove
        self._changing: set[str] = set()

    def find(self, plane_id: str) -> Path:
        """Where a plane's files are. A link says that they are still where an earlier version had them."""
        path = self._folder / plane_id
        return self._folder / path.readlink() if path.is_symlink() else path

    def url(self, plane_id: str) -> str:
        """Of its database. Raises Unavailable where that is missing, or has lost what was acknowledged."""
        database = self.find(plane_id) / "shoal.db"
        url = f"sqlite:///{database}"
        if (loss := find_loss(url)) is not None:
            raise loss.error()
        if not database.exists():
            raise Unavailable("the database is missing", where=str(database))
        return url

    # --- making and removing ---

    def make(self, plane_id: str) -> Path:
        """A folder for a plane that is not recorded yet. Raises FileExistsError rather than take what is there."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._folder / f"{_NEW}{plane_id}"
        path.mkdir(mode=0o700)
        self._changing.add(plane_id)
        return path

    def publish(self, plane_id: str) -> None:
        """The plane is recorded."""
        self._rename(self._folder / f"{_NEW}{plane_id}", self._folder / plane_id)
        self._changing.discard(plane_id)

    def drop(self, plane_id: str) -> None:
        """The plane was not recorded, or its record is gone: what was made or retired is left over."""
        self._changing.discard(plane_id)

    def retire(self, plane_id: str) -> None:
        """The plane's record is about to go."""
        self._changing.add(plane_id)
        if (path := self.find(plane_id)).is_dir():
            self._rename(path, self._folder / f"{_DELETED}{plane_id}")
        link = self._folder / plane_id
        if link.is_symlink():
            link.unlink()

    def restore(self, plane_id: str) -> None:
        """The plane's record stayed."""
        if (path := self._folder / f"{_DELETED}{plane_id}").is_dir():
            self._rename(path, self._folder / plane_id)
        self._changing.discard(plane_id)

    def left_over(self) -> list[Path]:
        """Folders of planes that are not recorded, where `settle` was called before."""
        named = [(path, path.name.removeprefix(kind)) for kind in (_NEW, _DELETED) for path in self._hidden(kind)]
        return [path for path, plane_id in named if plane_id not in self._changing]

    def sweep(self) -> None:
        """Remove what is left over, one after the other. Raises what the first failure was, after all were tried."""
        failures = []
        for path in self.left_over():
            try:
                self._forget(path.name.removeprefix(_NEW).removeprefix(_DELETED))
                self._remove(path)
            except Exception as error:
                failures.append(error)
        if failures:
            raise failures[0]

    # --- after a start ---

    def settle(self, records: Iterable[PlaneRecord], busy: Collection[str]) -> None:
        """Give every recorded plane its folder, wherever the last server was killed. Folders of an earlier version,
        named by their planes' names, are found once. One whose plane is among the `busy` is moved later: its processes
        know it by that name."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        by_id = (self._folder / _BY_ID).exists()
        for record in records:
            path, named = self._folder / record.id, self._folder / record.name
            for former in (_NEW, _DELETED, _MOVING):
                if (found := self._folder / f"{former}{record.id}").is_dir() and not path.is_dir():
                    path.unlink(missing_ok=True)
                    self._rename(found, path)
            if not by_id and named.is_dir() and not path.is_symlink() and not path.exists():
                path.symlink_to(record.name)
            if record.id not in busy:
                self.move(record.id)
        if not by_id:
            write_whole(self._folder / _BY_ID, "")

    def move(self, plane_id: str) -> None:
        """Nothing of the plane runs: its files move to the folder named by its id, where they are not there yet."""
        path, found = self._folder / plane_id, self.find(plane_id)
        if path.is_symlink() and found.is_dir():
            moving = self._folder / f"{_MOVING}{plane_id}"
            self._rename(found, moving)
            path.unlink()
            self._rename(moving, path)

    def _hidden(self, beginning: str) -> Iterator[Path]:
        return (path for path in self._folder.glob(".*") if path.name.startswith(beginning))

    def _rename(self, old: Path, new: Path) -> None:
        old.rename(new)
        flush_folder(self._folder)
