"""A real home whose database is damaged while its server is dead: told, never taken for a new home or a whole one."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shoal.base.home import Home, stop_server
from shoal.base.processes import kill_until_none
from shoal.cli.app import app
from shoal.control.server import start_detached
from shoal.core import Unavailable
from shoal.engine.local.processes import marked
from shoal.sdk import Client
from tests.servers import kill_for_good


def words(home: Home) -> list[str]:
    return ["--home", str(home.path), "--port", "0", "--slots", "4"]


def start(home: Home, *more: str) -> None:
    start_detached([*words(home), *more], home)


def shoal(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == code, done.output
    return done.output


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.05)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path / "home")
    start(home)
    yield home
    stop_server(home, timeout_s=20)
    kill_until_none(lambda: [each.process for each in marked(home.path)], timeout_s=20)


def submit(home: Home, name: str, command: str = "sleep 1000") -> str:
    with Client(home=home.path, environ={}) as client:
        return client.submit({"name": name, "command": ["sh", "-c", command], "resources": {"cpus": 0.1}}).id


def known(home: Home) -> dict[str, str]:
    with Client(home=home.path, environ={}, patience_s=10) as client:
        return {job.name: job.state for job in client.jobs().jobs}


def running(home: Home, name: str) -> Callable[[], bool]:
    return lambda: known(home).get(name) == "RUNNING"


def drop_log(home: Home) -> None:
    (home.path / "shoal.db-wal").unlink()


def cut_log(home: Home) -> None:
    log = home.path / "shoal.db-wal"
    os.truncate(log, log.stat().st_size // 2)


def drop_database(home: Home) -> None:
    (home.path / "shoal.db").unlink()
    (home.path / "shoal.db-wal").unlink()


def drop_all_of_it(home: Home) -> None:
    for file in home.path.glob("shoal.db*"):
        file.unlink()


@pytest.mark.few
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (drop_log, "write-ahead log is missing or cut"),
        pytest.param(cut_log, "write-ahead log is missing or cut", marks=pytest.mark.slow),
        pytest.param(drop_database, "the database is missing: sequence", marks=pytest.mark.slow),
        pytest.param(drop_all_of_it, "the database is missing, and this home is not a new one", marks=pytest.mark.slow),
    ],
)
def test_a_damaged_home_is_refused_until_its_loss_is_accepted(
    home: Home, damage: Callable[[Home], None], message: str
) -> None:
    for number in range(8):
        submit(home, f"lost-{number}", "true")
    submit(home, "orphan")
    until(running(home, "orphan"))
    kill_for_good(home)
    damage(home)
    left = {file.name for file in home.path.glob("shoal.db*")}
    with pytest.raises(Unavailable) as refused:
        start(home)
    assert message in refused.value.what
    assert "shoal up --accept-data-loss" in str(refused.value.hint)
    start(home, "--accept-data-loss")
    assert len(known(home)) < 9
    (evidence,) = home.path.glob("evidence-*")
    assert left - {"shoal.db.lock", "shoal.db-shm"} <= {file.name for file in evidence.iterdir()}
    with Client(home=home.path, environ={}) as client:
        (told,) = [event for event in client.events() if event.kind == "control.data-loss-accepted"]
        assert message in told.cause
        assert told.data["evidence"] == str(evidence)
    # What ran for jobs that are not known any more is ended, and the home is whole again.
    if "orphan" not in known(home):
        until(lambda: not list(home.path.glob("gangs/*/gang.json")))
    stop_server(home, timeout_s=20)
    start(home)


def test_a_server_that_is_started_on_a_full_disk_waits_for_space(tmp_path: Path) -> None:
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "none", place], check=False)
    if mounted.returncode:
        pytest.skip("a small file system takes root")
    home = Home(place / "home")
    try:
        start(home)
        submit(home, "stays")
        until(running(home, "stays"))
        kill_for_good(home)
        filler = place / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        log = tmp_path / "log"
        with log.open("wb") as file:
            server = subprocess.Popen([sys.executable, "-m", "shoal.cli", "up", *words(home)], stdout=file, stderr=file)
        until(lambda: "the disk is full: waiting for space" in log.read_text() or server.poll() is not None)
        assert server.poll() is None, log.read_text()
        filler.unlink()
        until(running(home, "stays"))
        with Client(home=home.path, environ={}) as client:
            assert client.jobs().jobs[0].attempt == 1
    finally:
        stop_server(home, timeout_s=20)
        kill_until_none(lambda: [each.process for each in marked(home.path)], timeout_s=20)
        subprocess.run(["umount", "-l", place], check=True)


HEAVY = (
    "alembic", "asyncpg", "attr", "fsspec", "grpc", "httpx", "jinja2", "numpy", "onnxruntime", "psycopg", "pygments",
    "ray", "rich", "scipy", "sqlalchemy.dialects.postgresql", "torch",
)  # fmt: skip
"""What a server does not need for its first answer: each would make every recovery slower."""


def test_a_server_answers_before_anything_heavy_is_loaded(tmp_path: Path) -> None:
    code = f"""
