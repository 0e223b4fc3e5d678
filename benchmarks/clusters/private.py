"""What private clusters have in common: real daemons on this machine alone, for one run, that leave nothing behind."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from shoal.base.processes import Process, carrying, kill_until_none, start_ticks

NODE_MARK = "SHOAL_PRIVATE_NODE"
_GONE_S = 20.0


class PrivateCluster(ABC):
    """Nodes n1, n2, ... with so many accelerators each, and as many cores. Blocks in all it does. A context, at whose
    end nothing of it is left, neither files nor processes."""

    def __init__(self, gpus: Sequence[int]) -> None:
        self.gpus = {f"n{number}": count for number, count in enumerate(gpus, start=1)}
        self.names = tuple(self.gpus)
        self.root = Path()
        """Its files."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @abstractmethod
    def start(self) -> None:
        """Raises Unavailable where it cannot be had."""

    def stop(self) -> None:
        """End all daemons, and every process that any of them started."""
        if self.root == Path():
            return
        kill_until_none(self.processes, timeout_s=_GONE_S)
        shutil.rmtree(self.root, ignore_errors=True)

    @property
    @abstractmethod
    def _mark(self) -> str:
        """What all of its processes have in their environment."""

    def processes(self, node: str = "") -> Iterator[Process]:
        """All that bear this cluster's mark, and the node's: its daemons and what they started."""
        marks = [self._mark.encode()] + [f"{NODE_MARK}={node}".encode()] * bool(node)
        for pid, _ in carrying(marks):
            start = start_ticks(pid)
            if start is not None:
                yield Process(pid, start)

    def running(self, program: str, node: str = "") -> list[Process]:
        """Its processes whose first word begins with this, or ends with it."""
        found = []
        for process in self.processes(node):
            with suppress(OSError):
                words = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")
                word = words[0].decode(errors="replace").strip()
                found += [process] * (word.startswith(program) or word.endswith(program))
        return found
