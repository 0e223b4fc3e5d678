"""`within.py COMMAND...`: start an agent of a job's own, then become the job's command, with the hook in it.

It runs with the job's rights, in its sandbox. What the server gives it is in one secret variable, which the command
does not get. Whatever is wrong, the command runs as it would without sites.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
import tempfile
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

GIVEN = "SHOAL_SHELL_GIVEN"
"""The secret variable: the run's name, and for each site its fields, its certificate's text and its token."""
_SHELL = 'if [ -x "$1" ] && [ -r "$3" ]; then exec "$@"; fi; shift 3; exec "$@"'
"""An image may have neither this interpreter nor this file: then the command runs at once."""


def words() -> tuple[str, ...]:
    """Those before a job's command. Pure."""
    return ("/bin/sh", "-c", _SHELL, "sh", str(Path(sys.executable).absolute()), "-I", str(Path(__file__).resolve()))


def given(run: str, sites: Sequence[Mapping[str, Any]]) -> str:
    """The value of `GIVEN`. A site has `name`, `host`, `mounts`, and `port`, `certificate` and `token`, or `door`."""
    return json.dumps({"run": run, "sites": sites})


def main(command: list[str]) -> None:
    told = os.environ.pop(GIVEN, "")
    try:
        if told:
            os.environ.update(_begin(json.loads(told), os.environ))
    except Exception as error:  # whatever it is, the command runs as without sites
        print(f"shoal: the job runs without its sites: {error}", file=sys.stderr, flush=True)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # this interpreter ignores them
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)  # noqa: S606 - the job's own command, with its own rights
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr, flush=True)
        sys.exit(127 if isinstance(error, FileNotFoundError) else 126)


def _begin(told: Mapping[str, Any], environ: MutableMapping[str, str]) -> dict[str, str]:
    """Start the agent; the variables of a command that asks it. Raises ShoalError, OSError."""
    from shoal.base.files import write_whole
    from shoal.shell.agent.client import ensure_running
    from shoal.shell.sites import Site, Sites, shell_folder
    from shoal.shell.table import HOOK

    home = Path(tempfile.gettempdir()) / f"shoal-shell-{environ.get('RANK', '0')}"
    folder = shell_folder(home)
    home.mkdir(mode=0o700, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    sites = Sites.of(home)
    for one in told["sites"]:
        files = {}
        for kind in ("certificate", "token") if "port" in one else ():
            files[kind] = folder / f"{one['name']}.{kind}"
            write_whole(files[kind], one[kind], mode=0o600)
        certificate, token = (str(files[kind]) if files else None for kind in ("certificate", "token"))
        sites = sites.add(
            Site(one["name"], one["host"], one["mounts"], port=one.get("port"), certificate=certificate,
                 token_file=token, door=one.get("door"))
        )  # fmt: skip
    ensure_running(home)
    others = environ.get("LD_PRELOAD")
    pipes = ":".join(str(_pipe(fd)) for fd in range(3))
    return {
        "LD_PRELOAD": f"{HOOK}:{others}" if others else str(HOOK),
        "SHOAL_SHELL_TABLE": str(folder / "table"), "SHOAL_SHELL_RUN": f"{told['run']}:{pipes}",
    }  # fmt: skip


def _pipe(fd: int) -> int:
    """The inode of the pipe that the job was started with; 0 for what is none."""
    try:
        found = os.fstat(fd)
    except OSError:
        return 0
    return found.st_ino if stat.S_ISFIFO(found.st_mode) else 0


if __name__ == "__main__":
    main(sys.argv[1:])
