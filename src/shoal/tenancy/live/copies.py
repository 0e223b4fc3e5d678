"""Backups of planes: the same files as those of a server, so that either goes on as the other."""

from __future__ import annotations

import tempfile
from pathlib import Path

from shoal.base.home import Home
from shoal.control.home.backup import make_backup, restore_backup


def backup(home: Path) -> bytes:
    """Raises as `make_backup`."""
    with tempfile.TemporaryDirectory(dir=home, prefix=".backup-") as folder:
        made = Path(folder) / "plane.backup"
        make_backup(Home(home), _url(home), made, force=False)
        return made.read_bytes()


def restore(home: Path, content: bytes) -> None:
    """Raises as `restore_backup`. No store of this plane may be open."""
    with tempfile.TemporaryDirectory(dir=home, prefix=".restore-") as folder:
        given = Path(folder) / "plane.backup"
        given.write_bytes(content)
        restore_backup(home, _url(home), given, force=True)


def _url(home: Path) -> str:
    return f"sqlite:///{home / 'shoal.db'}"
