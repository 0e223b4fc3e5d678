"""Versions of the annotated commands on this machine, to be compared with a site."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from shoal.shell.annotations import shipped
from shoal.shell.machine import fingerprint

FOLDERS = ("/usr/bin", "/bin", "/usr/local/bin")
_MOST_LOCALES = 40
_MOST_HOME_FILE = 64 << 10


def programs(names: Iterable[str]) -> dict[str, str]:
    """The hashes of the programs of these names, by path."""
    paths = (f"{folder}/{name}" for name in names for folder in FOLDERS)
    return {path: found for path in paths if os.access(path, os.X_OK) and (found := fingerprint(path))}


@cache
def offered() -> frozenset[str]:
    """The paths of all programs that a site which others share may be asked for."""
    return frozenset(f"{folder}/{name}" for folder in FOLDERS for name in shipped())


def locales() -> list[str]:
    """The names of this machine's locales, and those of the environment."""
    try:
        listed = subprocess.run(["locale", "-a"], capture_output=True, text=True, check=False).stdout.split()
    except OSError:
        listed = []
    named = [os.environ[one] for one in ("LANG", "LC_ALL", "LC_CTYPE", "LC_COLLATE") if os.environ.get(one)]
    return list(dict.fromkeys([*named, "C.UTF-8", "C.utf8", "en_US.UTF-8", *listed]))[:_MOST_LOCALES]


def home_files(names: Iterable[str], home: Path) -> Mapping[str, str]:
    """The contents of the user's files that annotated commands read, as far as there are any."""
    found = {}
    for name in sorted(set(names)):
        path = home / name
        try:
            if path.stat().st_size <= _MOST_HOME_FILE:
                found[str(path)] = path.read_bytes().decode("utf-8", "surrogateescape")
        except OSError:
            continue
    return found
