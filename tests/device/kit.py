"""What tests of the gate share: programs that go through it, as processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from shoal.device import native

native_only = pytest.mark.skipif(not native.capability().available, reason=native.capability().detail)

PRELUDE = """
import ctypes, os, sys, time, threading
from shoal.device import native
lib = native.library()
gate = lib.shoal_gate_get()
def loop_for(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        yield
"""


def environment(page: Path | str, cls: str, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SHOAL_DEVICE_")}
    named = {f"SHOAL_DEVICE_{name.upper()}": value for name, value in more.items()}
    return {**kept, "SHOAL_DEVICE_PAGE": str(page), "SHOAL_DEVICE_CLASS": cls, **named}


def start(program: str, page: Path | str, cls: str, **more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + program],
        env=environment(page, cls, **more), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def run(program: str, page: Path | str, cls: str, **more: str) -> tuple[str, str]:
    """What it printed; on stderr too. It must end well."""
    process = start(program, page, cls, **more)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out, err


def until(true: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.002)
