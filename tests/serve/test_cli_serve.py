"""`shoal serve`: what it says, what it refuses, and that it ends whole."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from typer.testing import CliRunner, Result

from shoal.cli.app import app
from shoal.core import ShoalError
from shoal.serve.errors import ReplicaLost
from tests.serve import models
from tests.serve.client import InferenceClient
from tests.serve.gateway_kit import ENDS_WITHIN_S, ONE, eventually

CALLABLES = """
import os, signal, time
from shoal.inference.types import DataType, TensorSpec

TAKES = (TensorSpec("x", DataType.FP32, (-1, -1)),)

class Double:
    inputs = TAKES
    outputs = (TensorSpec("y", DataType.FP32, (-1, -1)),)

    def __call__(self, arrays):
        return {"y": 2 * arrays["x"]}

class Fragile(Double):
    def __call__(self, arrays):
        if arrays["x"].sum() > 100:
            print("a fault in native code", flush=True)
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().__call__(arrays)

class Ungrateful(Double):
    def __call__(self, arrays):
        if signum := int(arrays["x"][0, 0]):
            os.kill(os.getppid(), signum)
            time.sleep(60)
        return super().__call__(arrays)

class Leaks(Double):
    kept = []

    def __call__(self, arrays):
        self.kept.append(b"x" * (50 << 20))
        return super().__call__(arrays)

class Crash(Double):
    def __init__(self):
        print("\\x1b]0;these are my\\x07 last words", flush=True)
        os._exit(9)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, and where temporary files go."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "mine.py").write_text(CALLABLES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


@pytest.fixture
def linear(here: Path) -> str:
    return str(models.linear(here / "linear.onnx"))


def ask(*words: str) -> Result:
    return CliRunner().invoke(app, ["serve", *words])


def nothing_left(here: Path) -> bool:
    """Neither processes nor files."""
    own = [one for one in psutil.Process().children(recursive=True) if "shoal.serve.replica" in " ".join(cmdline(one))]
    return not own and not [*(here / "tmp").glob("shoal-serve-*")]


