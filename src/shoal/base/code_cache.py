"""Compiled code on disk, by the name of what it was made from."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from shoal.base.files import write_whole

_MAGIC = b"shoal kernel 1\n"
_DIGEST = 32
_LARGEST = 64 << 20
"""The code of every kernel is smaller than this; a larger file is not a kernel."""


def cache_folder(environ: Mapping[str, str]) -> Path:
    """The user's own folder for what can be made again (the XDG base directory specification)."""
    return Path(environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "shoal" / "kernels"


@dataclass
class CodeCache:
    """A folder of object code, or none.

    An entry begins with the digest of its code: one that is damaged is compiled anew. Writing is atomic; two processes
    that compile the same kernel write the same bytes. Where nothing can be written, kernels stay in memory, and
    `remarks` has what went wrong, once each.
    """

    folder: Path | None
    remarks: list[str] = field(default_factory=list)
    hits: int = 0
    misses: int = 0

    def get(self, key: str, make: Callable[[], bytes]) -> bytes:
        """The code of this name, from the folder or made and kept."""
        found = self._read(key)
        if found is not None:
            self.hits += 1
            return found
        self.misses += 1
        code = make()
        self._write(key, code)
        return code

    def _read(self, key: str) -> bytes | None:
        if self.folder is None:
            return None
        path = self.folder / f"{key}.o"
        try:
            with path.open("rb") as file:
                if os.fstat(file.fileno()).st_uid != os.getuid():
                    self._remark(f"{path} belongs to another user and is not used")
                    return None
                data = file.read(_LARGEST)
        except OSError:
            return None
        code = data[len(_MAGIC) + _DIGEST :]
        if not data.startswith(_MAGIC) or data[len(_MAGIC) : len(_MAGIC) + _DIGEST] != hashlib.sha256(code).digest():
            self._remark(f"{path} is damaged; the kernel was compiled anew")
            return None
        return code

    def _write(self, key: str, code: bytes) -> None:
        if self.folder is None:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_whole(self.folder / f"{key}.o", _MAGIC + hashlib.sha256(code).digest() + code, durable=False)
        except OSError as error:
            self._remark(f"{self.folder} cannot be written ({error.strerror}); kernels stay in memory")

    def _remark(self, text: str) -> None:
        if text not in self.remarks:
            self.remarks.append(text)
