"""A shared device with real programs on it, and the trace that their layers write."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from shoal.device import native, opencl
from shoal.device.page import Page
from shoal.device.policy import Rules

PROGRAMS = Path(__file__).parent / "programs"
ONE_AT_A_TIME = Rules(bound_ns=1, idle_bound_ns=1, grace_ns=1, grace_most_ns=1, stuck_ns=10**12)
"""Best-effort pieces go one by one, as each is longer than the bound."""


@dataclass(frozen=True)
class Line:
    """Of the trace."""

    pid: int
    what: str
    kernel: str
    first: int
    blocks: int
    of: int


@dataclass
class Shared:
    """A shared device and its programs."""

    folder: Path
    page: Page
    base: dict[str, str]
    programs: list[subprocess.Popen[str]]

    def start(
        self, program: str | Path, *arguments: str, cls: str | None = "best-effort", **settings: str
    ) -> subprocess.Popen[str]:
        environment = dict(self.base)
        if cls is not None:
            environment |= opencl.environment(base={}) | {
                "SHOAL_DEVICE_PAGE": str(self.page.path),
                "SHOAL_DEVICE_CLASS": cls,
                "SHOAL_DEVICE_TRACE": str(self.folder / "trace"),
                "SHOAL_DEVICE_LOG": str(self.folder / "log"),
            }
        environment |= {f"SHOAL_DEVICE_{name.upper()}": value for name, value in settings.items()}
        command = [str(program)]
        if isinstance(program, str):
            command = [sys.executable, "-W", "ignore", str(PROGRAMS / program)]
        started = subprocess.Popen(
            [*command, *arguments], env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.programs.append(started)
        return started

    def run(self, program: str | Path, *arguments: str, cls: str | None = "best-effort", **settings: str) -> str:
        started = self.start(program, *arguments, cls=cls, **settings)
        out, _ = started.communicate()
        assert started.returncode == 0
        return out

    def trace(self) -> list[Line]:
        with contextlib.suppress(FileNotFoundError):
            lines = [line.split() for line in (self.folder / "trace").read_text().splitlines()]
            return [Line(int(pid), what, kernel, *map(int, rest)) for pid, what, kernel, *rest in lines]
        return []

    def slot(self, program: subprocess.Popen[str]) -> native.Slot:
        """Also of one that has ended."""
        found = [one for one in self.page.struct.slot if one.owner & 0xFFFFFFFF == program.pid]
        assert found, "the program has not joined"
        return found[0]


def until(true: Callable[[], bool]) -> None:
    """Wait; the test's own timeout ends it."""
    while not true():
        time.sleep(0.005)


def say(program: subprocess.Popen[str], line: str = "") -> None:
    assert program.stdin is not None
    print(line, file=program.stdin, flush=True)


def hear(program: subprocess.Popen[str]) -> str:
    assert program.stdout is not None
    return program.stdout.readline().strip()
