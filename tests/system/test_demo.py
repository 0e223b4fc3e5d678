"""`shoal demo` as a newcomer runs it: a real server, real training, a real SIGKILL."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.core import Invalid, Unavailable
from shoal.demo import run_demo
from shoal.demo.processes import processes_of
from tests.engine.slurm_kit import needs_slurm

DEMO = [sys.executable, "-m", "shoal.cli", "demo", "--fast"]


@pytest.mark.slow  # `.ci/run` plays it as well
@pytest.mark.timeout(240)
def test_the_demo_keeps_every_promise(tmp_path: Path) -> None:
    done = subprocess.run(
        [*DEMO, "--json"], capture_output=True, text=True, env={**os.environ, "TMPDIR": str(tmp_path)}, check=False
    )

    report = json.loads(done.stdout)
    failed = [check for check in report["checks"] if not check["passed"]]
    assert not failed
    assert done.returncode == 0
    assert report["passed"] is True
    assert (report["jobs_lost"], report["jobs_doubled"]) == (0, 0)
    assert report["server_killed"] is True
    assert report["recovery_s"] > 0
    assert report["preemptions"] >= 1
    assert report["retries"] == 1
    assert len(report["rejected"]["problems"]) == 2
    assert report["adopted"] >= 1
    assert report["processes_left"] == 0
    jobs = {job["name"]: job for job in report["jobs"]}
    assert len(jobs) == 13
    assert {job["tenant"] for job in jobs.values()} == {"vision", "speech", "research"}
    assert all(job["state"] == "SUCCEEDED" and job["outcome"] == "succeeded" for job in jobs.values())
    assert "quota" in jobs["iris-softmax"]["wait_causes"]
    assert jobs["digits-marathon"]["outcomes"][0] == "preempted"
    assert jobs["digits-marathon"]["began_after"][-1] > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@needs_slurm
@pytest.mark.timeout(300)
def test_its_main_job_keeps_every_promise_on_slurm(tmp_path: Path) -> None:
    done = subprocess.run(
        [*DEMO, "--engine", "slurm", "--json"], capture_output=True, text=True, check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    report = json.loads(done.stdout)
    assert [check for check in report["checks"] if not check["passed"]] == []
    assert (report["jobs_lost"], report["jobs_doubled"], report["processes_left"]) == (0, 0, 0)
    assert len(report["jobs"]) == 13
    assert list(tmp_path.iterdir()) == []


def test_it_says_what_to_install_where_slurm_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clusters.slurm.missing", lambda: ("slurmctld", "munged"))
    with pytest.raises(Unavailable, match=r"no Slurm here: slurmctld, munged not found.*apt-get install"):
        run_demo(home=tmp_path / "home", engine="slurm")
    assert not (tmp_path / "home").exists()


def test_it_says_where_the_throwaway_slurm_is_when_only_the_package_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.demo.run._CLUSTERS", tmp_path / "benchmarks")
    with pytest.raises(Unavailable, match=r"not part of the installed package.*source tree"):
        run_demo(home=tmp_path / "home", engine="slurm")
    assert not (tmp_path / "home").exists()


def test_it_names_the_engines_that_it_can_use(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"no engine 'abacus'.*local and slurm"):
        run_demo(home=tmp_path / "home", engine="abacus")


def left_in(folder: Path) -> list[Path]:
    """ONNX Runtime writes `.ses` when it is imported: that is its own."""
    return [one for one in folder.iterdir() if one.name != ".ses"]


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_demo_leaves_nothing_behind(tmp_path: Path, signum: signal.Signals) -> None:
    with subprocess.Popen(
        DEMO, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(tmp_path)}
    ) as demo:
        assert demo.stdout is not None
        assert any("RUNNING on" in line for line in demo.stdout)
        (home,) = left_in(tmp_path)
        assert processes_of(home)
        demo.send_signal(signum)
        _, errors = demo.communicate()

    assert demo.returncode == 130
    assert "interrupted" in errors
    assert processes_of(home) == []
    assert left_in(tmp_path) == []


def test_the_demo_wants_a_directory_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")

    done = subprocess.run([*DEMO, "--home", str(tmp_path)], capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "needs an empty directory" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
