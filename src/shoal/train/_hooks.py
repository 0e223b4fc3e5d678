"""The hooks of one process. Shoal and the script meet in the environment and in a few files:

SHOAL_RUN/notice        appears when the script is asked to checkpoint and leave
SHOAL_RUN/cooperative   made here by a script that looks for the notice; without it a stop begins with SIGTERM
SHOAL_METRICS_FILE      JSON lines, appended here
SHOAL_RING              how long each step took is told here (`shoal.ring`), for the guard of the host
SHOAL_ARTIFACTS         a folder in which the server is asked to keep files (`_artifacts`)
SHOAL_CHECKPOINT_DIR    survives the attempt; `latest.json` in it names the last complete checkpoint
"""

from __future__ import annotations

import atexit
import json
import math
import operator
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.train._files import LineFile, replace, size, sync

if TYPE_CHECKING:
    from shoal.train._steps import Steps

EXIT_RESUMABLE = 75
"""The exit code of a process that left after a checkpoint because it was asked to (EX_TEMPFAIL of sysexits.h)."""

WRITE_EVERY_S = 0.1
LOOK_EVERY_S = 0.05
_LATEST = "latest.json"


class Hooks:
    """See the package's functions, which are the methods of one instance that lives as long as the process."""

    def __init__(
        self,
        environ: Mapping[str, str] = os.environ,
        *,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._environ = environ
        self._now = now
        self._monotonic = monotonic
        self._rank = int(environ.get("RANK", "0"))
        self._world_size = int(environ.get("WORLD_SIZE", "1"))
        self._attempt = int(environ.get("SHOAL_ATTEMPT", "1"))
        self._run = Path(environ["SHOAL_RUN"]) if environ.get("SHOAL_RUN") else None
        self._checkpoints = Path(environ.get("SHOAL_CHECKPOINT_DIR") or _local_checkpoints())
        metrics = environ.get("SHOAL_METRICS_FILE")
        self._lines = LineFile(Path(metrics)) if metrics else None
        self._steps = _steps(environ)
        self._lock = threading.RLock()  # a signal handler may report as well
        self._step: int | None = None
        self._first: tuple[float, int] | None = None
        self._pending: dict[tuple[str, ...], tuple[float, dict[str, Any]]] = {}
        self._write_at = float("-inf")
        self._at_exit = False
        self._asked = False
        self._look_at = float("-inf")
        self._kept_at = monotonic()
        self._due_at: float | None = None

    def is_managed(self) -> bool:
        """True when Shoal runs this process."""
        return self._run is not None

    def rank(self) -> int:
        """This process's number in its gang, from 0."""
        return self._rank

    def world_size(self) -> int:
        """How many processes the gang has."""
        return self._world_size

    def attempt(self) -> int:
        """Which try of the job this is, from 1."""
        return self._attempt

    def report(self, step: int, total: int | None = None, **metrics: float) -> None:
        """Tell how far the training is, and how well it does.

        Cheap enough for every step: at most every 0.1 s a line is written, with the newest values of each set of
        names; the last one is never dropped. Values may be anything that `float` takes; raises TypeError for others.
        """
        values = {name: _number(name, value) for name, value in metrics.items()}
        step = operator.index(step)
        with self._lock:
            self._step = step
            if self._lines is None and self._steps is None:
                return
            elapsed = self._monotonic()
            if self._steps is not None:
                self._steps.reached(step, elapsed)
            if self._lines is None:
                return
            if self._first is None or step < self._first[1]:
                self._first = (elapsed, step)
            line = {"at": 0.0, "step": step, "total": total, "metrics": values}
            self._pending[tuple(values)] = (elapsed, line)
            if elapsed >= self._write_at:
                self._flush()
            elif not self._at_exit:
                self._at_exit = True
                atexit.register(self._flush)

    def should_checkpoint(self, every_s: float | None = None) -> bool:
        """True once the script was asked to checkpoint and leave, and when the last checkpoint is `every_s` old.

        Costs about 0.1 us. In a gang every rank calls it, and all follow the answer of rank 0: see
        `docs/how-to/training-hooks.md`.
        """
        elapsed = self._monotonic()
        if elapsed >= self._look_at:
            self._look(elapsed)
        due = self._asked or (every_s is not None and elapsed - self._kept_at >= every_s)
        if due:
            self._due_at = elapsed
        return due

    def stop_requested(self) -> bool:
        """True once the script was asked to checkpoint and leave."""
        elapsed = self._monotonic()
        self._look(elapsed)
        if self._asked:
            self._due_at = elapsed
        return self._asked

    def checkpoint_dir(self) -> Path:
        """The directory for checkpoints; it exists, and its content is there again in the next attempt."""
        self._checkpoints.mkdir(parents=True, exist_ok=True)
        return self._checkpoints

    def checkpoint(self, path: str | os.PathLike[str], *, step: int | None = None, leave: bool | None = None) -> None:
        """Say that a complete checkpoint is at `path` (a file or a directory); the next attempt may resume from it.

        It is on disk when this returns. How long it took is counted from the last `should_checkpoint` or
        `stop_requested` that said so. Then, if the script was asked to stop, the process ends with exit code 75;
        `leave` decides that instead where it is given, as a gang must, whose ranks have to leave together. Of a
        gang, rank 0 alone records the checkpoint, so it calls this when the other ranks have written their parts.
        `step` defaults to the last one reported. Raises OSError when the checkpoint is missing or the disk is full.
        """
        path = Path(path).absolute()
        if self._rank == 0:
            sync(path)
            self._record(path, self._step if step is None else operator.index(step))
        elif path.exists():
            sync(path)
        if self._steps is not None:
            self._steps.interrupted()
        self._kept_at, self._due_at = self._monotonic(), None
        if self.stop_requested() if leave is None else leave:
            self._flush()
            raise SystemExit(EXIT_RESUMABLE)

    def resume_path(self) -> Path | None:
        """The last complete checkpoint of this job, or None when there is none to resume from."""
        try:
            latest = json.loads((self._checkpoints / _LATEST).read_bytes())
            path = self._checkpoints / latest["path"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return path if path.exists() else None

    def artifact(
        self, path: str | os.PathLike[str], name: str | None = None, *, timeout_s: float = 3600.0
    ) -> dict[str, str]:
        """Keep a file, or all files of a directory, as artifacts of the job, called `name` (default: the name of the
        file). They are with the server, on its disk, when this returns: names and digests of what is kept.

        The file must be complete. Outside Shoal nothing is kept. Raises `NotKept`, with the cause, where the server
        refuses: the tenant has no room left, say, or the file changes meanwhile. Raises OSError where the file is
        missing, and TimeoutError where the server does not answer; one that restarts is waited for.
        """
        from shoal.train._artifacts import keep

        return keep(Path(path).absolute(), name, timeout_s, self._environ)

    def _record(self, path: Path, step: int | None) -> None:
        directory = self.checkpoint_dir().absolute()
        kept = path.relative_to(directory) if path.is_relative_to(directory) else path
        at = self._now()
        took = None if self._due_at is None else round(self._monotonic() - self._due_at, 6)
        sync(path.parent, deep=False)
        replace(directory / _LATEST, json.dumps({"path": str(kept), "step": step, "at": at}) + "\n")
        if self._lines is not None:
            with self._lock:
                self._flush()
                told = {"at": at, "checkpoint": str(path), "step": step, "seconds": took, "bytes": size(path)}
                self._lines.append(json.dumps(told) + "\n")

    def _look(self, elapsed: float) -> None:
        if self._run is None:
            self._look_at = float("inf")
            return
        if self._look_at == float("-inf"):
            try:
                (self._run / "cooperative").touch()
            except OSError as error:
                print(f"shoal.train: a stop will begin with SIGTERM: {error}", file=sys.stderr)
        self._look_at = elapsed + LOOK_EVERY_S
        self._asked = self._asked or (self._run / "notice").exists()

    def _flush(self) -> None:
        with self._lock:
            if self._lines is None or not self._pending:
                return
            offset = self._now() - self._monotonic()
            lines = []
            for elapsed, line in sorted(self._pending.values(), key=lambda item: item[0]):
                rate = self._rate(elapsed, line["step"])
                left = max(0, line["total"] - line["step"]) if line["total"] is not None else None
                line["at"] = round(elapsed + offset, 3)
                line["rate_per_s"] = rate
                line["eta_s"] = left / rate if rate and left is not None else None
                lines.append(json.dumps(line) + "\n")
            self._pending.clear()
            self._write_at = self._monotonic() + WRITE_EVERY_S
            self._lines.append("".join(lines))

    def _rate(self, elapsed: float, step: int) -> float | None:
        """Steps per second since this process's first report."""
        if self._first is None or elapsed <= self._first[0] or step <= self._first[1]:
            return None
        return (step - self._first[1]) / (elapsed - self._first[0])


def _steps(environ: Mapping[str, str]) -> Steps | None:
    if not environ.get("SHOAL_RING"):
        return None
    from shoal.train._steps import Steps

    return Steps(environ)


def _number(name: str, value: Any) -> float | None:
    """A finite number, or None for one that JSON cannot hold."""
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"report({name}=...): {type(value).__name__} is not a number") from error
    return number if math.isfinite(number) else None


def _local_checkpoints() -> Path:
    """Outside Shoal, a place of each script's own below the working directory."""
    script = Path(sys.argv[0] if sys.argv and sys.argv[0] else "session").absolute()
    return Path(".shoal-checkpoints") / f"{script.parent.name}-{script.stem}"
