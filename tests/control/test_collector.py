"""Tenants' patterns on their logs: bounded, and no job's reports hold up another's."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from shoal.contract.patterns import compile_pattern
from shoal.control.attempts.collector import _absorb, _read_all, _read_log, _Tail


def test_values_and_steps_are_read_from_lines_of_any_bytes() -> None:
    lines = [b"step 3 loss=0.5", b"nothing", "größe loss=1 ü".encode(), b"\xff\xfe step 4 loss=2"]
    found = _read_log(lines, {"loss": r"(?:step (?P<step>\d+) )?loss=(?P<value>[\d.]+)"})
    assert [(each["metrics"], each["step"]) for each in found] == [
        ({"loss": b"0.5"}, 3), ({"loss": b"1"}, None), ({"loss": b"2"}, 4),
    ]  # fmt: skip


def test_only_the_beginning_of_a_long_line_is_looked_at() -> None:
    patterns = {"x": r"x=(\d)"}
    assert _read_log([b" " * 1997 + b"x=1"], patterns)
    assert not _read_log([b" " * 1998 + b"x=1"], patterns)


@pytest.mark.timeout(20)
def test_a_pattern_that_would_backtrack_for_ever_answers() -> None:
    assert not _read_log([b"a" * 5000] * 100, {"x": r"((a|a)+)+$b", "y": r"(x+x+)+y|(a*)*c"})


@pytest.mark.parametrize("pattern", ["(", r"(a)\1", "(?=a)(b)", r"(\pN{1,1000})", "(\ud800)"])
def test_a_pattern_that_is_not_linear_or_too_large_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        compile_pattern(pattern)


def test_the_engine_is_not_loaded_before_a_pattern_is() -> None:
    code = "import sys, shoal.control.attempts.collector, shoal.contract.manifest; sys.exit('re2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


async def test_a_line_that_is_too_deep_drops_itself_only() -> None:
    lines = [b'{"step": 1}', b"[" * 100_000, b'{"a":' * 100_000, b"{", b'{"step": 2}']
    assert await _read_all("metrics", lines, {}) == [{"step": 1}, {"step": 2}]


def test_a_line_without_a_step_says_nothing_of_when_the_last_step_was_reached() -> None:
    progress: dict[str, Any] = {}
    tail = _Tail(1)
    for read in (
        {"at": 10.0, "metrics": {"memory": 1}},
        {"at": 20.0, "step": 3},
        {"at": 30.0, "metrics": {"memory": 2}},
    ):
        _absorb(read, progress, tail, "j", 1, 99.0)
    assert (progress["step"], progress["reported_at"], progress["metrics"]) == (3, 20.0, {"memory": 2.0})
