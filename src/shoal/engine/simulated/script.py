"""Script of a simulated gang: written by the test, as data."""

from __future__ import annotations

import signal as signals
from collections.abc import Mapping
from dataclasses import dataclass, field

from shoal.core import Fault
from shoal.engine.protocol import Exit

CHECKPOINTED = 75
"""Exit code of a rank that was asked to stop, wrote its checkpoint and left (EX_TEMPFAIL of sysexits.h)."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line that a rank writes `at_s` after its start to `stream` (`log`, `metrics` or `file:RELATIVE/PATH`)."""

    at_s: float
    text: str
    stream: str = "log"


@dataclass(frozen=True, slots=True)
class Script:
    """How a gang runs when nothing disturbs it, and how it takes being stopped.

    The ranks get ready `launch_s` after the launch (`launch_error`: they fail to, through `launch_fault`), run for
    `run_s` (`math.inf`: until stopped) and end with `code`, or by `signal`, or by the memory limit (`oom`), and say
    that they had `memory_bytes` at most.

    A rank with `checkpoint_s` uses the training hooks: asked to stop, or given any notice, it leaves with
    `checkpoint_code` that much later; if it takes too long, SIGTERM comes when most of the grace is over. A rank
    without gets SIGTERM at once. It dies of it after `term_s`; None means that it ignores SIGTERM. Whatever is left
    when the grace is over gets SIGKILL.

    `by_rank` gives single ranks a script of their own (its launch fields are not read). `lines` are in order of time.
    """

    run_s: float = 1.0
    code: int = 0
    signal: int | None = None
    oom: bool = False
    memory_bytes: int = 0
    launch_s: float = 0.0
    launch_error: str | None = None
    launch_fault: Fault = Fault.USER
    checkpoint_s: float | None = None
    checkpoint_code: int = CHECKPOINTED
    term_s: float | None = 0.0
    lines: tuple[Line, ...] = ()
    by_rank: Mapping[int, Script] = field(default_factory=dict)

    @property
    def exit(self) -> Exit:
        """How a rank ends that nothing disturbs."""
        if self.oom:
            return Exit(signal=signals.SIGKILL, oom=True, memory_bytes=self.memory_bytes)
        code = self.code if self.signal is None else None
        return Exit(code, self.signal, memory_bytes=self.memory_bytes)

    @property
    def answers(self) -> bool:
        """Whether an end after a stop may be the answer to it: the rank finds a notice, or handles SIGTERM."""
        return self.checkpoint_s is not None or self.term_s is not None

    def of(self, rank: int) -> Script:
        return self.by_rank.get(rank, self)
