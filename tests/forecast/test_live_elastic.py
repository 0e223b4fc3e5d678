"""The elastic example on a real server: ranks are killed, rank 0 among them, and no more is lost than since the last
checkpoint."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Shell, eventually

pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples/torch-elastic"


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    one = Shell(tmp_path / "home")
    one("up", "--port", "0", "--slots", "2", "--detach")
    yield one
    one("down")


def test_either_rank_may_be_killed_and_the_last_checkpoint_counts(shell: Shell, tmp_path: Path) -> None:
    manifest = yaml.safe_load((EXAMPLE / "job.yaml").read_text())
    line = [sys.executable, str(EXAMPLE / "train.py"), "--steps", "150", "--every", "0.5"]
    (path := tmp_path / "job.json").write_text(yaml.dump({**manifest, "command": line, "files": []}))
    shell("submit", str(path))

    def job() -> dict[str, object]:
        found: dict[str, object] = shell.json("show", "torch-elastic")
        return found

    kept: list[int] = []
    for attempt, rank in ((1, 1), (2, 0)):
        process = process_of(shell, job, attempt, rank)
        before = saved(job())
        eventually(lambda: saved(job()) > before)  # noqa: B023
        kept.append(saved(job()))
        os.kill(process, signal.SIGKILL)
    eventually(lambda: job()["state"] in ("SUCCEEDED", "FAILED"))
    assert (job()["state"], job()["attempt"]) == ("SUCCEEDED", 3)
    log = shell("logs", "torch-elastic").stdout
    assert float(re.findall(r"accuracy ([\d.]+)", log)[-1]) > 0.8
    begun = int(re.findall(r"begins after step (\d+)", log)[-1])
    assert begun >= kept[-1] > kept[0] > 0


def process_of(shell: Shell, job: Callable[[], dict[str, object]], attempt: int, rank: int) -> int:
    """Once this attempt trains."""
    found: list[str] = []

    def told() -> bool:
        if job()["attempt"] == attempt and job()["state"] == "RUNNING":
            found[:] = re.findall(r"process (\d+)", shell("logs", "torch-elastic", "--rank", str(rank)).stdout)
        return bool(found)

    eventually(told)
    return int(found[-1])


def saved(job: dict[str, object]) -> int:
    progress = job["progress"]
    assert isinstance(progress, dict)
    return int(progress.get("checkpoint_step") or 0)
