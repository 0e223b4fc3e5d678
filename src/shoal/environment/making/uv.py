"""A virtual environment from a lock file, by uv."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shoal.base import trees
from shoal.environment.making.tools import Failed, run

_CACHE_PART = 3
"""The downloads that are kept may take this part of the tenant's limit."""


def make(folder: Path, asked: Mapping[str, Any]) -> Mapping[str, Any]:
    """In `uv/KEY/venv` of the tenant's folder, from the files in `builds/KEY`, which the engine unpacked there. The
    project itself and what lies beside it stay with the job's files. Raises Failed."""
    source = folder / "builds" / asked["key"]
    target = folder / "uv" / asked["key"]
    if left := trees.remove(str(target)):
        raise Failed(f"what an earlier try left cannot be removed: {left}")
    target.mkdir(parents=True)
    cache = folder / "cache" / "uv"
    _bound(cache, asked["limit_bytes"] // _CACHE_PART)
    env = {
        **os.environ,
        "UV_PROJECT_ENVIRONMENT": str(target / "venv"),
        "UV_CACHE_DIR": str(cache),
        "UV_PYTHON_INSTALL_DIR": str(folder / "python"),
        "UV_NO_PROGRESS": "1",
        "UV_SYSTEM_CERTS": "1",
        "UV_LINK_MODE": "hardlink",
        **asked["env"],
    }
    env.pop("VIRTUAL_ENV", None)
    argv = ["uv", "sync", "--frozen", "--no-install-project", "--no-install-workspace", "--project", str(source)]
    try:
        run([*argv, *asked["options"]], env)
    except Failed:
        trees.remove(str(target))
        raise
    finally:
        trees.remove(str(source))
    if not os.access(target / "venv" / "bin" / "python", os.X_OK):
        raise Failed("uv made no environment with a Python")
    size, files = trees.measure(str(target))
    return {"key": asked["key"], "bytes": size, "files": files}


def _bound(cache: Path, most: int) -> None:
    """Start again with the downloads that are kept, where they have grown too large."""
    if cache.is_dir() and trees.measure(str(cache))[0] > most:
        trees.remove(str(cache))
