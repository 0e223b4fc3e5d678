"""Files of jobs brought here: in pieces that are checked, under another name until they are whole."""

from __future__ import annotations

import hashlib
from pathlib import Path

from shoal.base.beneath import parts_of
from shoal.base.partial import PartialFile
from shoal.contract.calls import Emit, Exchange, Flow
from shoal.core import Conflict, Invalid, ShoalError
from shoal.sdk import models, operations

_PAGE = 10_000
_TRIES = 3


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
    with PartialFile(target, f"{job_id} {path} {version}", size) as part:
        if not part.have:
            _append(part, piece, target)
        yield Emit(models.Download(path, str(target), size, part.have))
        while part.have < size:
            piece = yield from exchange.perform(
                operations.file_piece(job_id, path, attempt=attempt, offset=part.have, version=version)
            )
            if not piece.data:
                raise Conflict(f"{path!r} ends early", where="path", hint="the job may be writing it")
            _append(part, piece, target)
            yield Emit(models.Download(path, str(target), size, part.have))
        digest = part.finish()
    yield Emit(models.Download(path, str(target), size, size, digest))


def _append(part: PartialFile, piece: models.FilePiece, target: Path) -> None:
    if hashlib.sha256(piece.data).hexdigest() != piece.sha256:
        raise ShoalError("a piece of the file did not arrive as it was sent", where=str(target), hint="try again")
    part.append(piece.data)
