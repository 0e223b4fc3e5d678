"""Backups of a home's database and keys, and restoring them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from shoal import __version__
from shoal.base.home import Home, prepare_home, running_server
from shoal.contract.events import EventKind
from shoal.contract.records import NewEvent
from shoal.control.home.recovery import has_lived, new_folder
from shoal.core import Conflict, Invalid, NotFound
from shoal.store import (
    Database,
    Position,
    check_database,
    control_lock,
    copy_database,
    database_files,
    find_loss,
    last_sequence,
    open_store,
    position_file,
    read_position,
    sqlite_path,
)

FORMAT = 2
KEYS = ("secret.key", "admin.token")
"""What a backup holds of the home besides the database: without them its secrets and its admin's token are lost."""
_LOCK_WAIT_S = 2.0
"""A server that was killed just now may take a moment to let go."""
_DATABASE, _ABOUT = "shoal.db", "backup.json"


@dataclass(frozen=True, slots=True)
class Backup:
    """What a backup file says of itself."""

    seq: int
    made_at: float
    home: str
    version: str
    sha256: Mapping[str, str] = field(default_factory=dict)
    """Of each member, this list's own file included; empty in a backup of format 1, which had none."""


def make_backup(home: Home, url: str, target: Path, *, force: bool) -> Backup:
    """Write one private file with the database and the home's keys, whole or not at all; a server may run meanwhile.

    Raises Conflict when the file exists, NotFound where there is no database, Invalid for PostgreSQL.
    """
    path = _sqlite(url)
    if target.exists() and not force:
        raise Conflict("the file exists", where=str(target), hint="give another, or --force to replace it")
    loss = find_loss(url)
    if loss is not None:
        raise loss.error()
    if last_sequence(path) is None:
        raise NotFound("there is no database to back up", where=str(path), hint="give the home with --home")
    with tempfile.TemporaryDirectory(dir=target.absolute().parent, prefix=f".{target.name}-") as folder:
        copy = Path(folder) / _DATABASE
        copy_database(path, copy)
        about = Backup(last_sequence(copy) or 0, time.time(), str(home.path), __version__)
        sources = {_DATABASE: copy}
        for name in KEYS:
            if (home.path / name).exists():
                sources[name] = Path(folder) / name
                shutil.copyfile(home.path / name, sources[name])
        about = replace(about, sha256={name: _digest_of(file) for name, file in sources.items()})
        (Path(folder) / _ABOUT).write_text(json.dumps(_sealed({"format": FORMAT, **asdict(about)})))
        draft = Path(folder) / "backup.tar"
        with draft.open("xb") as file, tarfile.open(fileobj=file, mode="w") as tar:
            os.fchmod(file.fileno(), 0o600)
            tar.add(Path(folder) / _ABOUT, _ABOUT)
            for name, member in sources.items():
                tar.add(member, name)
            tar.close()
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    return about


def read_backup(source: Path) -> Backup:
    """What a backup says of itself, once all of it was read and found to be what was written: each file by its digest,
    the database by its own check. Raises Invalid, and NotFound."""
    with tempfile.TemporaryDirectory(dir=source.absolute().parent, prefix=".check-") as folder:
        return _unpack(source, Path(folder))


def restore_backup(home_path: Path, url: str, source: Path, *, force: bool) -> tuple[Backup, Path | None]:
    """Put a backup's database and keys into a home. Returns what it was, and where what they replace was moved.

    A backup of format 1 has no digests: that its files are the ones that were written is not checked.
    Raises Conflict while a server runs on the home or its database, or when the home has a database and not `force`;
    Invalid for a file that is no whole backup.
    """
    path = _sqlite(url)
    home = prepare_home(home_path)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _alone(home, path), tempfile.TemporaryDirectory(dir=path.parent, prefix=".restore-") as folder:
        about = _unpack(source, Path(folder))
        if not force and (database_files(path) or has_lived(home)):
            raise Conflict(
                "this home has lived already", where=str(home.path),
                hint="give a new one with --home; or --force, which moves what it replaces aside",
            )  # fmt: skip
        _go_on(Path(folder) / _DATABASE, about, after=max(about.seq, read_position(path)))
        aside = _exchange(home, path, Path(folder))
    return about, aside


