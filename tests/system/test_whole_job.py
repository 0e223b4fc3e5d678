"""One real job through every stage: inputs, secret, a checkpoint kept elsewhere, suspend, resume, outputs."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shoal.base.home import Home, stop_server
from shoal.control.server import start_detached
from shoal.sdk import Client

SECRET = "s3cr3t-value-xyz"
SCRIPT = """
import os, pathlib, time
from shoal import train

start = int(train.resume_path().read_text()) if train.resume_path() else 0
print("start", start, pathlib.Path("in/data.txt").read_text(), len(os.environ["TOKEN"]), flush=True)
# At first it would go on for ever: it is suspended in time however busy the machine is.
for step in range(start + 1, start + 41 if start else 1_000_000):
    time.sleep(0.05)
    train.report(step, total=1_000_000, loss=1 / step)
    if train.should_checkpoint():
        path = train.checkpoint_dir() / f"{step}.txt"
        path.write_text(str(step))
        train.checkpoint(path, step=step)
pathlib.Path("out").mkdir()
pathlib.Path("out/model.txt").write_text("model")
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path / "home")
    start_detached(["--home", str(home.path), "--port", "0", "--slots", "1"], home)
    yield home
    stop_server(home, timeout_s=20)


def until(condition: Callable[[], bool], within_s: float = 30.0) -> None:
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.05)


def test_a_job_is_suspended_and_resumed_with_all_that_belongs_to_it(home: Home, tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("hello")
    (tmp_path / "job.py").write_text(SCRIPT)
    with Client(home=home.path, environ={}) as client:
        client.create_tenant("ada", sandbox="none")
        client.set_secret("hub", SECRET, tenant="ada")
        job = client.submit(
            {
                "name": "io", "tenant": "ada", "command": [sys.executable, str(tmp_path / "job.py")],
                "secrets": {"TOKEN": "hub"},
                "inputs": [{"from": str(tmp_path / "data.txt"), "to": "in/data.txt"}],
                "outputs": [{"from": "out", "to": f"file://{tmp_path}/stored"}],
                "checkpoint": {"directory": f"file://{tmp_path}/kept"},
            }
        )  # fmt: skip
        until(lambda: bool(client.job(job.id).progress.get("step")))
        client.suspend(job.id)
        until(lambda: client.job(job.id).state == "SUSPENDED")
        saved = client.job(job.id).progress["checkpoint_step"]
        assert saved > 0
        # The checkpoint lives where the manifest said: what the server keeps beside it may go.
        shutil.rmtree(home.path / "checkpoints" / job.id)
        client.resume(job.id)
        ended = client.wait(job.id, timeout_s=60)
        assert ended.state == "SUCCEEDED", ended.message
        assert (tmp_path / "stored" / "model.txt").read_text() == "model"
        logs = [client.log_piece(job.id, attempt=number).data.decode() for number in (1, 2)]
        states = [event.new_state for event in client.events(job.id) if event.kind == "job.state"]
    assert logs == [f"start 0 hello {len(SECRET)}\n", f"start {saved} hello {len(SECRET)}\n"]
    assert states == [
        "ADMITTED", "PLACED", "STARTING", "DOWNLOADING", "RUNNING", "CHECKPOINTING", "STORING", "SUSPENDED",
        "QUEUED", "ADMITTED", "PLACED", "STARTING", "DOWNLOADING", "RUNNING", "STORING", "SUCCEEDED",
    ]  # fmt: skip
    holding = []
    for path in home.path.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # some come and go while the server runs
            if path.is_file() and SECRET.encode() in path.read_bytes():
                holding.append(path)
    assert holding == []


def test_a_missing_input_is_the_users_fault_and_the_log_says_which(home: Home) -> None:
    with Client(home=home.path, environ={}) as client:
        job = client.submit({"name": "x", "command": ["true"], "inputs": [{"from": "/nowhere/at/all", "to": "a"}]})
        ended = client.wait(job.id, timeout_s=60)
    assert (ended.state, ended.error_code) == ("FAILED", "U201-input-data")
    assert "/nowhere/at/all -> a: no such file" in ended.message
