"""A real server killed at random while it rents: what `benchmarks/market_live.py` counts must be zero."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

CHAOS = Path(__file__).parents[3] / "benchmarks" / "market_live.py"


def rampage(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, str(CHAOS), "--json", *arguments], capture_output=True, text=True, timeout=1100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {row["measure"]: row["value"] for row in json.loads(done.stdout)["rows"]}
    assert rows["servers killed"] > 0
    assert rows["jobs done"] > 0


@pytest.mark.timeout(200)
@pytest.mark.slow
def test_nothing_is_forgotten_or_doubled_while_the_server_is_killed() -> None:
    rampage("--instances", "20", "--kill-every", "1", "--limit", "120", "--seed", "3")


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("provider", ["simulated", "aws"])
def test_nothing_is_forgotten_or_doubled_in_a_long_run(provider: str) -> None:
    rampage("--provider", provider, "--instances", "200", "--limit", "900")
