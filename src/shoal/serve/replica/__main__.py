"""`python -m shoal.serve.replica`: one replica process."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path

from shoal.base.processes import end_with_parent
from shoal.serve.contract import TOKEN_VARIABLE
from shoal.serve.replica.connection import StopSignal
from shoal.serve.replica.life import GAVE_UP, Patience
from shoal.serve.replica.parent import stay_between


def main() -> int:
    options = _options()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    # Taken out of the environment, so that no model and no child of one inherits it.
    token = os.environ.pop(TOKEN_VARIABLE, "")
    if options.token_fd is not None:
        with os.fdopen(options.token_fd) as file:
            token = file.read().strip()
    if options.die_with_parent is not None:
        if not end_with_parent(options.die_with_parent):
            return GAVE_UP
        stay_between(options.memory)
    from shoal.serve.replica.worker import Worker  # what models need is loaded behind the fork

    patience = Patience(give_up_s=options.give_up_after, leave_s=options.leave_within)
    worker = Worker(options.connect, options.name, token, patience=patience)
    with StopSignal() as stop:
        return worker.run(stop)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m shoal.serve.replica",
        description="Run models for a gateway, until it says stop or SIGTERM comes.",
        epilog=f"The token is read from the variable {TOKEN_VARIABLE} unless --token-fd is given. "
        "Ends with 0 when stopped, 3 when the gateway refuses it, 4 when there is no gateway.",
    )
    parser.add_argument("--connect", type=Path, required=True, metavar="SOCKET", help="the gateway's Unix socket")
    parser.add_argument("--name", required=True, help="by which the gateway knows this replica")
    parser.add_argument("--token-fd", type=int, metavar="FD", help="read the token from this file descriptor")
    parser.add_argument("--give-up-after", type=float, default=Patience().give_up_s, metavar="SECONDS",
                        help="end if no gateway can be reached for so long (default: %(default)s)")  # fmt: skip
    parser.add_argument("--leave-within", type=float, default=Patience().leave_s, metavar="SECONDS",
                        help="when told to end, wait so long for open sequences (default: %(default)s)")  # fmt: skip
    parser.add_argument("--die-with-parent", type=int, metavar="PID",
                        help="be killed when the process with this id, which must be the parent, ends; "
                             "a small process stays between the two")  # fmt: skip
    parser.add_argument("--memory", type=int, default=0, metavar="BYTES",
                        help="be killed when it takes 256 MiB more; only with --die-with-parent")  # fmt: skip
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
