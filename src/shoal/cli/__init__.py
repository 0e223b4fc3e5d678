"""`shoal`: the command line. Each command is a thin skin over `shoal.Client`, and imports what it needs when it runs.

Exit codes: 0 done; 1 the job or operation failed; 2 wrong usage or input; 3 not found; 4 no server, or not ready;
5 not allowed; 6 contradicts the present state; 130 interrupted.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

_COLLECT_AFTER = 100_000
"""New objects before garbage is looked for: Python's default, 700, costs a short command a tenth of its time, for what
is imported stays."""


def main() -> None:
    gc.set_threshold(_COLLECT_AFTER)
    _prepare_output()
    from shoal.cli.app import app

    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error.filename is not None:
            raise
        from shoal.base.console.command import lost_output

        sys.exit(lost_output(error))


def _prepare_output() -> None:
    """What a terminal's encoding lacks is a question mark there; output that was closed (`>&-`) goes nowhere."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 it lives as long as the process
        else:
            stream.reconfigure(errors="replace")


__all__ = ["main"]