def _sqlite(url: str) -> Path:
    path = sqlite_path(url)
    if path is None:
        raise Invalid(
            "only a SQLite database is backed up and restored by Shoal", where="db",
            hint="use pg_dump and pg_restore for PostgreSQL, and copy HOME/secret.key and HOME/admin.token with it",
        )  # fmt: skip
    return path


@contextlib.contextmanager
def _alone(home: Home, path: Path) -> Iterator[None]:
    """Keep every server off the home and the database."""
    lock = control_lock(Database(f"sqlite:///{path}"))
    if running_server(home) is not None or not lock.take(_LOCK_WAIT_S):
        raise Conflict("a server runs on this home", where=str(home.path), hint="stop it first: `shoal down`")
    try:
        yield
    finally:
        lock.drop()


def _unpack(source: Path, folder: Path) -> Backup:
    def bad(why: str) -> Invalid:
        return Invalid(f"this is no whole backup: {why}", where=str(source), hint="give a file of `shoal backup`")

    try:
        with tarfile.open(source, "r:") as tar:
            members = {member.name: member for member in tar if member.isfile()}
            if not {_ABOUT, _DATABASE} <= members.keys() <= {_ABOUT, _DATABASE, *KEYS}:
                raise bad("it holds other files than a backup does")
            for member in members.values():
                tar.extract(member, folder, filter="data")
                (folder / member.name).chmod(0o600)
        told: dict[str, Any] = json.loads((folder / _ABOUT).read_bytes())
        if told["format"] not in (1, FORMAT):
            raise bad("it is of another format: a newer Shoal made it")
        if told["format"] == FORMAT or "sha256" in told:
            found = {name: _digest_of(folder / name) for name in members if name != _ABOUT}
            if _sealed({**told, "sha256": found}) != told:
                raise bad("it was changed: a file in it is not the one that was written")
        del told["format"]
        about = Backup(**told)
    except FileNotFoundError:
        raise NotFound("there is no such file", where=str(source)) from None
    except (tarfile.TarError, EOFError, ValueError, KeyError, TypeError):
        raise bad("it is cut or was changed") from None
    wrong = check_database(folder / _DATABASE)
    if wrong is not None:
        raise bad(f"its database is damaged: {wrong}")
    if last_sequence(folder / _DATABASE) != about.seq:
        raise bad("its database is not the one it was made with")
    return about


def _sealed(told: dict[str, Any]) -> dict[str, Any]:
    """With a digest of the list itself among its digests."""
    digests = {name: digest for name, digest in told["sha256"].items() if name != _ABOUT}
    whole = json.dumps({**told, "sha256": digests}, sort_keys=True)
    return {**told, "sha256": {**digests, _ABOUT: hashlib.sha256(whole.encode()).hexdigest()}}


def _digest_of(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _go_on(database: Path, about: Backup, *, after: int) -> None:
    """Note the restoring in the copy's own history, under a number that no earlier event ever had."""
    position = Position(database, sync=True)
    position.note(after)
    position.close()
    with contextlib.closing(open_store(f"sqlite:///{database}")) as store:
        store.acquire("shoal restore")
        cause = f"restored from a backup made at {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(about.made_at))} UTC"
        store.record_now(
            NewEvent(time.time(), EventKind.CONTROL_RESTORED, "admin", cause, data={"seq": about.seq, "was_at": after})
        )


def _exchange(home: Home, path: Path, folder: Path) -> Path | None:
    """Move what is there aside, and the restored files in; the database last, so that a home without one is never
    taken for whole."""
    old = database_files(path)
    old += [home.path / name for name in KEYS if (folder / name).exists() and (home.path / name).exists()]
    aside = new_folder(home, "replaced") if old else None
    for file in old:
        if aside is not None:
            shutil.move(file, aside / file.name)
    for name in KEYS:
        if (folder / name).exists():
            (folder / name).replace(home.path / name)
    position_file(folder / _DATABASE).replace(position_file(path))
    (folder / _DATABASE).replace(path)
    return aside
