"""What a job's programs did is among its metrics."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from shoal.offload.launch import environment
from shoal.offload.profile import REASONS
from shoal.offload.summaries import Summary, as_metrics, from_metrics, told

PROGRAM = """
import subprocess, sys
import numpy as np
x = np.ones(1000)
print((x * 2 + 1).sum())
np.sort(x)
if len(sys.argv) == 1:
    subprocess.run([sys.executable, __file__, "child"], check=True)
"""

NAMES = st.sampled_from(("plain", "chunks", "compiled"))
SECONDS = st.integers(0, 10**9).map(lambda each: each / 1000)


@given(
    st.dictionaries(NAMES, st.tuples(SECONDS, st.integers(1, 10**6)), min_size=1),
    st.dictionaries(st.sampled_from(sorted(REASONS)), st.integers(1, 10**6)),
    SECONDS,
)
def test_a_summary_comes_back_from_its_metrics(
    parts: dict[str, tuple[float, int]], stayed: dict[str, int], saved: float
) -> None:
    seconds, calls = ({name: each[at] for name, each in parts.items()} for at in (0, 1))
    found = Summary(seconds, calls, stayed, saved)  # type: ignore[arg-type]
    assert from_metrics({"loss": 1.0, **as_metrics(found)}) == found
    assert told(found)


def test_other_metrics_and_unknown_reasons_say_nothing() -> None:
    assert from_metrics({"loss": 1.0}) is None
    assert from_metrics({"offload/stayed/small": 2.0}) is None
    found = from_metrics({"offload/calls/plain": 2.0, "offload/stayed/of its own": 2.0})
    assert found == Summary({"plain": 0.0}, {"plain": 2}, {}, 0.0)


def test_a_job_tells_of_all_its_processes(tmp_path: Path) -> None:
    program, metrics = tmp_path / "job.py", tmp_path / "metrics.jsonl"
    program.write_text(PROGRAM)
    run = tmp_path / "run"
    run.mkdir()
    environ = environment(os.environ, threshold=1, summary=True, home=tmp_path)
    environ |= {"SHOAL_RUN": str(run), "SHOAL_METRICS_FILE": str(metrics)}
    ended = subprocess.run([sys.executable, str(program)], env=environ, capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["3000.0", "3000.0"]
    assert ended.stderr.count("shoal offload: ") == 2
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert all("step" not in line for line in lines)
    first, last = from_metrics(lines[0]["metrics"]), from_metrics(lines[-1]["metrics"])
    assert first is not None
    assert last is not None
    assert {name: 2 * count for name, count in first.calls.items()} == last.calls
    assert last.stayed


def test_a_folder_that_cannot_be_written_costs_the_summary_only(tmp_path: Path) -> None:
    program = tmp_path / "job.py"
    program.write_text(PROGRAM)
    environ = environment(os.environ, threshold=1, summary=True, home=tmp_path)
    environ |= {"SHOAL_RUN": str(tmp_path / "none" / "run"), "SHOAL_METRICS_FILE": str(tmp_path / "none" / "metrics")}
    ended = subprocess.run([sys.executable, str(program)], env=environ, capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["3000.0", "3000.0"]
    assert "Traceback" not in ended.stderr


def test_names_that_a_terminal_would_obey_are_left_out() -> None:
    told_by_a_tenant = {"offload/calls/\x1b[2J": 1.0, "offload/calls/chunks": 2.0, "offload/calls/" + "x" * 40: 3.0}
    found = from_metrics(told_by_a_tenant)
    assert found is not None
    assert found.calls == {"chunks": 2}
