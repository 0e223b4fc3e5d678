"""The table that the native hook reads: names of annotated commands, folders of sites, and where the programs are. Its
layout is that of `native/shell/session.h`."""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from shoal.base.files import write_whole
from shoal.core import Unavailable

NATIVE = Path(__file__).parent / "_native"
STAGE, HOOK, LAUNCHER = NATIVE / "shoal-stage", NATIVE / "libshoalshell.so", NATIVE / "shoal-sh"
BUILD_IT = "install a C compiler (apt-get install g++), then install Shoal again"
WARM_STAGES = 64
PATIENCE = "SHOAL_SHELL_PATIENCE_MS"
"""The variable by which a user of a crowded machine lets commands wait longer for the agent."""
PATIENCE_MS = 50
_HEAD = struct.Struct("=8siIIII512s512s512s512s")
_MAGIC = b"SHOALSH3"


def missing_native() -> str | None:
    """The native part that is not there, if one is."""
    return next((path.name for path in (STAGE, HOOK, LAUNCHER) if not path.exists()), None)


def write_table(folder: Path, *, prefixes: Sequence[str], leaves: Mapping[str, bool]) -> Path:
    """`leaves` has for each annotated name whether such a command starts no other. Raises Unavailable without the
    native parts."""
    if missing := missing_native():
        raise Unavailable(f"the native part {missing} was not built", where=str(NATIVE), hint=BUILD_IT)
    sites = b"".join(struct.pack("=256s", one.encode()) for one in prefixes)
    short = {name.encode(): leaf for name, leaf in leaves.items() if len(name.encode()) < 31}
    names = b"".join(struct.pack("=31sB", name, short[name]) for name in sorted(short))
    size = _HEAD.size + len(sites) + len(names)
    places = [str(one).encode() for one in (STAGE, HOOK, folder, sys.executable)]
    if any(len(one) > 511 for one in places):
        raise Unavailable("a path is too long for the table", where=str(folder), hint="use a home with a shorter path")
    head = _HEAD.pack(_MAGIC, WARM_STAGES, len(prefixes), len(short), size, _patience_ms(), *places)
    path = folder / "table"
    write_whole(path, head + sites + names, durable=False)
    _link_programs(programs_folder(folder), leaves)
    return path


def programs_folder(folder: Path) -> Path:
    """Stands first on the PATH of shells that cannot load the hook."""
    return folder / "bin"


def _link_programs(folder: Path, names: Iterable[str]) -> None:
    folder.mkdir(exist_ok=True, mode=0o700)
    wanted = {name for name in names if "/" not in name}
    for one in folder.iterdir():
        if one.is_symlink() and (one.name not in wanted or one.readlink() != STAGE):
            one.unlink()
    for name in wanted - {one.name for one in folder.iterdir()}:
        (folder / name).symlink_to(STAGE)


def _patience_ms() -> int:
    told = os.environ.get(PATIENCE, "")
    return int(told) if told.isdecimal() and len(told) < 9 else PATIENCE_MS
