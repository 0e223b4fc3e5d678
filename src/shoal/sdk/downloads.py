"""Files of jobs brought here: in pieces that are checked, under another name until they are whole."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.base.beneath import parts_of
from shoal.contract.calls import Emit, Exchange, Flow
from shoal.core import Conflict, Invalid, ShoalError
from shoal.sdk import models, operations

if TYPE_CHECKING:
    from io import BufferedRandom

_PAGE = 10_000
_TRIES = 3
_CHUNK = 1 << 20
_PART_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


def download(
    exchange: Exchange,
    ref: str,
    path: str = "",
    *,
    to: str | Path | None = None,
    tenant: str | None = None,
    attempt: int | None = None,
) -> Flow[None]:
    """Bring a file or directory of a job here: all of it without a `path`. Gives a `Download` after each piece.

    A file is put into the directory `to` (default: the present one). A directory's content is put into `to` (default: a
    directory of its name, or of the job's). A file has its name once it is whole; what was fetched before is used again
    when the same is downloaded to the same place. Links and special files are left out.
    """
    job = yield from exchange.perform(operations.job(ref, tenant=tenant))
    entries = yield from _all_files(exchange, job.id, path, attempt)
    asked = _parts(path)
    if len(entries) == 1 and entries[0].path == "/".join(asked) and entries[0].kind != "directory":
        wanted = [(entries[0], Path(to or ".") / asked[-1])]
    else:
        base = Path(to) if to is not None else Path(asked[-1] if asked else job.name)
        wanted = [(one, base.joinpath(*_parts(one.path)[len(asked) :])) for one in entries]
    for entry, target in wanted:
        if entry.kind == "file":
            yield from _fetch(exchange, job.id, entry.path, target, attempt)
        elif len(wanted) == 1 and entry.kind != "directory":
            raise Invalid(f"{path!r} is no regular file", where="path", hint="links are not followed: name the file")


def _all_files(exchange: Exchange, job_id: str, path: str, attempt: int | None) -> Flow[list[models.FileView]]:
    found: list[models.FileView] = []
    after = None
    while True:
        page = yield from exchange.perform(
            operations.files(job_id, path, attempt=attempt, recursive=True, after=after, limit=_PAGE)
        )
        found += page.files
        after = page.next
        if after is None:
            return found


def _parts(path: str) -> tuple[str, ...]:
    try:
        return parts_of(path)
    except ValueError as problem:
        raise Invalid(str(problem), where="path") from None


def _fetch(exchange: Exchange, job_id: str, path: str, target: Path, attempt: int | None) -> Flow[None]:
    for left in range(_TRIES - 1, -1, -1):
        try:
            yield from _fetch_once(exchange, job_id, path, target, attempt)
            return
        except Conflict:  # the file has changed meanwhile: from the beginning
            if not left:
                raise


def _fetch_once(exchange: Exchange, job_id: str, path: str, target: Path, attempt: int | None) -> Flow[None]:
    piece = yield from exchange.perform(operations.file_piece(job_id, path, attempt=attempt))
    size, version = piece.size_bytes, piece.version
    with _local(target):
        part = _part(target, f"{job_id} {path} {version}")
    with _local(target), os.fdopen(os.open(part, _PART_FLAGS), "r+b") as file:
        digest = hashlib.sha256()
        have = _kept(file, digest, size)
        if not have:
            have = _append(file, digest, piece, target)
        yield Emit(models.Download(path, str(target), size, have))
        while have < size:
            piece = yield from exchange.perform(
                operations.file_piece(job_id, path, attempt=attempt, offset=have, version=version)
            )
            if not piece.data:
                raise Conflict(f"{path!r} ends early", where="path", hint="the job may be writing it")
            have += _append(file, digest, piece, target)
            yield Emit(models.Download(path, str(target), size, have))
        file.flush()
    with _local(target):
        part.replace(target)
    yield Emit(models.Download(path, str(target), size, size, digest.hexdigest()))


def _part(target: Path, what: str) -> Path:
    """The file of its own for this very content; those of other contents go."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_dir():
        raise IsADirectoryError(21, "there is a directory of this name")
    begin = f".{target.name[:80]}."
    part = target.with_name(f"{begin}{hashlib.sha256(what.encode()).hexdigest()[:16]}.part")
    for other in target.parent.iterdir():
        if other.name.startswith(begin) and other.name.endswith(".part") and other != part:
            other.unlink(missing_ok=True)
    part.touch()
    return part


def _kept(file: BufferedRandom, digest: hashlib._Hash, size: int) -> int:
    """How much of it is there from an earlier time; more than all of it is none."""
    have = file.seek(0, os.SEEK_END)
    if have > size:
        file.truncate(0)
        have = 0
    file.seek(0)
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
    return have


def _append(file: BufferedRandom, digest: hashlib._Hash, piece: models.FilePiece, target: Path) -> int:
    if hashlib.sha256(piece.data).hexdigest() != piece.sha256:
        raise ShoalError("a piece of the file did not arrive as it was sent", where=str(target), hint="try again")
    file.write(piece.data)
    digest.update(piece.data)
    return len(piece.data)


@contextmanager
def _local(target: Path) -> Iterator[None]:
    """What goes wrong with a file here, in words."""
    try:
        yield
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise ShoalError(f"the file cannot be written: {why}", where=str(target)) from None
