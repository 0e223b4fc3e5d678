"""Backups by the clock of a real server: whole, private, few, and told of."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from shoal.base.home import Home, stop_server
from shoal.control.home.backup import read_backup, restore_backup
from shoal.control.server import start_detached
from shoal.sdk import Client
from shoal.upkeep.rotation import time_of


def until(true: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.05)


def backups(client: Client) -> dict[str, object]:
    (found,) = [one for one in client.status().capabilities if one["name"] == "backups"]
    return dict(found)


@pytest.mark.slow
def test_backups_are_made_checked_and_few(tmp_path: Path) -> None:
    home, folder = Home(tmp_path / "home"), tmp_path / "kept"
    words = ["--home", str(home.path), "--port", "0", "--slots", "1"]
    sets = {"backup_every": "1s", "backup_keep": "1", "backup_to": str(folder)}
    start_detached([*words, *(part for one in sets.items() for part in ("--set", "upkeep.{}={}".format(*one)))], home)
    try:
        with Client(home=home.path, environ={}) as client:
            seen: set[str] = set()

            def made() -> int:
                seen.update(one.name for one in folder.glob("shoal-*.tar"))
                return len(seen)

            until(lambda: made() >= 2)
            until(lambda: len(list(folder.glob("shoal-*.tar"))) <= 2)  # the one that is just made is the second
            told = backups(client)
            assert told["available"], told
            assert folder.stat().st_mode & 0o777 == 0o700
            assert "upkeep" in client.status().components
            (folder / ".shoal-20260101T000000Z.tar-left").mkdir()
            until(lambda: not (folder / ".shoal-20260101T000000Z.tar-left").exists())
            while not folder.is_file():  # in the way from now on is a file
                shutil.rmtree(folder, ignore_errors=True)
                with contextlib.suppress(IsADirectoryError):
                    folder.write_text("no folder")
            until(lambda: not backups(client)["available"])
            assert "no backup could be made" in str(backups(client)["detail"])
            doctor = [sys.executable, "-m", "shoal.cli", "doctor", "--json", "--home", str(home.path)]
            said = json.loads(subprocess.run(doctor, capture_output=True, check=False).stdout)["capabilities"]
            assert [one["available"] for one in said if one["name"] == "backups"] == [False]
            kinds = {event.kind for event in client.events()}
            assert {"upkeep.backed-up", "upkeep.backup-failed"} <= kinds
    finally:
        stop_server(home, timeout_s=20)


@pytest.mark.slow
def test_what_the_clock_made_is_restored_elsewhere(tmp_path: Path) -> None:
    home, folder = Home(tmp_path / "home"), tmp_path / "home" / "backups"
    words = ["--home", str(home.path), "--port", "0", "--slots", "1", "--set", "upkeep.backup_every=1h"]
    start_detached(words, home)
    try:
        until(lambda: list(folder.glob("shoal-*.tar")))
    finally:
        stop_server(home, timeout_s=20)
    (made,) = folder.glob("shoal-*.tar")
    assert made.stat().st_mode & 0o777 == 0o600
    assert abs((time_of(made.name) or 0) - read_backup(made).made_at) < 60
    about, aside = restore_backup(tmp_path / "new", f"sqlite:///{tmp_path}/new/shoal.db", made, force=False)
    assert (about.home, aside) == (str(home.path), None)
    assert (tmp_path / "new" / "secret.key").read_bytes() == (home.path / "secret.key").read_bytes()
