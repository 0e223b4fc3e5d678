"""Probe of the levels of isolation that this machine can give, tried for real."""

from __future__ import annotations

import marshal
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from shoal.core import Capability, Sandbox
from shoal.engine.sandbox import enter
from shoal.engine.sandbox.plan import Rights, plan, wrapper
from shoal.engine.sandbox.users import FIRST_UID, UIDS

_COST = "tenants with this level are refused; without one, jobs can read and end whatever the server can"
_WAIT_S = 20.0
_SOMEONE = Rights.of_tenant(FIRST_UID + UIDS)


def capabilities(home: Path) -> tuple[Capability, ...]:
    """One for each level but `none`. Blocks for some 30 ms; changes nothing."""
    user = _user(home)
    return (user, _bubblewrap(home, user))


def _user(home: Path) -> Capability:
    name = Sandbox.USER.capability
    if os.geteuid() != 0:
        return Capability(name, False, f"the server runs as uid {os.geteuid()}; run it as root", _COST)
    with tempfile.TemporaryDirectory(prefix="shoal-sandbox-") as folder:
        wanted = plan(Sandbox.USER, _SOMEONE, home if home.is_dir() else Path(folder), ())
        tried = subprocess.run(
            [sys.executable, "-I", "-S", enter.__file__, sys.executable],
            input=marshal.dumps(wanted), capture_output=True, timeout=_WAIT_S, check=False,
        )  # fmt: skip
    why = tried.stderr.decode(errors="replace").strip().rpartition("\n")[2]
    if tried.returncode == 2:
        return Capability(name, False, f"{why}: install Shoal outside of private directories", _COST)
    if tried.returncode != 0:
        return Capability(name, False, f"{why}; the server needs CAP_SYS_ADMIN, CAP_SETUID and CAP_CHOWN", _COST)
    return Capability(name, True, f"a user id of each new tenant's own, from {FIRST_UID} on; none by --sandbox none")


def _bubblewrap(home: Path, user: Capability) -> Capability:
    name = Sandbox.BUBBLEWRAP.capability
    if not user.available:
        return Capability(name, False, user.detail, _COST)
    if shutil.which("bwrap") is None or shutil.which("setpriv") is None:
        return Capability(name, False, "bwrap is not installed: `apt install bubblewrap`", _COST)
    with tempfile.TemporaryFile() as given:
        marshal.dump(([sys.executable, "-I", "-S", "-c", ""], {}, "/"), given)
        given.seek(0)
        tried = subprocess.run(
            [*wrapper(_SOMEONE, home, ()), str(given.fileno())], env=enter.ENVIRONMENT, cwd="/",
            pass_fds=[given.fileno()], capture_output=True, timeout=_WAIT_S, check=False,
        )  # fmt: skip
    if tried.returncode != 0:
        why = tried.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        return Capability(name, False, f"bwrap does not work here: {why}", _COST)
    return Capability(name, True, "processes, mounts and shared memory of the job's own")
