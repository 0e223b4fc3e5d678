"""Where Shoal keeps its files unless told otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def default_home(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("SHOAL_HOME") or "~/.shoal").expanduser().absolute()
