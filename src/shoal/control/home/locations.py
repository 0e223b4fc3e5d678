"""Local paths that a manifest names: none may lie in the server's home, where the files of all tenants are."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from shoal.contract.manifest import JobManifest
from shoal.core import Invalid

_LOCAL = re.compile(r"(?:file|local):(?://)?(?P<path>.*)", re.DOTALL)
"""As fsspec reads it: the slashes may be missing."""


def require_outside(manifest: JobManifest, home: Path) -> None:
    """Raise Invalid for a path that lies in the home once all links are followed."""
    named = list(_locations(manifest))
    inside = os.path.realpath(home) if named else ""
    for where, location in named:
        for path in _local(location):
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


def _local(location: str) -> Iterator[str]:
    """The paths on this machine that a location may mean: each of the parts that fsspec chains, and all of it."""
    for part in dict.fromkeys((location, *location.split("::"))):
        local = _LOCAL.fullmatch(part)
        if local is not None:
            yield os.path.expanduser(local["path"])  # noqa: PTH111 - which raises for users that are not there
        elif "://" not in part:
            yield os.path.expanduser(part)  # noqa: PTH111
