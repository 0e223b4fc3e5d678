"""Instructions to install the packages of one of Shoal's extras into this environment."""

from __future__ import annotations

import json
import shlex
import sys
from importlib.metadata import Distribution, PackageNotFoundError
from urllib.parse import unquote, urlsplit


def install(extra: str) -> str:
    """The command, for a hint. Where Shoal came from a directory (PEP 610 keeps it), pip takes it from there again."""
    try:
        origin = json.loads(Distribution.from_name("shoal").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        origin = {}
    url = urlsplit(origin.get("url", ""))
    from_here = url.scheme == "file" and "dir_info" in origin
    source = unquote(url.path) if from_here else "shoal"
    words = [sys.executable, "-m", "pip", "install"]
    if from_here and origin["dir_info"].get("editable"):
        words.append("-e")
    return shlex.join([*words, f"{source}[{extra}]"])
