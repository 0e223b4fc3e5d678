"""Warnings for manifests of jobs that are right and hardly do what they mean. They look beside the manifest."""

from __future__ import annotations

import os
from pathlib import Path

from shoal.core import Invalid

_SHELL_SIGNS = ("$", "&", "|", ">", "<", ";")


def warnings_of(manifest: Path | str) -> list[str]:
    """Of a file, or of a text whose files lie in the present directory; none for what cannot be read as a job."""
    folder = manifest.absolute().parent if isinstance(manifest, Path) else Path.cwd()
    try:
        text = manifest.read_text() if isinstance(manifest, Path) else manifest
        beside = [path.name.partition(".")[0] for path in folder.iterdir()]
    except (OSError, UnicodeDecodeError):
        return []
    # Reading manifests takes a third of a short command's time, and most have nothing to be warned of.
    if not any(sign in text for sign in (*_SHELL_SIGNS, *filter(None, beside))):
        return []
    from shoal.contract.manifest import JOB, kind_of, parse_manifest, remarks

    if kind_of(text) is not JOB:
        return []
    try:
        return remarks(parse_manifest(text), lambda path: os.path.isfile(folder / path))  # noqa: PTH113 - a word may be too long for a name
    except Invalid:
        return []
