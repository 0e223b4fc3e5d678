"""Writes down what really ran: which process trained which step of which job, and when.

The demo's checker reads these lines instead of asking the server, so the server cannot vouch for itself. Each fact is
one line, appended in a single write, stamped with the machine-wide monotonic clock.

A script of one's own needs none of this. `python witness.py SCRIPT` runs one that knows of neither Shoal nor the
witness, and notes when it began and finished.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import sys
import time
from collections.abc import Iterator


def _note(fact: str, **more: int) -> None:
    """Outside the demo, where no ledger is named, this does nothing."""
    path = os.environ.get("DEMO_WITNESS")
    if not path:
        return
    line = {
        "fact": fact,
        "job": os.environ["DEMO_JOB"],
        "attempt": int(os.environ["SHOAL_ATTEMPT"]),
        "rank": int(os.environ["RANK"]),
        "pid": os.getpid(),
        "at": time.monotonic(),
        **more,
    }
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, json.dumps(line).encode() + b"\n")
    finally:
        os.close(descriptor)


def started() -> None:
    """This process began."""
    _note("started")


def trained(step: int) -> None:
    """This process computed a step."""
    _note("trained", step=step)


@contextlib.contextmanager
def saving(step: int) -> Iterator[None]:
    """Around a checkpoint of all steps up to this one; notes it once complete, also when the script then has to go."""
    try:
        yield
    except SystemExit:
        _note("saved", step=step)
        _note("left", step=step)
        raise
    _note("saved", step=step)


def finished() -> None:
    """This process did all it had to."""
    _note("finished")


if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    started()
    runpy.run_path(sys.argv[0], run_name="__main__")
    finished()
