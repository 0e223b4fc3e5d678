"""`shoal`: the command line. Each command is a thin skin over `shoal.Client`, and imports what it needs when it runs.

Exit codes: 0 done; 1 the job or operation failed; 2 wrong usage or input; 3 not found; 4 no server, or not ready;
5 not allowed; 6 contradicts the present state; 130 interrupted.
"""

from __future__ import annotations


def main() -> None:
    from shoal.cli.app import app

    app()


__all__ = ["main"]
