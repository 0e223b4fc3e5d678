"""Helpers of clients that send manifests, upload files, wait and follow events."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from shoal.contract.calls import Call, Emit, Exchange, Flow, reads
from shoal.contract.models import BundleView, EventList, EventView
from shoal.core import Invalid

Manifest = Mapping[str, Any] | str | bytes | Path
"""A mapping, YAML or JSON text, or the path of a file that holds it."""

POLL_S = 25.0
"""How long the server may hold an answer back that a client waits for."""

_UNNAMED = "manifest"


@contextlib.contextmanager
def called(source: str) -> Iterator[None]:
    """Report problems as found in the file that was sent. The server calls everything it was sent `manifest`."""
    try:
        yield
    except Invalid as error:
        for one in (error, *error.problems):
            if one.where is not None and (one.where == _UNNAMED or one.where.startswith(_UNNAMED + ":")):
                one.where = source + one.where.removeprefix(_UNNAMED)
        error.where = error.where or source
        raise


def manifest_text(manifest: Manifest, base: str | Path | None) -> tuple[str | bytes, Path, str]:
    """Its text, the folder of its files, and what to call it in errors. Raises Invalid."""
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


def time_left(give_up_at: float | None) -> float:
    """How long the server may hold its answer back."""
    return POLL_S if give_up_at is None else max(0.0, min(POLL_S, give_up_at - time.monotonic()))


def upload(archive: bytes, *, tenant: str | None = None) -> Call[BundleView]:
    """Upload working files as a tar archive; the answer's `bundle` is what a manifest of that tenant names."""
    headers = {"content-type": "application/x-tar"}
    return Call("POST", "/v1/bundles", reads(BundleView), {"tenant": tenant}, archive, headers, wait_s=60.0)


def follow_events(
    exchange: Exchange,
    page: Callable[[int, float], Call[EventList]],
    *,
    after: int,
    follow: bool,
    ends: Callable[[EventView], bool],
) -> Flow[None]:
    """Events in order; each comes once, restarts or not. `page` asks for those after a position, and how long to wait
    for them; none is asked for after the one that `ends`."""
    while True:
        found = yield from exchange.perform(page(after, POLL_S if follow else 0.0))
        after = found.next
        over = False
        for event in found.events:
            yield Emit(event)
            over = over or ends(event)
        if (not found.events and not follow) or over:
            return
