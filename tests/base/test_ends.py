"""How a process ended, in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.base.ends import describe_end, last_line


@pytest.mark.parametrize(
    ("code", "words"),
    [(0, "exit code 0"), (3, "exit code 3"), (-9, "signal SIGKILL"), (-11, "signal SIGSEGV"), (-250, "signal 250")],
)
def test_a_code_has_a_name(code: int, words: str) -> None:
    assert describe_end(code) == words


def test_what_an_earlier_process_said_is_not_this_ones(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("an old end\n")
    assert last_line(log) == "an old end"
    assert last_line(log, since=11) == ""
    assert last_line(tmp_path / "none") == ""
