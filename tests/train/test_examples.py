"""The examples train to a real accuracy, alone and as Shoal would run them."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from shoal.train import EXIT_RESUMABLE

EXAMPLES = Path(__file__).parents[2] / "examples"


def start(
    example: str, *arguments: str, cwd: Path, environ: dict[str, str] | None = None
) -> subprocess.Popen[str]:  # fmt: skip
    env = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", **(environ or {})}
    words = [sys.executable, str(EXAMPLES / example / "train.py"), *arguments]
    return subprocess.Popen(words, env=env, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str], code: int = 0) -> str:
    out, error = process.communicate(timeout=100)
    assert process.returncode == code, error
    return out


def accuracy(text: str) -> float:
    (found,) = re.findall(r"^final accuracy=([\d.]+)$", text, re.MULTILINE)
    return float(found)


def managed(home: Path, rank: int = 0, **more: str) -> dict[str, str]:
    run = home / f"rank-{rank}"
    run.mkdir(parents=True, exist_ok=True)
    return {
        "SHOAL_RUN": str(run),
        "SHOAL_METRICS_FILE": str(run / "metrics.jsonl"),
        "SHOAL_CHECKPOINT_DIR": str(home / "checkpoints"),
        "RANK": str(rank),
        **more,
    }


def reports(home: Path, rank: int = 0) -> list[dict[str, object]]:
    return [json.loads(line) for line in (home / f"rank-{rank}" / "metrics.jsonl").read_text().splitlines()]


SLOW = pytest.mark.slow  # each start loads scikit-learn, for seconds


@pytest.mark.parametrize(
    ("example", "arguments", "least"),
    [
        ("numpy-mlp", [], 0.93),
        pytest.param("numpy-mlp", ["--data", "wine", "--steps", "300"], 0.9, marks=SLOW),
        pytest.param("numpy-mlp", ["--data", "breast-cancer", "--steps", "300"], 0.9, marks=SLOW),
        pytest.param("gang-allreduce", [], 0.9, marks=SLOW),
        pytest.param("flaky", [], 0.8, marks=SLOW),
        ("unmodified", [], 0.9),
    ],
)
def test_alone(example: str, arguments: list[str], least: float, tmp_path: Path) -> None:
    assert accuracy(finish(start(example, *arguments, cwd=tmp_path))) >= least


@pytest.mark.slow
def test_torch(tmp_path: Path) -> None:
    process = start("torch-digits", cwd=tmp_path)
    if find_spec("torch"):
        assert accuracy(finish(process)) >= 0.9
    else:
        _, error = process.communicate(timeout=100)
        assert process.returncode == 1
        assert error.strip() == "this example needs PyTorch: install it with `pip install torch`, then run it again"


@pytest.mark.few
@pytest.mark.parametrize(
    ("example", "least"),
    [
        pytest.param(*each, marks=SLOW)
        for each in (("digits-sgd", 0.9), ("numpy-mlp", 0.93), ("gang-allreduce", 0.9), ("flaky", 0.8))
    ],
)
def test_a_stop_and_a_resume_reach_what_one_go_does(example: str, least: float, tmp_path: Path) -> None:
    whole = accuracy(finish(start(example, cwd=tmp_path)))
    assert whole >= least
    environ = managed(tmp_path / "home")
    notice = tmp_path / "home" / "rank-0" / "notice"
    notice.write_text("{}")
    assert "final" not in finish(start(example, cwd=tmp_path, environ=environ), EXIT_RESUMABLE)
    assert (notice.parent / "cooperative").exists()
    notice.unlink()
    text = finish(start(example, cwd=tmp_path, environ=environ))
    assert re.match(r"(attempt 1 |rank 0 of 1 )?resume[sd] at (step|epoch) \d", text)
    assert accuracy(text) == whole


def test_flaky_crashes_once_and_resumes(tmp_path: Path) -> None:
    first = managed(tmp_path, SHOAL_ATTEMPT="1")
    finish(start("flaky", "--crash-at", "18", cwd=tmp_path, environ=first), code=1)
    text = finish(start("flaky", "--crash-at", "18", cwd=tmp_path, environ=managed(tmp_path, SHOAL_ATTEMPT="2")))
    assert text.startswith("attempt 2 resumes at step 15\n")
    assert accuracy(text) >= 0.8
    assert [line["step"] for line in reports(tmp_path) if "checkpoint" in line] == [5, 10, 15, 20, 25, 30, 35]


def gang(tmp_path: Path, *arguments: str) -> list[subprocess.Popen[str]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return [
        start("gang-allreduce", *arguments, cwd=tmp_path, environ=managed(tmp_path, rank, **shared)) for rank in (0, 1)
    ]


@pytest.mark.slow
def test_a_gang_learns_stops_and_resumes_together(tmp_path: Path) -> None:
    ranks = gang(tmp_path, "--steps", "2000000")
    assert ranks[0].stdout is not None
    ranks[0].stdout.readline()
    for rank in (1, 0):  # the order in which notices arrive must not matter
        (tmp_path / f"rank-{rank}" / "notice").write_text("{}")
    for process in ranks:
        finish(process, EXIT_RESUMABLE)
    for rank in (0, 1):
        (tmp_path / f"rank-{rank}" / "notice").unlink()
    reached = max(int(str(line["step"])) for line in reports(tmp_path) if "checkpoint" in line)
    texts = [finish(process) for process in gang(tmp_path, "--steps", str(reached + 50))]
    assert [text.splitlines()[0] for text in texts] == [
        f"rank {rank} of 2 resumes at step {reached}" for rank in (0, 1)
    ]
    assert accuracy(texts[0]) >= 0.9
    assert "final" not in texts[1]
