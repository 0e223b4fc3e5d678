"""What tests of the CUDA front end share: the fake driver, and programs that use it with and without the shim."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from shoal.device import cuda
from shoal.device.page import Occupant, Page
from shoal.device.policy import Rules

ROOT = Path(__file__).parents[3]
FAKE = ROOT / "build/native/device/fake"
NATIVE = ROOT / "native/device"
PROGRAM = FAKE / "cuda-program"
HERE = Path(__file__).parent

needs_fake = pytest.mark.skipif(
    not (FAKE / "libcuda.so.1").exists() or not cuda.shim().available, reason="the native parts were not built"
)

EAGER = Rules(bound_ns=50_000, grace_ns=0, grace_most_ns=0, idle_ns=10**12, idle_bound_ns=50_000, quantum_ns=10**12)
"""Guaranteed work counts as present for the whole test, and its silence is not waited for."""


@dataclass
class Device:
    """A fake device in a folder: its page, its log, and programs that use it."""

    folder: Path

    def page(self, rules: Rules = EAGER) -> Page:
        page = Page.create(self.folder / "page", device="fake")
        page.set_rules(rules)
        return page

    def environment(self, cls: str | None, **more: str) -> dict[str, str]:
        """For a program without the shim when `cls` is None. Of `more`, words with `fake_` are the fake driver's."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SHOAL_")}
        kept["SHOAL_FAKE_DEVICE"] = str(self.folder / "device")
        kept["SHOAL_FAKE_LOG"] = str(self.folder / "log")
        kept["LD_LIBRARY_PATH"] = str(FAKE)
        kept["PYTHONPATH"] = str(HERE)
        for name, value in more.items():
            kept[f"SHOAL_{name.upper()}" if name.startswith("fake_") else f"SHOAL_DEVICE_{name.upper()}"] = value
        if cls is None:
            return kept
        kept.setdefault("SHOAL_DEVICE_PAGE", str(self.folder / "page"))
        kept["SHOAL_DEVICE_CLASS"] = cls
        return {**kept, **cuda.environment(kept, FAKE / "libcuda.so.1")}

    def start(self, program: str, cls: str | None, *arguments: str, **more: str) -> subprocess.Popen[str]:
        """A program in Python that uses `driver.py`."""
        return self.command([sys.executable, "-c", "from driver import *\n" + program, *arguments], cls, **more)

    def command(self, command: list[str], cls: str | None, **more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command, env=self.environment(cls, **more), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, program: str, cls: str | None, *arguments: str, **more: str) -> str:
        return finish(self.start(program, cls, *arguments, **more))

    def log(self) -> list[tuple[int, str, int, int]]:
        """What the device ran, in order: process, kernel, blocks, first block."""
        lines = (self.folder / "log").read_text().splitlines() if (self.folder / "log").exists() else []
        return [(int(pid), name, int(blocks), int(base)) for pid, name, blocks, base in map(str.split, lines)]

    def kernels(self, pid: int | None = None) -> list[str]:
        """Their names without those of variants; of one process only, if given."""
        return [name.split("__")[0] for one, name, *_ in self.log() if pid in (None, one)]

    def forget(self) -> None:
        (self.folder / "log").unlink(missing_ok=True)


def finish(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    assert not err, err
    return out


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def resume(process: subprocess.Popen[str]) -> str:
    """Lets a program go on that reads a line, until it ends."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return finish(process)


def tenant(page: Page, process: subprocess.Popen[str]) -> Occupant:
    (found,) = [one for one in page.occupants() if one.pid == process.pid]
    return found


def compiler() -> list[str] | None:
    for name in ("c++", "g++", "clang++"):
        if found := shutil.which(name):
            return [found]
    return None
