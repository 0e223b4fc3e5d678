"""The process that shows a job what is not on the fast disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.cache.daemon.protocol import ROOT_VARIABLE, TENANT_VARIABLE, TOKEN_VARIABLE

if TYPE_CHECKING:
    from shoal.cache.store.views import View

_MOUNT_S = 30.0
"""A mount that is not there after this is done without: the job copies what is not cached."""


def start_mount(
    view: View, root: Path, url: str, options: Mapping[str, Any], uid: int, token: str, errors: int | None = None
) -> bool:
    """Show the source in `rest`, by a process of this user that ends with the view. Whether it is there. `errors` is
    where the process tells its own, as for `subprocess`."""
    try:
        view.rest.mkdir(mode=0o755)
    except FileNotFoundError:  # the view was released meanwhile
        return False
    given = {"url": url, "options": dict(options), "folder": str(view.rest), "uid": uid, "root": str(root)}
    env = {
        **{name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LANG") if name in os.environ},
        ROOT_VARIABLE: ".", TENANT_VARIABLE: view.tenant, TOKEN_VARIABLE: token,
        "SHOAL_JOB_ID": view.name.partition(".")[0],
    }  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-m", "shoal.cache.door.mount"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=env,
        stderr=errors, start_new_session=True,
    )  # fmt: skip
    if process.stdin is not None:
        with suppress(OSError), process.stdin:
            process.stdin.write(json.dumps(given).encode())
    ends = time.monotonic() + _MOUNT_S
    while process.poll() is None and time.monotonic() < ends:
        if _is_mount(view.rest):
            return True
        time.sleep(0.02)
    process.kill()
    with suppress(OSError):
        view.rest.rmdir()
    return False


def _is_mount(path: Path) -> bool:
    """As the kernel lists it: the mount itself is not asked."""
    return any(line.split()[4] == str(path) for line in Path("/proc/self/mountinfo").read_text().splitlines())
