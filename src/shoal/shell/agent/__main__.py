"""`python -m shoal.shell.agent --home HOME`: see that an agent runs; with `--serve`, be it."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from pathlib import Path

from shoal.base.locks import lock_file
from shoal.core import ShoalError
from shoal.shell.sites import shell_folder

LOCK_S = 5.0
"""For an agent that is just ending."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="shoal.shell.agent")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--serve", action="store_true")
    told = parser.parse_args()
    try:
        if told.serve:
            _serve(told.home)
        else:
            from shoal.shell.agent.client import ensure_running

            ensure_running(told.home)
    except ShoalError as error:
        sys.exit(f"shoal: {error}")


def _serve(home: Path) -> None:
    if lock_file(shell_folder(home) / "agent.lock", wait_s=LOCK_S) is None:
        return  # another was quicker
    import logging

    import structlog

    from shoal.shell.agent.server import Agent
    from shoal.shell.plan import warm_up

    warm_up()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))

    async def run() -> None:
        agent = Agent(home)
        task = asyncio.ensure_future(agent.serve())
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        await asyncio.gather(task, return_exceptions=True)
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error

    asyncio.run(run())


if __name__ == "__main__":
    main()
