"""A small process between a replica and the gateway that started it.

A model may signal its parent: that must not be the gateway, which serves all models. And a replica's memory is measured
from outside, because its only thread is the model's.
"""

from __future__ import annotations

import logging
import os
import select
import signal
from types import FrameType

from shoal.base.processes import end_as, end_with_parent
from shoal.inference.memory import resident

log = logging.getLogger("shoal.serve.replica")

_LOOK_MS = 250
"""How often memory is looked at. What a model can fill in this time is not bounded by us."""
RUNTIME_BYTES = 256 << 20
"""Beside the models: the interpreter, the libraries, and what loading a model takes for a moment."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def stay_between(memory_bytes: int) -> None:
    """Return in a child process. The parent never returns: it hands signals on to the child, kills it when it takes
    more than `memory_bytes` (0: any) beside what its runtime may take, and ends as it does. The kernel kills the child
    when the parent ends."""
    parent = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # one that comes now is for the child
    child = os.fork()
    if child:
        end_as(_watch(child, memory_bytes))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    if not end_with_parent(parent):
        os._exit(1)


def _watch(child: int, memory_bytes: int) -> int:
    def hand_on(signum: int, _frame: FrameType | None) -> None:
        os.kill(child, signum)

    for signum in _SIGNALS:
        signal.signal(signum, hand_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    ended = select.poll()
    ended.register(os.pidfd_open(child), select.POLLIN)
    while not ended.poll(_LOOK_MS if memory_bytes else None):
        used = resident(child)
        if used > memory_bytes + RUNTIME_BYTES:
            os.kill(child, signal.SIGKILL)
            log.error(
                "it took %d MiB, more than its memory of %d MiB and %d MiB for the runtime",
                used >> 20, memory_bytes >> 20, RUNTIME_BYTES >> 20,
            )  # fmt: skip
            break
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
