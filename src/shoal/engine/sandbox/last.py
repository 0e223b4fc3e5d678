"""The last step into a wrapped sandbox: with the rank's own rights, take its directory and environment and become it.

`last.py FD`, run by an isolated interpreter. The descriptor holds what the supervisor marshalled: command line,
environment and directory. A command that cannot be run ends with 127 or 126, as by a shell.
"""

# ruff: noqa: S606
from __future__ import annotations

import marshal
import os
import signal
import sys


def main() -> int:
    with os.fdopen(int(sys.argv[1]), "rb") as file:
        argv, env, run_dir = marshal.load(file)  # noqa: S302 - written by the supervisor
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by this interpreter; exec would keep that
        signal.signal(ignored, signal.SIG_DFL)
    command = argv[0]
    try:
        os.chdir(run_dir)
    except OSError as problem:
        print(f"the directory {run_dir} cannot be entered: {problem.strerror}", file=sys.stderr)
        return 126
    try:
        os.execvpe(command, argv, env)
    except FileNotFoundError:
        where = "in the run directory" if "/" in command else "on PATH"
        print(f"command {command!r} was not found {where}", file=sys.stderr)
        return 127
    except OSError as problem:
        print(f"command {command!r} cannot be executed: {problem.strerror}", file=sys.stderr)
        return 126


if __name__ == "__main__":
    sys.exit(main())
