"""A pipeline whose commands only register: the shell takes it apart, and nothing of it is run."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from shoal.core import Invalid, Unavailable
from shoal.shell.agent.client import DRY, ask, ensure_running
from shoal.shell.sites import shell_folder
from shoal.shell.table import HOOK

_LIMIT_S = 60


def plan(home: Path, text: str) -> list[dict[str, Any]]:
    """The stages with where they would run. Raises Invalid where the shell does not understand it, and Unavailable
    where this machine has no namespace in which its redirections write nothing."""
    checked = subprocess.run(["bash", "-n", "-c", text], capture_output=True, text=True, check=False)
    if checked.returncode:
        raise Invalid(checked.stderr.strip().splitlines()[-1], where="PIPELINE", hint="as bash takes it, in quotes")
    if (sandbox := shutil.which("bwrap")) is None:
        raise Unavailable(
            "a plan needs bubblewrap, in which the pipeline can write nothing", hint="apt-get install bubblewrap"
        )
    ensure_running(home)
    for site in (ask(home, do="status") or {}).get("sites", ()):
        ask(home, do="connect", site=site["name"])
    run = f"{DRY}{os.getpid()}-{time.time_ns():x}"
    variables = {
        "LD_PRELOAD": str(HOOK),
        "SHOAL_SHELL_TABLE": str(shell_folder(home) / "table"),
        "SHOAL_SHELL_RUN": f"{run}:0:0:0",
    }
    told = [item for name, value in variables.items() for item in ("--setenv", name, value)]
    line = [sandbox, "--ro-bind", "/", "/", "--dev", "/dev", "--unshare-net", "--bind", str(shell_folder(home)),
            str(shell_folder(home)), *told, "--", "bash", "--norc", "-c", text]  # fmt: skip
    try:
        null = subprocess.DEVNULL
        subprocess.run(line, stdin=null, stdout=null, stderr=null, timeout=_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise Invalid(
            "the pipeline did not end", where="PIPELINE", hint="a loop of the shell runs even in a plan"
        ) from None
    found = (ask(home, do="planned", run=run) or {}).get("stages", [])
    return list(found)
