"""The benchmark for a machine with a GPU goes through all of its ways on the fake driver."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.device.cuda.kit import ROOT, needs_fake

pytestmark = [needs_fake, pytest.mark.slow]


def test_a_dry_run_takes_every_way() -> None:
    command = [sys.executable, str(ROOT / "benchmarks/device_gpu.py"), "--dry-run"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    told = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")]
    ways = ["alone", "plain", "gate", "gate+slice", "gate+ticket", "priority", "mps"]
    assert [words[2] for words in told if len(words) == 9] == ["way", *ways * 3]
    assert done.stdout.startswith("['-d', 'quit', '-d', 'quit', '-d', 'quit']"), "MPS is started and ended for each"
    assert {words[0] for words in told} >= {"| stream write, CPU us", "| kernel of 64 blocks, by ticket, median us"}
