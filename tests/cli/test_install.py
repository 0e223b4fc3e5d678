"""`shoal install`: the files that systemd and logrotate read, where they are written, and what is left alone."""

from __future__ import annotations

import gzip
import json
import os
import pwd
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from shoal.base.home import Home, stop_server
from shoal.cli.app import app
from shoal.control.server import start_detached
from shoal.control.settings import load_settings

UNIT = "etc/systemd/system/shoal.service"


def shoal(*words: str, code: int = 0) -> Any:
    done = CliRunner().invoke(app, ["install", *words])
    assert done.exit_code == code, done.output
    return done


def test_files_are_written_below_a_directory_and_the_settings_stay(tmp_path: Path) -> None:
    told = json.loads(shoal("--system", "--root", str(tmp_path), "--json").stdout)
    assert all(one["written"] for one in told)
    unit = (tmp_path / UNIT).read_text()
    assert f"ExecStart={sys.executable} -m shoal.cli up --home /var/lib/shoal --config /etc/shoal/config.yaml" in unit
    assert "User=shoal" in unit
    assert "KillMode=process" in unit  # jobs outlive the server
    for one in told:
        assert stat.S_IMODE((tmp_path / one["path"][1:]).stat().st_mode) == 0o644
    settings = tmp_path / "etc/shoal/config.yaml"
    settings.write_text("port: 9999\n")
    again = json.loads(shoal("--system", "--root", str(tmp_path), "--user", "root", "--json").stdout)
    assert [one["path"] for one in again if not one["written"]] == ["/etc/shoal/config.yaml"]
    assert settings.read_text() == "port: 9999\n"
    assert "User=root" in (tmp_path / UNIT).read_text()


def test_the_settings_that_are_written_are_read(tmp_path: Path) -> None:
    shoal("--system", "--root", str(tmp_path))
    read = load_settings({"home": tmp_path / "home"}, config=tmp_path / "etc/shoal/config.yaml").values
    assert (read.host, read.port) == ("127.0.0.1", 7070)


def test_root_listens_where_all_users_find_it_and_begins_their_jobs_with_their_limits(tmp_path: Path) -> None:
    shoal("--system", "--root", str(tmp_path), "--user", "root")
    read = load_settings({"home": tmp_path / "home"}, config=tmp_path / "etc/shoal/config.yaml").values
    assert str(read.socket) == "/run/shoal/shoal.sock"
    assert "RuntimeDirectory=shoal\n" in (tmp_path / UNIT).read_text()
    assert "session required pam_limits.so" in (tmp_path / "etc/pam.d/shoal").read_text()
    (tmp_path / "etc/pam.d/shoal").write_text("session required pam_deny.so\n")
    shoal("--system", "--root", str(tmp_path), "--user", "root")
    assert "pam_deny" in (tmp_path / "etc/pam.d/shoal").read_text()


def test_printing_writes_nothing(tmp_path: Path) -> None:
    shown = shoal("--system", "--print", "--root", str(tmp_path)).stdout
    assert "==> /etc/systemd/system/shoal.service <==" in shown
    assert list(tmp_path.iterdir()) == []


def test_what_shoal_did_not_write_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / UNIT).parent.mkdir(parents=True)
    (tmp_path / UNIT).write_text("[Unit]\nDescription=mine\n")
    assert "not Shoal's" in shoal("--system", "--root", str(tmp_path), code=6).stderr
    assert "mine" in (tmp_path / UNIT).read_text()
    shoal("--system", "--root", str(tmp_path), "--force")
    assert "mine" not in (tmp_path / UNIT).read_text()


@pytest.mark.parametrize("place", [UNIT, "etc/systemd/system", "etc/logrotate.d"])
def test_no_link_leads_out_of_the_directory(tmp_path: Path, place: str) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / place).parent.mkdir(parents=True)
    if place == UNIT:
        outside.write_text("precious")
    else:
        outside.mkdir()
    (root / place).symlink_to(outside)
    done = CliRunner().invoke(app, ["install", "--system", "--root", str(root), "--force"])
    assert done.exit_code != 0
    assert (outside.read_text() == "precious") if place == UNIT else not list(outside.iterdir())


