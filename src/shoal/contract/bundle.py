"""Working files as one tar archive, byte for byte the same for the same files: so they are stored once."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

from shoal.core import Invalid

EXCLUDED = (
    ".git", ".hg", ".svn", ".venv", "venv", "__pycache__", "*.pyc", ".mypy_cache", ".pytest_cache", ".ruff_cache",
    ".ipynb_checkpoints", "node_modules", ".DS_Store",
)  # fmt: skip
"""Never packed, wherever they are found below a directory that is."""

LIMIT_BYTES = 64 << 20


def pack(
    base: Path,
    patterns: Sequence[str],
    *,
    limit_bytes: int = LIMIT_BYTES,
    too_much: str = "leave data out and name it under `inputs`",
) -> bytes:
    """The files below `base` that match (paths, directories or globs), as a tar archive.

    Raises Invalid for a pattern without a file, a path or link that leaves `base`, and too much (with that hint).
    """
    base = base.resolve()
    files: dict[str, Path] = {}
    for position, pattern in enumerate(patterns):
        found = list(_matching(base, pattern, f"files[{position}]"))
        if not found:
            raise Invalid(f"no file matches {pattern!r} in {base}", where=f"files[{position}]", hint="check the path")
        files.update(found)
    total = sum(path.stat().st_size for path in files.values())
    if total > limit_bytes:
        raise Invalid(
            f"the files are {total / 2**20:.0f} MiB, over the limit of {limit_bytes / 2**20:.0f} MiB",
            where="files",
            hint=too_much,
        )
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(files):
            _add(tar, name, files[name])
    return archive.getvalue()


def _matching(base: Path, pattern: str, where: str) -> Iterator[tuple[str, Path]]:
    if pattern.startswith(("/", "~")) or ".." in Path(pattern).parts:
        raise Invalid(f"{pattern!r} is not below {base}", where=where, hint="name files relative to the manifest")
    direct = base / pattern
    starts = [direct] if direct.exists() else sorted(base.glob(pattern))
    for start in starts:
        for path in _walk(start):
            target = path.resolve()
            if not target.is_relative_to(base):
                raise Invalid(
                    f"{path.relative_to(base)} leads out of {base}", where=where, hint="copy the file, or use `inputs`"
                )
            if target.is_file():
                yield path.relative_to(base).as_posix(), target


def _walk(path: Path) -> Iterator[Path]:
    """The files at or below a path. Linked directories are not entered: they could lead round in circles."""
    if not path.is_dir():
        yield path
    elif not path.is_symlink():
        yield from _below(sorted(path.iterdir()))


def _below(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if not any(fnmatch(path.name, excluded) for excluded in EXCLUDED):
            yield from _walk(path)


def _add(tar: tarfile.TarFile, name: str, path: Path) -> None:
    """Content, name and whether it is executable; not who owns it or when it changed."""
    data = path.read_bytes()
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    entry.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
    tar.addfile(entry, io.BytesIO(data))
