"""A project's lock file among a job's files, and what it stands for."""

from __future__ import annotations

import hashlib
import platform
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from shoal.core import Invalid

_MOST_BYTES = 16 << 20
_PROJECT, _PYTHON = "pyproject.toml", ".python-version"
LOCK = "uv.lock"
_HINT = f"name it with its project in the manifest: files: [{_PROJECT}, {LOCK}]"


@dataclass(frozen=True, slots=True)
class Locked:
    """The text of each file by its name. The key is a digest of them, and of what decides which packages fit here."""

    files: Mapping[str, bytes]
    options: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        digest = hashlib.sha256()
        words = (platform.machine(), platform.libc_ver()[0], *self.options)
        for part in (*(word.encode() for word in words), *(one for item in sorted(self.files.items()) for one in
                                                          (item[0].encode(), item[1]))):  # fmt: skip
            digest.update(len(part).to_bytes(8) + part)
        return digest.hexdigest()[:32]


def read_locked(bundle: Path, lock: str, options: tuple[str, ...] = ()) -> Locked:
    """The lock file at this path of a job's bundle, with its project. Nothing is unpacked. Raises Invalid where it is
    not there, and OSError. Blocks."""
    folder = PurePosixPath(lock).parent
    wanted = {str(folder / name): name for name in (_PROJECT, _PYTHON)} | {str(PurePosixPath(lock)): LOCK}
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(bundle, "r:*") as archive:
            for member in archive:
                name = wanted.get(str(PurePosixPath(member.name)))
                if name is None or not member.isfile():
                    continue
                if member.size > _MOST_BYTES:
                    raise Invalid(f"{member.name} is larger than {_MOST_BYTES >> 20} MiB", where="environment.uv")
                file = archive.extractfile(member)
                found[name] = b"" if file is None else file.read()
    except (tarfile.TarError, EOFError, ValueError) as problem:
        raise Invalid(f"the job's files cannot be read: {problem}", where="files") from problem
    for name, path in ((LOCK, lock), (_PROJECT, str(folder / _PROJECT))):
        if name not in found:
            raise Invalid(f"there is no {path} among the job's files", where="environment.uv", hint=_HINT)
    return Locked(found, options)
