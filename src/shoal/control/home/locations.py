"""Local paths that a manifest names: none may lie in the server's home, where the files of all tenants are."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from shoal.contract.manifest import JobManifest
from shoal.core import Invalid

_FILE_URL = re.compile(r"(?:^|::)(?:file|local)://")
"""Also behind others, as fsspec chains them."""


def require_outside(manifest: JobManifest, home: Path) -> None:
    """Raise Invalid for a path that lies in the home once all links are followed."""
    inside = os.path.realpath(home)
    for where, location in _locations(manifest):
        path = _local(location)
        if path is None:
            continue
        real = os.path.realpath(path)
        if real == inside or real.startswith(f"{inside}/"):
            raise Invalid(
                f"{location!r} lies in the server's home", where=where,
                hint="name a place elsewhere, or a URL; Shoal keeps checkpoints itself where no directory is named",
            )  # fmt: skip


def _locations(manifest: JobManifest) -> Iterator[tuple[str, str]]:
    if manifest.checkpoint.directory is not None:
        yield "checkpoint.directory", manifest.checkpoint.directory
    for number, given in enumerate(manifest.inputs):
        yield f"inputs[{number}].from", given.source
    for number, kept in enumerate(manifest.outputs):
        if kept.target is not None:
            yield f"outputs[{number}].to", kept.target


def _local(location: str) -> str | None:
    """The path that a location names on this machine, if it does."""
    if "://" not in location:
        return location
    parts = _FILE_URL.split(location)
    return parts[-1] if len(parts) > 1 else None
