"""`client.artifacts`: list, fetch, send, pin and remove artifacts."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.base.partial import PartialFile, in_words
from shoal.contract.calls import Call, Emit, Exchange, Flow, Pause, json_body, path_piece, reads
from shoal.contract.methods import Namespace, Operation, Stream, single
from shoal.core import Conflict, Invalid, NotFound, ShoalError
from shoal.results.keeping.names import check_name
from shoal.results.models import ArtifactList, ArtifactView, UploadView

if TYPE_CHECKING:
    import httpx

_PAGE = 1000
_TAKING_S, _TAKING_PAUSE_S = 300.0, 0.2
_PIECE = 8 << 20
_TRIES = 5
_SHA256 = "x-shoal-sha256"


@dataclass(frozen=True, slots=True)
class Transfer:
    """How far a file is on its way from `path` to `target`: an artifact's name, and a path here. `sha256` is there once
    it is whole where it goes."""

    path: str
    target: str
    size_bytes: int
    done_bytes: int
    sha256: str | None = None


def listing(
    job: str | None = None,
    *,
    name: str | None = None,
    attempt: int | None = None,
    tenant: str | None = None,
    uploads: bool = False,
    offset: int = 0,
    limit: int = _PAGE,
) -> Call[ArtifactList]:
    """Artifacts of a job, or of all jobs and those that were uploaded, the newest first."""
    params: Mapping[str, Any] = {
        "job": job, "name": name, "attempt": attempt, "tenant": tenant, "uploads": uploads or None, "offset": offset,
        "limit": limit,
    }  # fmt: skip
    return Call("GET", "/v1/artifacts", reads(ArtifactList), params)


def get(artifact: str) -> Call[ArtifactView]:
    """An artifact by its id."""
    return Call("GET", f"/v1/artifacts/{path_piece('artifact', artifact)}", reads(ArtifactView))


def remove(artifact: str) -> Call[ArtifactView]:
    """Remove an artifact that is not pinned. Returns what it was."""
    return Call("DELETE", f"/v1/artifacts/{path_piece('artifact', artifact)}", reads(ArtifactView), repeatable=False)


def pin(artifact: str, *, pinned: bool = True) -> Call[ArtifactView]:
    """Pin an artifact, so that it stays, or let it go."""
    body, headers = json_body({"pinned": pinned})
    path = f"/v1/artifacts/{path_piece('artifact', artifact)}/pin"
    return Call("POST", path, reads(ArtifactView), body=body, headers=headers)


def find(
    exchange: Exchange, job: str, name: str | None = None, *, attempt: int | None = None, tenant: str | None = None
) -> Flow[list[ArtifactView]]:
    """All artifacts of a job, or that of this name and those below it; of each the newest, or that of an attempt. Files
    that are still being taken are waited for, some minutes."""
    found: list[ArtifactView] = []
    offset: int | None = 0
    give_up_at = time.monotonic() + _TAKING_S
    while offset is not None:
        page = yield from exchange.perform(
            listing(job, name=name, attempt=attempt, tenant=tenant, offset=offset, limit=_PAGE)
        )
        if page.taking and time.monotonic() < give_up_at:
            yield Pause(_TAKING_PAUSE_S)
            found, offset = [], 0
            continue
        found += page.artifacts
        offset = page.next
    return found


# --- fetching ---


@dataclass(frozen=True, slots=True)
class _Piece:
    data: bytes
    sha256: str


def _piece(artifact: ArtifactView, offset: int) -> Call[_Piece]:
    headers = {"range": f"bytes={offset}-{offset + _PIECE - 1}"}
    params = {"digest": artifact.digest}
    return Call("GET", f"/v1/artifacts/{artifact.id}/content", _read_piece, params, headers=headers)


def _read_piece(response: httpx.Response) -> _Piece:
    return _Piece(response.content, response.headers.get(_SHA256, ""))


def download(
    exchange: Exchange,
    job: str,
    name: str | None = None,
    *,
    to: str | Path | None = None,
    attempt: int | None = None,
    tenant: str | None = None,
) -> Flow[None]:
    """Bring an artifact here, those below a name, or all of a job. Gives a `Transfer` after each piece.

    One artifact goes into the directory `to` (default: the present one); several, by their names, into `to` (default: a
    directory of the job's name, or of their common one). A file has its name once it is whole and has its digest. What
    was fetched before is used again.
    """
    found = yield from find(exchange, job, name, attempt=attempt, tenant=tenant)
    if not found:
        raise NotFound(f"{job} has no artifact {name}" if name else f"{job} has no artifacts", where=name or job,
                       hint=f"`shoal artifacts {job}` lists them")  # fmt: skip
    for one, target in targets(found, name, job, to):
        yield from fetch(exchange, one, target)


def targets(
    found: list[ArtifactView], name: str | None, job: str, to: str | Path | None
) -> list[tuple[ArtifactView, Path]]:
    """Where each goes. Raises Invalid for a name that is none of a path."""
    wanted = (name or "").rstrip("/")
    if len(found) == 1 and found[0].name == wanted:
        return [(found[0], Path(to or ".") / _safe(wanted)[-1])]
    parts = _safe(wanted) if wanted else ()
    base = Path(to) if to is not None else Path(parts[-1] if parts else found[0].job_name or job)
    return [(one, base.joinpath(*(_safe(one.name)[len(parts) :] or _safe(one.name)[-1:]))) for one in found]


def _safe(name: str) -> tuple[str, ...]:
    """The parts of a name that a server gave."""
    try:
        return tuple(check_name(name).split("/"))
    except ValueError as problem:
        raise Invalid(str(problem), where="name") from None


def fetch(exchange: Exchange, artifact: ArtifactView, target: Path) -> Flow[None]:
    """Bring one artifact here, under this path. Gives a `Transfer` after each piece."""
    with PartialFile(target, artifact.digest, artifact.bytes) as part:
        while part.have < artifact.bytes:
            piece = yield from exchange.perform(_piece(artifact, part.have))
            if not piece.data or hashlib.sha256(piece.data).hexdigest() != piece.sha256:
                raise ShoalError(
                    "a piece of the file did not arrive as it was sent", where=str(target), hint="try again"
                )
            part.append(piece.data)
            yield Emit(Transfer(artifact.name, str(target), artifact.bytes, part.have))
        digest = part.finish(artifact.digest.removeprefix("sha256:"))
    yield Emit(Transfer(artifact.name, str(target), artifact.bytes, artifact.bytes, digest))


# --- sending ---


def upload(
    exchange: Exchange,
    file: str | Path,
    *,
    name: str | None = None,
    job: str | None = None,
    tenant: str | None = None,
) -> Flow[None]:
    """Keep a local file as an artifact, of the last attempt of a job or of none. Gives a `Transfer` after each piece,
    the last one with the digest. What arrived before a link was cut is not sent again."""
    path = Path(file)
    called = name or path.name
    with in_words(path, "read"), path.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
        size = opened.tell()
        asked = {"sha256": digest, "bytes": size, "name": called, "job": job}
        state = yield from exchange.perform(_begin(asked, tenant))
        tries = 0
        while state.artifact is None:
            if state.have >= size or tries >= _TRIES:
                raise ShoalError("the upload does not come to its end", where=str(path), hint="try again")
            opened.seek(state.have)
            data = opened.read(_PIECE)
            if not data:
                raise Conflict(f"{path} has become shorter", where=str(path), hint="send it again once it rests")
            try:
                state = yield from exchange.perform(_send(digest, size, state.have, data, tenant))
                tries = 0
            except (Conflict, NotFound):  # a piece that was sent twice, or an upload that was begun long ago
                state, tries = (yield from exchange.perform(_begin(asked, tenant))), tries + 1
                continue
            yield Emit(Transfer(str(path), called, size, state.have))
            if state.have >= size:
                state = yield from exchange.perform(_begin(asked, tenant))
    yield Emit(Transfer(str(path), called, size, size, digest))


def _begin(asked: Mapping[str, Any], tenant: str | None) -> Call[UploadView]:
    body, headers = json_body(asked)
    return Call("POST", "/v1/artifact-uploads", reads(UploadView), {"tenant": tenant}, body, headers, wait_s=600.0)


def _send(digest: str, size: int, offset: int, data: bytes, tenant: str | None) -> Call[UploadView]:
    headers = {"content-type": "application/octet-stream", _SHA256: hashlib.sha256(data).hexdigest()}
    params = {"bytes": size, "offset": offset, "tenant": tenant}
    return Call("PUT", f"/v1/artifact-uploads/{digest}", reads(UploadView), params, data, headers, wait_s=60.0)


class Artifacts(Namespace):
    """The methods of `client.artifacts`."""

    list = single(listing)
    get = single(get)
    remove = single(remove)
    pin = single(pin)
    find = Operation(find)
    download = Stream(download, Transfer)
    fetch = Stream(fetch, Transfer)
    upload = Stream(upload, Transfer)