import os, pathlib, signal, sys
from shoal.control import server, settings

def ready(info):
    print(sorted(set({HEAVY!r}) & set(sys.modules)), file=sys.stdout, flush=True)
    os.kill(os.getpid(), signal.SIGTERM)

server.run_server(settings.load_settings({{"home": pathlib.Path(sys.argv[1]), "port": 0, "slots": 1}}), ready=ready)
"""
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "home"], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_backup_is_made_while_the_server_runs_and_brings_a_home_back(home: Home, tmp_path: Path) -> None:
    with Client(home=home.path, environ={}) as client:
        client.set_secret("key", "value-of-the-secret", tenant="default")
    submit(home, "stays")
    until(running(home, "stays"))
    file = tmp_path / "backup.tar"
    assert "everything up to sequence" in shoal("backup", str(file), "--home", str(home.path))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "the file exists" in shoal("backup", str(file), "--home", str(home.path), code=6)
    newer = submit(home, "newer")
    until(running(home, "newer"))
    assert "a server runs on this home" in shoal("restore", str(file), "--home", str(home.path), "--force", code=6)
    kill_for_good(home)
    assert "this home has lived already" in shoal("restore", str(file), "--home", str(home.path), code=6)
    (home.path / "shoal.db").write_text("damaged " * 1000)
    told = shoal("restore", str(file), "--home", str(home.path), "--force")
    assert "is as it was at sequence" in told
    (aside,) = home.path.glob("replaced-*")
    assert {"shoal.db", "shoal.db.position", "admin.token", "secret.key"} <= {one.name for one in aside.iterdir()}
    assert (aside / "shoal.db").read_text().startswith("damaged")
    start(home)  # the job that the backup does not know is no reason to refuse: an administrator restored it
    until(running(home, "stays"))
    assert "newer" not in known(home)
    until(lambda: not (home.path / "gangs" / f"{newer}.1.run" / "gang.json").exists())
    with Client(home=home.path, environ={}) as client:
        (stays,) = client.jobs().jobs
        assert stays.attempt == 1  # adopted, not started again
        assert [secret.name for secret in client.secrets(tenant="default")] == ["key"]
        seqs = [event.seq for event in client.events()]
        assert seqs == sorted(set(seqs))
        assert "control.restored" in {event.kind for event in client.events()}


@pytest.mark.slow
def test_an_older_copy_of_all_files_is_refused_by_the_jobs_that_ended_after_it(home: Home, tmp_path: Path) -> None:
    def over(name: str) -> Callable[[], bool]:
        return lambda: known(home).get(name) == "SUCCEEDED" and not list(home.path.glob("gangs/*/gang.json"))

    submit(home, "kept", "true")
    until(over("kept"))
    stop_server(home, timeout_s=20)
    older = tmp_path / "older"
    older.mkdir()
    for file in home.path.glob("shoal.db*"):
        shutil.copy2(file, older)
    start(home)
    lost = submit(home, "lost", "true")
    until(over("lost"))
    kill_for_good(home)
    for file in home.path.glob("shoal.db*"):
        file.unlink()
    shutil.copytree(older, home.path, dirs_exist_ok=True)
    with pytest.raises(Unavailable) as refused:
        start(home)
    assert refused.value.what.endswith(f"does not know 1 jobs whose processes were started here: {lost}")
    start(home, "--accept-data-loss")
    assert set(known(home)) == {"kept"}
    stop_server(home, timeout_s=20)
    start(home)


def test_a_backup_opens_in_a_new_home_and_a_bad_file_nowhere(home: Home, tmp_path: Path) -> None:
    submit(home, "done", "true")
    file, other = tmp_path / "backup.tar", tmp_path / "other"
    shoal("backup", str(file), "--home", str(home.path))
    whole = file.read_bytes()
    for bad in (
        whole[: len(whole) // 2],
        b"",
        b"no archive " * 200,
        whole.replace(b"SQLite format 3", b"SQLite format 4"),
    ):
        (tmp_path / "bad.tar").write_bytes(bad)
        said = shoal("restore", str(tmp_path / "bad.tar"), "--home", str(other), code=2)
        assert "this is no whole backup" in said
        assert not (other / "shoal.db").exists()
    assert "no such file" in shoal("restore", str(tmp_path / "none.tar"), "--home", str(other), code=3)
    assert "no database to back up" in shoal("backup", str(tmp_path / "b"), "--home", str(tmp_path / "empty"), code=3)
    shoal("restore", str(file), "--home", str(other))
    assert (other / "admin.token").read_text() == home.token_file.read_text()
    start(Home(other))
    try:
        assert set(known(Home(other))) == {"done"}
    finally:
        stop_server(Home(other), timeout_s=20)
    shutil.rmtree(other)
