"""Evidence in a home besides its database: whether something that was acknowledged is missing."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from shoal.base.home import Home
from shoal.contract.gangs import parse_gang_name
from shoal.contract.ids import lowest_id
from shoal.core import Unavailable
from shoal.store import WAYS_OUT, database_files, find_loss, last_sequence, sqlite_path

if TYPE_CHECKING:
    from shoal.store import Store

log = structlog.get_logger("shoal.server")

_SHOWN = 5
_STARTS_WITH_BYTES = 256 << 10
"""A server that starts writes less than this before it answers."""
_SPACE_TURN_S = 1.0


async def until_space(home: Home) -> None:
    """Wait while the home's disk is full, as the loops of a server do: jobs run on meanwhile."""
    told = False
    while True:
        try:
            with tempfile.NamedTemporaryFile(dir=home.path, prefix=".space-") as file:
                file.write(bytes(_STARTS_WITH_BYTES))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
        else:
            return
        if not told:
            log.warning("the disk is full: waiting for space", home=str(home.path))
        told = True
        await asyncio.sleep(_SPACE_TURN_S)


def check_database_of(home: Home, url: str) -> None:
    """Raise Unavailable when SQLite's database has lost something, or is missing beside a home that has lived."""
    loss = find_loss(url)
    if loss is not None:
        raise loss.error()
    path = sqlite_path(url)
    if path is not None and last_sequence(path) is None and has_lived(home):
        raise Unavailable(
            "the database is missing, and this home is not a new one: it has an admin's token or jobs' processes",
            where=str(path),
            hint=WAYS_OUT,
        )


def check_gangs(home: Home, store: Store) -> None:
    """Raise Unavailable when processes were started for jobs that the database does not know, after its last event:
    a job is stored before it is started."""
    newest = store.events(max(0, store.last_seq() - 1), limit=1)
    last_at = newest[-1].at if newest else 0.0
    lost = sorted({job_id for job_id in _gangs(home, last_at) if store.job(job_id) is None})
    if lost:
        names = ", ".join(lost[:_SHOWN]) + (f" and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else "")
        raise Unavailable(
            f"the database does not know {len(lost)} jobs whose processes were started here: {names}",
            where=str(home.path / "gangs"),
            hint=WAYS_OUT,
        )


def _gangs(home: Home, after: float) -> Iterator[str]:
    """The job of each gang that was launched later than this, also of those that are over.

    The directories of all jobs that are kept are there, a hundred thousand maybe: of those that are over only the ones
    whose id was given out later are opened."""
    lowest = lowest_id("j", after)
    for folder in os.scandir(home.path / "gangs") if (home.path / "gangs").is_dir() else ():
        parsed = parse_gang_name(folder.name)
        if parsed is None:
            continue
        for record in ("gang.json", "past.json") if parsed.job_id >= lowest else ("gang.json",):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                if float(json.loads(Path(folder.path, record).read_bytes())["created_at"]) > after:
                    yield parsed.job_id


def keep_evidence(home: Home, url: str) -> Path:
    """Copy the database's files as they are, before anything opens them for writing. Returns the folder."""
    folder = new_folder(home, "evidence")
    path = sqlite_path(url)
    if path is not None:
        for file in database_files(path):
            shutil.copy2(file, folder)
    return folder


def has_lived(home: Home) -> bool:
    return home.token_file.exists() or next(_gangs(home, 0.0), None) is not None


def new_folder(home: Home, kind: str) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return Path(tempfile.mkdtemp(dir=home.path, prefix=f"{kind}-{stamp}-"))