def test_a_pipe_in_the_place_of_a_file_holds_nothing_up(tmp_path: Path) -> None:
    (tmp_path / UNIT).parent.mkdir(parents=True)
    os.mkfifo(tmp_path / UNIT)
    assert "no plain file" in shoal("--system", "--root", str(tmp_path), code=6).stderr


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        ([], "for the machine only"),
        (["--system", "--user", "a b"], "no user's name"),
        (["--system", "--user", "root\nExecStart=/bin/sh"], "no user's name"),
        (["--system", "--home", "relative"], "cannot stand in a unit"),
        (["--system", "--home", "/var/lib/%n"], "cannot stand in a unit"),
        (["--system", "--home", "/var/lib/sh oal"], "cannot stand in a unit"),
        (["--system", "--home", "/var/../etc"], "cannot stand in a unit"),
    ],
)
def test_what_a_unit_cannot_name_is_refused(tmp_path: Path, words: list[str], wrong: str) -> None:
    assert wrong in shoal(*words, "--root", str(tmp_path), code=2).stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("user", ["shoal", "root"])
def test_systemd_finds_nothing_wrong(tmp_path: Path, user: str) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze")
    shoal("--system", "--root", str(tmp_path), "--user", user)
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / UNIT)], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.slow
def test_systemd_makes_the_user_and_the_directories(tmp_path: Path) -> None:
    if shutil.which("systemd-sysusers") is None or os.geteuid():
        pytest.skip("needs systemd-sysusers, and root")
    shoal("--system", "--root", str(tmp_path))
    made = subprocess.run(["systemd-sysusers", f"--root={tmp_path}"], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    line = next(one for one in (tmp_path / "etc/passwd").read_text().splitlines() if one.startswith("shoal:"))
    user = int(line.split(":")[2])
    made = subprocess.run(
        ["systemd-tmpfiles", f"--root={tmp_path}", "--create", str(tmp_path / "etc/tmpfiles.d/shoal.conf")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    home = (tmp_path / "var/lib/shoal").stat()
    assert (home.st_uid, stat.S_IMODE(home.st_mode)) == (user, 0o750)
    assert stat.S_IMODE((tmp_path / "etc/shoal/config.yaml").stat().st_mode) == 0o640


@pytest.mark.slow
def test_logrotate_takes_its_file(tmp_path: Path) -> None:
    if shutil.which("logrotate") is None:
        pytest.skip("there is no logrotate")
    shoal("--system", "--root", str(tmp_path), "--user", "root")
    checked = subprocess.run(
        ["logrotate", "--debug", str(tmp_path / "etc/logrotate.d/shoal")], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr
    assert "error" not in checked.stderr


@pytest.mark.slow
def test_a_log_is_rotated_under_the_server_that_writes_it(tmp_path: Path) -> None:
    if shutil.which("logrotate") is None:
        pytest.skip("there is no logrotate")
    home = Home(tmp_path / "home")
    shoal("--system", "--root", str(tmp_path / "image"), "--home", str(home.path), "--user",
          pwd.getpwuid(os.geteuid()).pw_name)  # fmt: skip
    start_detached(["--home", str(home.path), "--port", "0", "--slots", "1"], home)
    try:
        log = home.path / "server.log"
        before = log.read_bytes()
        assert b'"ready"' in before
        line = ["logrotate", "--force", "--state", str(tmp_path / "state"), f"{tmp_path}/image/etc/logrotate.d/shoal"]
        rotated = subprocess.run(line, capture_output=True, text=True, check=False)
        assert (rotated.returncode, rotated.stderr) == (0, "")
        assert gzip.decompress((home.path / "server.log.1.gz").read_bytes()) == before
        assert log.read_bytes() == b""
    finally:
        stop_server(home, timeout_s=60)
    after = log.read_bytes()
    assert b'"stopped"' in after
    assert b"\0" not in after  # it was written at the file's end, wherever that was by then
