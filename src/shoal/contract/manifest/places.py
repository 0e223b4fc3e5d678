"""Places of data: confined relative paths inside the run directory, and locations outside it (path or URL)."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from shoal.base.validation import shown
from shoal.contract.manifest.quantities import problem

_URL = re.compile(r"[a-z][a-z0-9+.-]*(::[a-z][a-z0-9+.-]*)*://", re.ASCII)


def read_relative(value: Any) -> Any:
    """A path that stays inside the run directory, normalised (`./a//b/` becomes `a/b`)."""
    if not isinstance(value, str) or "\x00" in value:
        return value
    path = PurePosixPath(value)
    if not value.strip():
        raise problem("the path is empty", "name a path below the run directory, '.' for the directory itself")
    if path.is_absolute() or value.startswith("~") or _URL.match(value):
        raise problem(f"{shown(value)} is not below the run directory", "write a relative path such as data/train")
    if ".." in path.parts:
        raise problem(f"{shown(value)} leads out of the run directory", "write a path without '..'")
    return str(path)


def read_file(value: Any) -> Any:
    """A local path or glob below the manifest's own directory."""
    if isinstance(value, str) and (value.startswith(("/", "~")) or ".." in PurePosixPath(value).parts):
        raise problem(
            f"{shown(value)} is not below the manifest's directory",
            "files are named relative to the manifest; put it above them, or use `inputs` for data elsewhere",
        )
    return read_relative(value)


def read_location(value: Any) -> Any:
    """An absolute local path or a URL that fsspec understands, without credentials in it."""
    if not isinstance(value, str) or "\x00" in value:
        return value
    if not _URL.match(value):
        if not value.startswith("/"):
            raise problem(
                f"{shown(value)} is neither an absolute path nor a URL",
                "write /path/on/the/machine or a URL such as s3://bucket/key",
            )
        return value
    try:
        parts = urlsplit(value)
        has_password = parts.password is not None
    except ValueError:
        raise problem("the URL cannot be read", "write a URL such as s3://bucket/key") from None
    if has_password:
        raise problem("the URL holds a password", "store it as a secret and name that under `secrets`")
    return value
