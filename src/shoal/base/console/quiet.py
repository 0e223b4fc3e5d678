"""Standard output kept free of what a solver's C++ prints there, past Python and past its own switch for silence.

HiGHS 1.12 says `...transformNewIntegerFeasibleSolution tmpSolver.run();` whenever it repairs a rounded solution
(https://github.com/ERGO-Code/HiGHS/issues/2783), in the middle of a command's JSON.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

OUT = 1


@contextmanager
def hushed() -> Iterator[None]:
    """What C code prints to standard output inside is dropped. Only in the main thread, where commands solve: the
    descriptor belongs to the whole process, and a server has no result on it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    flush = ctypes.CDLL(None).fflush
    flush(None)
    kept, nowhere = os.dup(OUT), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, OUT)
        yield
    finally:
        flush(None)
        os.dup2(kept, OUT)
        os.close(kept)
        os.close(nowhere)
