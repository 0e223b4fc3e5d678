"""Flows of more than one request: submitting with files, following logs and events, waiting for an end."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.contract import bundle
from shoal.contract.calls import Emit, Exchange, Flow, fresh_key
from shoal.contract.lifecycle import JobState
from shoal.contract.sending import POLL_S, Manifest, called, follow_events, manifest_text, time_left, upload
from shoal.core import Unavailable
from shoal.sdk import models, operations

if TYPE_CHECKING:
    from shoal.contract.manifest import JobManifest


def submit(
    exchange: Exchange,
    manifest: Manifest,
    *,
    tenant: str | None = None,
    idempotency_key: str | None = None,
    base: str | Path | None = None,
) -> Flow[models.SubmittedView]:
    """Submit a job; it is durable when this returns. Its `warnings` say why it can never start as things are.

    Its `files` are packed relative to `base` (default: the manifest's directory, else the present one) and uploaded
    first. Without an `idempotency_key` a fresh one is made, so that retries within this call never double the job.
    """
    text, source = yield from _ready(exchange, manifest, base, tenant)
    key = idempotency_key or fresh_key()
    with called(source):
        return (yield from exchange.perform(operations.submit_text(text, key=key, tenant=tenant)))


def check(exchange: Exchange, manifest: Manifest, *, tenant: str | None = None) -> Flow[models.CheckView]:
    """What would become of a manifest, without submitting it. Raises Invalid with every problem."""
    text, _, source = manifest_text(manifest, None)
    parsed = _with_files(text, source)
    if parsed is not None:
        text = parsed.model_copy(update={"files": ()}).canonical_json()
    with called(source):
        return (yield from exchange.perform(operations.check_text(text, tenant=tenant)))


def _ready(
    exchange: Exchange, manifest: Manifest, base: str | Path | None, tenant: str | None
) -> Flow[tuple[str | bytes, str]]:
    """The manifest's text as the server takes it, with a bundle for its files, and what to call it."""
    text, folder, source = manifest_text(manifest, base)
    parsed = _with_files(text, source)
    if parsed is None:
        return text, source
    owner = tenant or parsed.tenant
    uploaded = yield from exchange.perform(upload(bundle.pack(folder, parsed.files), tenant=owner))
    return parsed.with_bundle(uploaded.bundle).canonical_json(), source


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
    """The job when it is over, or suspended. Raises Unavailable when `timeout_s` passes before."""
    give_up_at = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        job = yield from exchange.perform(operations.job(ref, tenant=tenant, wait_s=time_left(give_up_at)))
        if job.terminal or job.state is JobState.SUSPENDED:
            return job
        if give_up_at is not None and time.monotonic() >= give_up_at:
            raise Unavailable(f"the job is still {job.state} after {timeout_s:g} s", where=job.id)
        ref = job.id


def wait_array(
    exchange: Exchange, ref: str, *, tenant: str | None = None, timeout_s: float | None = None
) -> Flow[models.ArrayView]:
    """The job array when all its tasks are over, or suspended. Raises Unavailable when `timeout_s` passes before."""
    give_up_at = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        array = yield from exchange.perform(operations.array(ref, tenant=tenant, wait_s=time_left(give_up_at)))
        if all(state.terminal or state is JobState.SUSPENDED for state in array.states):
            return array
        if give_up_at is not None and time.monotonic() >= give_up_at:
            raise Unavailable(f"tasks of the array are not over after {timeout_s:g} s", where=array.id)
        ref = array.id


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
                since=since, timestamps=timestamps, wait_s=POLL_S if follow else 0.0,
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
    tenant: str | None = None,
    after: int | None = None,
    follow: bool = False,
) -> Flow[None]:
    """Events in order, of one job or of all that the token may see; each comes once, restarts or not.

    Without `after`: from the first, except that following all events begins now. Following one job ends with it.
    """
    if after is None:
        after = 0
        if follow and ref is None:
            after = (yield from exchange.perform(operations.event_page(tenant=tenant, limit=0))).next
    yield from follow_events(
        exchange,
        lambda after, wait_s: operations.event_page(ref, tenant=tenant, after=after, wait_s=wait_s),
        after=after,
        follow=follow,
        ends=lambda event: ref is not None and event.new_state is not None and JobState(event.new_state).terminal,
    )
