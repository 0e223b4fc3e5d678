"""`shoal run -- COMMAND` without a server, and `shoal device`, as a person types them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.core import PriorityClass
from shoal.device import seats
from shoal.device.policy import Class

from .kit import native_only


@pytest.fixture
def shoal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.setenv("SHOAL_DEVICE_FOLDER", str(tmp_path / "pages"))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SHOAL_")}
    kept |= {"SHOAL_DEVICE_FOLDER": str(tmp_path / "pages"), "SHOAL_HOME": str(tmp_path / "home")}

    def call(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "shoal.cli", *words]
        done = subprocess.run(command, env=kept, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return done

    return call


def test_a_command_line_runs_here_where_no_server_is(shoal) -> None:  # type: ignore[no-untyped-def]
    done = shoal(
        "run",
        "--class",
        "guaranteed",
        "--",
        "sh",
        "-c",
        "echo $SHOAL_DEVICE_CLASS -- $1; exit 7",
        "x",
        "--json",
        code=7,
    )
    assert done.stdout.strip() in ("guaranteed -- --json", "-- --json")
    assert "no server runs here: `sh` runs here" in done.stderr
    if done.stdout.startswith("--"):
        assert "runs without a gate" in done.stderr


@pytest.mark.few(count=3)
@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("--local", "--", "no-such-program"), 3, "there is no program 'no-such-program'"),
        (("--local", "--device", "mars", "--", "true"), 3, "there is no device 'mars'"),
        (("--memory", "much", "--", "true"), 2, "--memory"),
        (("job.yaml", "--", "true"), 2, "there are a manifest and a command line"),
        (("--",), 2, "there is nothing to submit"),
        (("--url", "http://127.0.0.1:9", "--", "true"), 4, "127.0.0.1:9"),
    ],
)
def test_what_cannot_be_run_is_told(shoal, words: tuple[str, ...], code: int, text: str) -> None:  # type: ignore[no-untyped-def]
    assert text in shoal("run", *words, code=code).stderr


@native_only
def test_what_shares_a_device_is_shown_and_explained_and_its_rules_are_changed(shoal) -> None:  # type: ignore[no-untyped-def]
    assert "no program has shared a device here" in shoal("device", "status").stdout
    with seats.open_page("gpu0") as page:
        page.join(Class.GUARANTEED, name="serve.py")
        page.join(Class.BEST_EFFORT, name="train.py", weight=3)
        (device,) = json.loads(shoal("device", "status", "--json").stdout)
        assert device["device"] == "gpu0"
        assert [(one["name"], one["class"], one["weight"], one["pid"]) for one in device["programs"]] == [
            ("serve.py", "guaranteed", 1, os.getpid()), ("train.py", "best-effort", 3, os.getpid()),
        ]  # fmt: skip
        told = json.loads(shoal("device", "explain", "serve.py", "--json").stdout)
        assert [one["reason"] for one in told] == ["goes: guaranteed work never waits"]
        assert "it launches nothing now; if it did: " in shoal("device", "explain", "train.py").stdout
        assert "gpu0" in shoal("device", "status").stdout
        shoal("device", "rules", "gpu0", "--bound-us", "75", "--min-share", "0.02", "--max-wait-ms", "5")
        rules = page.rules()
        assert (rules.bound_ns, rules.min_share_pm, rules.max_wait_ns) == (75_000, 20, 5_000_000)
        assert json.loads(shoal("device", "rules", "--json").stdout)["gpu0"]["bound_ns"] == 75_000
    assert "no program 'x'" in shoal("device", "explain", "x", code=3).stderr
    assert "no program has shared 'gpu9'" in shoal("device", "rules", "gpu9", code=3).stderr


def test_the_doctor_says_what_is_missing() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "shoal.cli", "device", "doctor", "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    document = json.loads(done.stdout)
    good = document["capabilities"][0]["available"] and any(one["available"] for one in document["capabilities"][1:])
    assert done.returncode == (0 if good else 1)
    assert all(one["available"] or one["consequence"] for one in document["capabilities"])


def test_each_class_of_jobs_is_one_of_the_policy() -> None:
    assert {seats._CLASSES[cls] for cls in PriorityClass} == {"guaranteed", "best-effort"}


@native_only
def test_status_counts_the_processes_on_a_device_that_have_no_seat(shoal, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    from shoal.device.commands.device import _document, _table
    from tests.device.test_unseated import UUID, machine, process

    proc = tmp_path / "proc"
    machine(proc)
    process(proc, os.getpid(), "seated", "/dev/nvidia0")
    process(proc, 8, "numba", "/dev/nvidia0")
    process(proc, 9, "other", "/dev/nvidia1")
    with seats.open_page(UUID) as page:
        page.join(Class.GUARANTEED, name="web")
        first, second = _document(proc)
        assert [one["name"] for one in first["programs"]] == ["web"]
        assert first["unseated"] == [{"name": "numba", "pid": 8}]
        assert second["programs"] == []
        assert second["unseated"] == [{"name": "other", "pid": 9}]
        rows = _table(proc)._rows
        assert [row[2] for row in rows][1:] == ["no seat", "no seat"]
        assert {len(row) for row in rows} == {9}


def test_a_program_sees_the_device_that_its_seat_is_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from shoal.device import launch

    monkeypatch.setenv("SHOAL_DEVICE_FOLDER", str(tmp_path / "pages"))
    monkeypatch.setattr(seats, "environment", lambda seat, env: {})
    said: list[str] = []
    gpu = launch.SharedDevice("GPU-1", "H100", "CUDA", 0)
    for cls in PriorityClass:
        added = launch._seated(gpu, cls, 0, ["/nowhere/bin/python", "x.py"], {"PATH": ""}, said.append)
        assert added["CUDA_VISIBLE_DEVICES"] == "GPU-1"
        assert "SHOAL_PTXAS" not in added
    assert [one for one in said if "ptxas" in one] == [
        "no ptxas was found: kernels that Triton compiles go whole (name one in SHOAL_PTXAS)"
    ], "for best-effort work only"
    other = launch.SharedDevice("pocl#0", "CPU", "OpenCL", 0)
    added = launch._seated(other, PriorityClass.GUARANTEED, 0, ["/bin/sh"], {}, said.append)
    assert added == {"SHOAL_DEVICE_OPENCL": "pocl#0"}
