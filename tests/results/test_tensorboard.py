"""Curves of jobs in a TensorBoard of this machine."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shoal.base.home import Home, stop_server
from shoal.cli.app import app
from shoal.control.server import start_detached
from shoal.core import NotFound
from shoal.sdk import Client

pytestmark = pytest.mark.slow

WRITES = """
import os, pathlib, time
folder = pathlib.Path(os.environ["TENSORBOARD_LOGDIR"]); folder.mkdir(parents=True)
(folder / "first").write_text("1")
while not os.path.exists("end"):
    time.sleep(0.05)
(folder / "last").write_text("2")
"""
# Stands for the program: says what it was given and sees; ends once the second file has come.
SHOWS = """#!{python}
import json, os, pathlib, sys, time
folder = pathlib.Path(sys.argv[sys.argv.index("--logdir") + 1])
def files(): return sorted(str(one.relative_to(folder)) for one in folder.rglob("[!.]*") if one.is_file())
first = files()
open({go!r}, "w").close()
while len(files()) < 2:
    time.sleep(0.05)
json.dump([sys.argv[1:], first, files()], open({told!r}, "w"))
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path / "home")
    start_detached(["--home", str(home.path), "--port", "0", "--slots", "2"], home)
    try:
        yield home
    finally:
        stop_server(home, timeout_s=20)


def _has_written(client: Client, job: str) -> bool:
    with contextlib.suppress(NotFound):  # its directory is not there yet
        return any(one.path == "runs/first" for one in client.files(job, recursive=True).files)
    return False


def test_what_a_job_writes_is_shown_while_it_runs(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    with Client(home=home.path, environ={}) as client:
        made = {"name": "train", "command": [sys.executable, "-c", WRITES]}
        plain = client.submit({**made, "name": "plain", "env": {"TENSORBOARD_LOGDIR": "t"}}).id
        client.cancel(plain)
        job = client.submit({**made, "extensions": {"results": {"tensorboard": "runs"}}}).id
        while not _has_written(client, job):
            client.job(job, wait_s=0.1)
        detail = client.job(job)
        program, told = tmp_path / "bin/tensorboard", tmp_path / "told"
        program.parent.mkdir()
        go = home.path / str(detail.run_dir) / "end"
        program.write_text(SHOWS.format(python=sys.executable, go=str(go), told=str(told)))
        program.chmod(stat.S_IRWXU)
        monkeypatch.setattr(sys, "executable", str(tmp_path / "nowhere/python"))
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        words = ["tensorboard", "train", "--every", "1", "--port", "0", "--home", str(home.path)]
        found = CliRunner().invoke(app, words)
        assert found.exit_code == 0, found.output
        given, first, last = json.loads(told.read_text())
        assert first == [f"train {job}/first"]
        assert last == [f"train {job}/first", f"train {job}/last"]
        assert given[2:] == ["--port", "0", "--host", "127.0.0.1"]
        assert not Path(given[1]).exists(), "what was fetched is gone with it"
        refused = CliRunner().invoke(app, ["tensorboard", "plain", "--home", str(home.path)])
        assert refused.exit_code != 0
        assert "names no directory for TensorBoard" in refused.output
        monkeypatch.setenv("PATH", "/nowhere")
        refused = CliRunner().invoke(app, ["tensorboard", "train", "--home", str(home.path)])
        assert "pip install tensorboard" in refused.output
