"""Real processes, real `kill -9`, a really full disk: what `benchmarks/chaos.py` counts must be zero."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.slurm_kit import needs_slurm

CHAOS = Path(__file__).parents[2] / "benchmarks" / "chaos.py"


def rampage(*arguments: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, str(CHAOS), "--json", *arguments], capture_output=True, text=True, timeout=1700, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {row["measure"].strip(): row["value"] for row in json.loads(done.stdout)["rows"]}
    assert rows["faults: server killed"] > 0
    return rows


@pytest.mark.timeout(200)
def test_nothing_is_lost_or_doubled_while_everything_is_killed() -> None:
    rows = rampage("--jobs", "30", "--kill-every", "0.4", "--seed", "2", "--limit", "180")
    assert rows["acknowledged jobs lost"] == 0


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_nothing_is_lost_or_doubled_in_a_long_run() -> None:
    rampage("--jobs", "1000", "--kill-every", "0.5", "--seed", "7", "--limit", "1600")


@pytest.mark.slow
@needs_slurm
@pytest.mark.timeout(600)
def test_nothing_is_lost_or_doubled_while_slurms_daemons_are_killed_too() -> None:
    rampage("--engine", "slurm", "--jobs", "80", "--kill-every", "0.7", "--seed", "3", "--limit", "500")
