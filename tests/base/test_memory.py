"""What was freed goes back to the system."""

from __future__ import annotations

from pathlib import Path
from subprocess import run
from sys import executable

import pytest

SOURCE = """
import ctypes
from shoal.base.memory import give_back

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

blocks = [bytes(1000) for _ in range(64_000)]  # too large for Python's own allocator
pin, full = blocks[-1], resident()
blocks.clear()
kept = resident()
give_back()
print(full, kept, resident())
"""


def test_freed_memory_below_what_is_used_is_given_back(tmp_path: Path) -> None:
    import ctypes

    if not hasattr(ctypes.CDLL(None), "malloc_trim"):
        pytest.skip("another C library")
    done = run([executable, "-c", SOURCE], capture_output=True, text=True, check=True)
    full, kept, after = map(int, done.stdout.split())
    assert kept > full - (16 << 20)  # the last block keeps the others
    assert after < full - (48 << 20)
