"""A lock on a file has one holder, can be waited for, and ends with its process."""

from __future__ import annotations

import math
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.base.locks import is_locked, lock_file


def test_one_holds_it_until_it_closes_the_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_locked(path)
    assert not path.exists(), "who only asks makes no file"
    first = lock_file(path)
    assert first is not None
    assert is_locked(path)
    assert lock_file(path) is None
    os.close(first)
    assert not is_locked(path)
    second = lock_file(path)
    assert second is not None
    os.close(second)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(("wait_s", "times"), [(0.0, 0), (0.05, 1), (0.2, 4)])
def test_one_waits_no_longer_than_it_was_told(tmp_path: Path, wait_s: float, times: int) -> None:
    held = lock_file(tmp_path / "lock")
    slept: list[float] = []
    assert lock_file(tmp_path / "lock", wait_s=wait_s, sleep=slept.append) is None
    assert slept == [0.05] * times
    assert held is not None
    os.close(held)


def test_one_gets_it_as_soon_as_it_is_free(tmp_path: Path) -> None:
    held = lock_file(tmp_path / "lock")
    assert held is not None
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            os.close(held)

    got = lock_file(tmp_path / "lock", wait_s=math.inf, sleep=sleep)
    assert got is not None
    assert len(slept) == 3
    os.close(got)


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    program = "import sys, time; from pathlib import Path; from shoal.base.locks import lock_file\n"
    program += "lock_file(Path(sys.argv[1])); print('held', flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", program, tmp_path / "lock"], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert is_locked(tmp_path / "lock")
        holder.kill()
    assert not is_locked(tmp_path / "lock")
