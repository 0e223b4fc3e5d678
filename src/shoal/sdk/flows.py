"""What takes more than one request: submitting with files, following logs and events, waiting for an end."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.contract.lifecycle import JobState
from shoal.contract.service_lifecycle import ServiceState
from shoal.core import Invalid, ShoalError, Unavailable
from shoal.sdk import bundle, models, operations
from shoal.sdk.effects import Emit, Exchange, Flow, Pause, fresh_key

if TYPE_CHECKING:
    from shoal.contract.manifest import JobManifest

Manifest = Mapping[str, Any] | str | bytes | Path
"""A mapping, YAML or JSON text, or the path of a file that holds it."""

_POLL_S = 25.0
_SETTLED_PAUSE_S = 0.5
_UNNAMED = "manifest"


def submit(
    exchange: Exchange,
    manifest: Manifest,
    *,
    tenant: str | None = None,
    idempotency_key: str | None = None,
    base: str | Path | None = None,
) -> Flow[models.JobView]:
    """Submit a job; it is durable when this returns.

    Its `files` are packed relative to `base` (default: the manifest's directory, else the present one) and uploaded
    first. Without an `idempotency_key` a fresh one is made, so that retries within this call never double the job.
    """
    text, source = yield from _ready(exchange, manifest, base, tenant)
    key = idempotency_key or fresh_key()
    with _called(source):
        return (yield from exchange.perform(operations.submit_text(text, key=key, tenant=tenant)))


def deploy(
    exchange: Exchange,
    manifest: Manifest,
    *,
    tenant: str | None = None,
    idempotency_key: str | None = None,
    base: str | Path | None = None,
) -> Flow[models.ServiceView]:
    """Deploy a service, or update the one of this name; it is durable when this returns, and served a little later:
    see `wait_ready`.

    Its `files`, and models that are files, are packed relative to `base` (default: the manifest's directory, else the
    present one) and uploaded first. Without an `idempotency_key` a fresh one is made.
    """
    from shoal.contract.manifest import parse_service

    text, folder, source = _text(manifest, base)
    parsed = parse_service(text, source=source)
    uploads = parsed.uploads()
    if uploads:
        archive = bundle.pack(folder, uploads, too_much="name a large model by its path on the server, or by a URL")
        uploaded = yield from exchange.perform(operations.upload(archive, tenant=tenant or parsed.tenant))
        text = parsed.with_bundle(uploaded.bundle).canonical_json()
    key = idempotency_key or fresh_key()
    with _called(source):
        return (yield from exchange.perform(operations.deploy_text(text, key=key, tenant=tenant)))


def wait_ready(
    exchange: Exchange, ref: str, *, tenant: str | None = None, timeout_s: float | None = None
) -> Flow[models.ServiceDetail]:
    """The service once it is READY. Raises ShoalError when it will hardly be by waiting (it failed, an update does not
    come up, it was stopped), and Unavailable when `timeout_s` passes before; both say why."""
    give_up_at = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        service = yield from exchange.perform(operations.service(ref, tenant=tenant, wait_s=_left(give_up_at)))
        if service.state is ServiceState.READY:
            return service
        why = f": {service.reason.text}" if service.reason is not None else ""
        hint = f"`shoal explain {service.name}` tells more"
        if service.settled or service.state is ServiceState.STOPPING:
            raise ShoalError(f"service {service.name} is {service.state}{why}", where=service.id, hint=hint)
        if give_up_at is not None and time.monotonic() >= give_up_at:
            what = f"service {service.name} is still {service.state} after {timeout_s:g} s{why}"
            raise Unavailable(what, where=service.id, hint=hint)
        ref = service.id


def wait_stopped(
    exchange: Exchange, ref: str, *, tenant: str | None = None, timeout_s: float | None = None
) -> Flow[models.ServiceDetail]:
    """The service once it is STOPPED. Raises Unavailable when `timeout_s` passes before."""
    give_up_at = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        service = yield from exchange.perform(operations.service(ref, tenant=tenant, wait_s=_left(give_up_at)))
        if service.state.terminal:
            return service
        if give_up_at is not None and time.monotonic() >= give_up_at:
            what = f"service {service.name} is still {service.state} after {timeout_s:g} s"
            raise Unavailable(what, where=service.id)
        if service.settled:
            yield Pause(_SETTLED_PAUSE_S)  # nobody asked it to stop yet: the server would answer at once
        ref = service.id


def _left(give_up_at: float | None) -> float:
    """How long the server may hold its answer back."""
    return _POLL_S if give_up_at is None else max(0.0, min(_POLL_S, give_up_at - time.monotonic()))


def check(exchange: Exchange, manifest: Manifest, *, tenant: str | None = None) -> Flow[models.CheckView]:
    """What would become of a manifest, without submitting it. Raises Invalid with every problem."""
    from shoal.contract.manifest import is_service

    text, _, source = _text(manifest, None)
    service = is_service(text)
    parsed = None if service else _with_files(text, source)
    if parsed is not None:
        text = parsed.model_copy(update={"files": ()}).canonical_json()
    with _called(source):
        return (yield from exchange.perform(operations.check_text(text, tenant=tenant, service=service)))


@contextlib.contextmanager
def _called(source: str) -> Iterator[None]:
    """The server calls what it was sent `manifest`; for whoever sent a file, problems are in that file."""
    try:
        yield
    except Invalid as error:
        for one in (error, *error.problems):
            if one.where is not None and (one.where == _UNNAMED or one.where.startswith(_UNNAMED + ":")):
                one.where = source + one.where.removeprefix(_UNNAMED)
        error.where = error.where or source
        raise


def _ready(
    exchange: Exchange, manifest: Manifest, base: str | Path | None, tenant: str | None
) -> Flow[tuple[str | bytes, str]]:
    """The manifest's text as the server takes it, with a bundle for its files, and what to call it."""
    text, folder, source = _text(manifest, base)
    parsed = _with_files(text, source)
    if parsed is None:
        return text, source
    owner = tenant or parsed.tenant
    uploaded = yield from exchange.perform(operations.upload(bundle.pack(folder, parsed.files), tenant=owner))
    return parsed.with_bundle(uploaded.bundle).canonical_json(), source


def _text(manifest: Manifest, base: str | Path | None) -> tuple[str | bytes, Path, str]:
    if isinstance(manifest, Path):
        try:
            return manifest.read_bytes(), Path(base) if base else manifest.absolute().parent, str(manifest)
        except OSError as error:
            raise Invalid(f"the manifest cannot be read: {error.strerror}", where=str(manifest)) from error
    folder = Path(base) if base else Path.cwd()
    if isinstance(manifest, str | bytes):
        return manifest, folder, _UNNAMED
    try:
        return json.dumps(manifest), folder, _UNNAMED
    except (TypeError, ValueError) as error:
        raise Invalid(f"the manifest cannot be written as JSON: {error}", where=_UNNAMED) from None


def _with_files(text: str | bytes, source: str) -> JobManifest | None:
    """The parsed manifest if it names working files. Any other is left to the server, text as it is."""
    word = b"files" if isinstance(text, bytes) else "files"
    if word not in text:  # type: ignore[operator]
        return None
    from shoal.contract.manifest import parse_manifest

    parsed = parse_manifest(text, source=source)
    return parsed if parsed.files else None


def wait(
    exchange: Exchange, ref: str, *, tenant: str | None = None, timeout_s: float | None = None
) -> Flow[models.JobDetail]:
    """The job when it is over, or halted. Raises Unavailable when `timeout_s` passes before."""
    give_up_at = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        job = yield from exchange.perform(operations.job(ref, tenant=tenant, wait_s=_left(give_up_at)))
        if job.terminal or job.state is JobState.HALTED:
            return job
        if give_up_at is not None and time.monotonic() >= give_up_at:
            raise Unavailable(f"the job is still {job.state} after {timeout_s:g} s", where=job.id)
        ref = job.id


def logs(
    exchange: Exchange,
    ref: str,
    *,
    tenant: str | None = None,
    rank: int = 0,
    attempt: int | None = None,
    offset: int = 0,
    tail: int | None = None,
    since: float | None = None,
    timestamps: bool = False,
    follow: bool = False,
) -> Flow[None]:
    """Pieces of a rank's log, from its last `tail` lines and from the Unix time `since` where these are given. With
    `timestamps`, each line follows its time (UTC, to a second). `follow` goes on to the job's end, through later
    attempts unless one is named, and through restarts of the server."""
    number, position = attempt, offset
    while True:
        piece = yield from exchange.perform(
            operations.log_piece(
                ref, tenant=tenant, rank=rank, attempt=number, offset=position, tail=tail,
                since=since, timestamps=timestamps, wait_s=_POLL_S if follow else 0.0,
            )
        )  # fmt: skip
        tail = since = None
        if piece.data:
            yield Emit(piece)
        if piece.ended == "job" or not (follow or piece.data):
            return
        if piece.ended == "attempt":
            if attempt is not None or not follow:
                return
            number, position = piece.attempt + 1, 0
        else:
            number, position = piece.attempt or None, piece.next_offset


def events(
    exchange: Exchange,
    ref: str | None = None,
    *,
    service: str | None = None,
    tenant: str | None = None,
    after: int | None = None,
    follow: bool = False,
) -> Flow[None]:
    """Events in order, of one job, of one service, or of all that the token may see; each comes once, restarts or not.

    Without `after`: from the first, except that following all events begins now. Following one job or service ends
    with it.
    """
    everything = ref is None and service is None
    if after is None:
        after = 0
        if follow and everything:
            after = (yield from exchange.perform(operations.event_page(tenant=tenant, limit=0))).next
    while True:
        page = yield from exchange.perform(
            operations.event_page(ref, service=service, tenant=tenant, after=after, wait_s=_POLL_S if follow else 0.0)
        )
        after = page.next
        over = False
        for event in page.events:
            yield Emit(event)
            over = not everything and _ends(event, of_service=service is not None)
        if (not page.events and not follow) or over:
            return


def _ends(event: models.EventView, *, of_service: bool) -> bool:
    """Whether nothing of the job, or of the service, comes after this."""
    if event.new_state is None:
        return False
    if of_service:
        return event.kind == "service.state" and ServiceState(event.new_state).terminal
    return JobState(event.new_state).terminal