def cmdline(process: psutil.Process) -> Sequence[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return ()


@pytest.mark.parametrize(
    ("words", "complaints"),
    [
        (["none.onnx"], ["there is no such file", "where: none.onnx"]),
        (["mine.py"], ["no runtime opens .py files", "name one with --runtime: callable, "]),
        (["tmp"], ["there is no such file"]),
        (["{linear}", "{linear}"], ["two models are called 'linear'", "NAME=MODEL"]),
        (["a b={linear}"], ["'a b' is no name for a model", "letters, digits, dots and dashes"]),
        (["={linear}"], ["'' is no name for a model"]),
        (["a/b={linear}"], ["'a/b' is no name for a model"]),
        (["{linear}", "--host", "0.0.0.0"], ["others could reach this without a token", "give --token as well"]),
        (["{linear}", "--slo-p99", "soon"], ["'soon' is not a duration", "such as 50ms"]),
        (["{linear}", "--memory", "much"], ["where: --memory", "such as 2GiB"]),
        (["{linear}", "--scheduler", "lottery"], ["there is no scheduler called 'lottery'", "one of deadline, fair"]),
        (["{linear}", "--replicas", "0"], ["invalid value for '--replicas'"]),
        (["{linear}", "--max-batch", "0"], ["invalid value for '--max-batch'"]),
        ([], ["missing argument 'MODEL'"]),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(
    here: Path, linear: str, words: list[str], complaints: list[str]
) -> None:
    done = ask(*(word.format(linear=linear) for word in words))
    assert done.exit_code == 2
    for complaint in complaints:
        assert complaint in done.stderr, done.stderr
    assert "Traceback" not in done.output
    assert nothing_left(here)


def test_help_says_how(here: Path) -> None:
    done = CliRunner().invoke(app, ["serve", "--help"], env={"COLUMNS": "400"})
    text = " ".join(done.stdout.split())
    assert done.exit_code == 0
    for wanted in ("shoal serve ocr=text.onnx", "until Ctrl-C", "--slo-p99", "such as 50ms", "shoal deploy"):
        assert wanted in text
    assert "[/" not in text


@pytest.mark.few
@pytest.mark.parametrize(
    ("make", "words", "complaint"),
    [
        (lambda here: (here / "bad.onnx").write_bytes(b"junk"), ["bad.onnx"], "onnxruntime cannot load bad.onnx"),
        (lambda here: (here / "bad.onnx").write_bytes(b""), ["ok=linear.onnx", "bad.onnx"], "model 'bad'"),
        (lambda here: None, ["nobody.knows:this"], "'nobody.knows:this' cannot be imported"),
    ],
)
def test_a_model_that_cannot_be_loaded_ends_it_with_the_reason(
    here: Path, linear: str, make: Callable[[Path], Any], words: list[str], complaint: str
) -> None:
    make(here)
    done = ask(*words, "--port", "0", "--grpc-port", "0")
    assert (done.exit_code, done.stdout) == (2, "")
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
    assert nothing_left(here)


@pytest.mark.slow
def test_a_model_that_kills_its_process_ends_it_with_the_last_words(here: Path) -> None:
    done = ask("mine:Crash", "--port", "0", "--grpc-port", "0")
    assert done.exit_code in (1, 2)
    assert "died while it loaded this" in done.stderr
    assert nothing_left(here)


@pytest.mark.parametrize("door", ["--port", "--grpc-port"])
def test_a_taken_port_ends_it(here: Path, linear: str, door: str) -> None:
    other = "--grpc-port" if door == "--port" else "--port"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = ask(linear, door, str(port), other, "0")
        assert done.exit_code == 4
        assert "cannot be listened on" in done.stderr
        assert f"where: 127.0.0.1:{port}" in done.stderr
    done = ask(linear, door, str(port), other, "0", "--json", "--scheduler", "x")
    assert json.loads(done.stderr)["error"]["code"] == "invalid"
    assert nothing_left(here)


class Shell:
    """`shoal serve` as a process, as if from a terminal."""

    def __init__(self, here: Path, *words: str) -> None:
        command = [sys.executable, "-m", "shoal.cli", "serve", *words, "--port", "0", "--grpc-port", "0"]
        self.out, self.err = here / "out", here / "err"
        with self.out.open("wb") as out, self.err.open("wb") as err:
            environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environ, start_new_session=True
            )

    def said(self, wanted: str) -> str:
        def look() -> str:
            assert self.process.poll() is None, self.err.read_text()
            return self.out.read_text() if wanted in self.out.read_text() else ""

        found: str = eventually(look)
        return found

    def replicas(self) -> list[psutil.Process]:
        own = psutil.Process(self.process.pid).children(recursive=True)
        return [one for one in own if "shoal.serve.replica" in " ".join(cmdline(one))]

    def interrupt(self) -> int:
        """Ctrl-C: to all of the terminal's foreground group."""
        os.killpg(self.process.pid, signal.SIGINT)
        return self.process.wait(ENDS_WITHIN_S)


@pytest.fixture
def shell(here: Path) -> Iterator[Callable[..., Shell]]:
    made: list[Shell] = []

    def start(*words: str) -> Shell:
        made.append(Shell(here, *words))
        return made[-1]

    yield start
    for one in made:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


def test_it_serves_until_it_is_interrupted(here: Path, linear: str, shell: Callable[..., Shell]) -> None:
    running = shell("lin=linear.onnx", "mine:Double", "--replicas", "2", "--json", "--token", "secret")
    facts = json.loads(running.said("\n"))
    assert facts["models"] == ["lin", "Double"]
    assert facts["http"].startswith("http://127.0.0.1:")
    client = InferenceClient(facts["http"], token="secret")
    w, b = models.linear_weights()
    np.testing.assert_allclose(client.infer("lin", {"x": ONE})["y"], ONE @ w + b, rtol=1e-5)
    assert client.infer("Double", {"x": ONE})["y"].sum() == 8
    replicas = running.replicas()
    assert len([one for one in replicas if not one.children()]) == 2
    assert running.interrupt() == 0
    assert running.err.read_text() == ""
    assert psutil.wait_procs(replicas, ENDS_WITHIN_S)[1] == []
    assert nothing_left(here)


def test_the_end_of_a_replica_is_told_with_signal_and_last_words(here: Path, shell: Callable[..., Shell]) -> None:
    running = shell("mine:Fragile", "--json")
    client = InferenceClient(json.loads(running.said("\n"))["http"])
    with pytest.raises(ReplicaLost):
        client.infer("Fragile", {"x": 1000 * ONE})
    said = eventually(lambda: running.err.read_text())
    assert "replica default.models-0-1 ended with signal SIGSEGV, and last said: a fault in native code" in said
    assert "it starts again in 0.00 s" in said
    assert client.infer("Fragile", {"x": ONE})["y"].sum() == 8
    assert running.interrupt() == 0
    assert running.err.read_text() == said


@pytest.mark.few
@pytest.mark.parametrize(
    "signum",
    [
        signal.SIGKILL,
        *(pytest.param(one, marks=pytest.mark.slow) for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)),
    ],
)
def test_a_model_that_signals_its_parent_ends_its_own_replica_only(
    here: Path, shell: Callable[..., Shell], signum: signal.Signals
) -> None:
    running = shell("mine:Ungrateful", "mine:Double", "--json")
    client = InferenceClient(json.loads(running.said("\n"))["http"])
    with pytest.raises(ShoalError):
        client.infer("Ungrateful", {"x": np.full((1, 4), signum, "f4")}, timeout_s=2.0)
    assert eventually(lambda: "Double" if client.ready() else "")
    assert running.process.poll() is None
    assert running.interrupt() == 0


def test_a_replica_beyond_its_memory_is_killed_and_said_so(here: Path, shell: Callable[..., Shell]) -> None:
    running = shell("mine:Leaks", "--json", "--memory", "100MiB")
    client = InferenceClient(json.loads(running.said("\n"))["http"])

    def leak() -> bool:
        try:
            client.infer("Leaks", {"x": ONE})
        except ReplicaLost:
            return True
        return False

    eventually(leak)
    said = eventually(lambda: running.err.read_text())
    assert "ended with signal SIGKILL, and last said: " in said
    assert re.search(r"it took \d+ MiB, more than its memory of 100 MiB and 256 MiB for the runtime", said)
    assert client.infer("Leaks", {"x": ONE})["y"].sum() == 8
    assert running.interrupt() == 0


def test_interrupted_before_it_is_ready_it_ends_as_well(here: Path, shell: Callable[..., Shell]) -> None:
    (here / "slow.py").write_text("import time\ntime.sleep(60)\n")
    running = shell("slow:model")
    (replica,) = eventually(running.replicas)
    assert running.interrupt() == 0
    assert (running.out.read_text(), "Traceback" in running.err.read_text()) == ("", False)
    assert psutil.wait_procs([replica], ENDS_WITHIN_S)[1] == []


@pytest.mark.slow
def test_killed_it_takes_its_replicas_along(here: Path, linear: str, shell: Callable[..., Shell]) -> None:
    running = shell("linear.onnx", "--memory", "1GiB", "--slo-p99", "1s", "--max-batch", "4")
    said = running.said("Ctrl-C ends it")
    assert "ready: http://127.0.0.1:" in said
    assert "/v2/models/linear/infer" in said
    replicas = running.replicas()
    running.process.kill()
    assert psutil.wait_procs(replicas, ENDS_WITHIN_S)[1] == []
