"""Choice of the files that a job wants kept, and their names as artifacts. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache

from shoal.base.beneath import parts_of

LONGEST_NAME = 512
_MAGIC = frozenset("*?[")
_DEEP = "**"

Parts = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A path or pattern in a job's directory. `name` is what its file is called, or what stands before the names of
    several. `literal`: it is a path, whatever characters it has."""

    path: str
    name: str | None = None
    literal: bool = False

    @property
    def parts(self) -> Parts:
        return parts_of(self.path)

    @property
    def fixed(self) -> Parts:
        """The directory above all that a pattern may mean; of a path, all of it."""
        parts = self.parts
        if self.literal:
            return parts
        return parts[: next((at for at, part in enumerate(parts) if _MAGIC & set(part)), len(parts))]

    @property
    def pattern(self) -> bool:
        return len(self.fixed) < len(self.parts)

    def covers(self, parts: Sequence[str]) -> bool:
        """Whether it means this file, or a directory above it."""
        if not self.pattern:
            return tuple(parts[: len(self.parts)]) == self.parts
        return any(_matches(self.parts, tuple(parts[:end])) for end in range(1, len(parts) + 1))

    def name_of(self, parts: Sequence[str]) -> str:
        """What one of its files is called."""
        if self.name is None:
            return "/".join(parts)
        return "/".join((self.name, *parts[len(self.fixed) :]))


@lru_cache(maxsize=4096)
def _matches(pattern: Parts, parts: Parts) -> bool:
    """As a shell does: `*` stays in a directory, `**` is any number of them, and a dot at the beginning is named."""
    if not pattern:
        return not parts
    if pattern[0] == _DEEP:
        if _matches(pattern[1:], parts):
            return True
        return bool(parts) and not parts[0].startswith(".") and _matches(pattern, parts[1:])
    if not parts or (parts[0].startswith(".") and not pattern[0].startswith(".")):
        return False
    return fnmatchcase(parts[0], pattern[0]) and _matches(pattern[1:], parts[1:])


def check_path(path: str) -> str:
    """Raises ValueError for what leads out of the job's directory, or that nobody could type."""
    parts_of(path)
    if not path.isprintable() or path.count(_DEEP) > 4:
        raise ValueError(f"{path!r} is no path of an artifact")
    return path


def check_name(name: str) -> str:
    """A name that is the same wherever it is used as a path. Raises ValueError."""
    if not name or len(name) > LONGEST_NAME or not name.isprintable():
        raise ValueError(f"{name[:80]!r} is no name: at most {LONGEST_NAME} printable characters")
    if any(part in ("", ".", "..") for part in name.split("/")):
        raise ValueError(f"{name[:80]!r} is no name: it is used as a path below a directory")
    return name


def artifact_id(tenant: str, job: str, attempt: int, name: str) -> str:
    """The same for the same place: what is taken twice is there once. `job` is empty for what was uploaded alone."""
    return "f-" + hashlib.sha256("\n".join((tenant, job, str(attempt), name)).encode()).hexdigest()[:24]
