"""Starting processes beside a rank's own: with its user, limits, namespaces, directory and environment.

Loaded by a supervisor, which is their parent as it is the rank's: they end with the rank, count for its limits, and
never have rights that the rank lacks. The engine leaves each request as a file in `beside-N` of the gang's directory,
where no tenant can write, and sends SIGUSR1. What keeps a process from being started is written to `NAME.failed` there.
"""

# ruff: noqa: PTH108, PTH116, PTH123, PTH208 - as in `supervisor`

from __future__ import annotations

import marshal
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

FAILED = ".failed"
_MOST_BYTES = 1 << 20
_TOLD_S = 60.0


def start(supervisor: Any) -> None:
    """Start what is asked for. One that cannot be started costs nobody else anything."""
    folder = f"{supervisor.spec['gang_dir']}/beside-{supervisor.spec['rank']}"
    for name in sorted(os.listdir(folder)):
        path = f"{folder}/{name}"
        if name.endswith(FAILED):
            _forget(path)
        if name.startswith(".") or name.endswith(FAILED):
            continue
        try:
            with open(path, "rb") as file:
                request = marshal.loads(file.read(_MOST_BYTES))  # noqa: S302 - written by the engine
            os.unlink(path)
            failed = os.open(f"{path}{FAILED}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except (OSError, ValueError, EOFError):  # the next request looks again
            continue
        try:
            if os.fork() == 0:
                _become(supervisor, request, failed)
        except OSError as problem:  # no more processes: the failure says so
            os.write(failed, f"fork\n{problem.strerror}".encode())
        os.close(failed)


def _forget(path: str) -> None:
    """Remove what was said of a process that was started long ago."""
    try:
        if time.time() - os.stat(path).st_mtime > _TOLD_S:
            os.unlink(path)
    except OSError:
        pass


def _become(supervisor: Any, request: dict[str, Any], failed: int) -> NoReturn:
    """In the forked child: what the rank's own process did, with another command, in the namespaces of that one."""
    spec = dict(supervisor.spec)
    at = request.get("enter_at", 0)
    spec["argv"] = [*request["argv"][:at], *spec.get("enter", ()), *request["argv"][at:]]
    spec["env"] = {**spec["env"], **request["env"]}
    if spec["sandbox"]:
        joined = [int(supervisor.facts["pid"]), int(supervisor.facts["start"])]
        kept = ("uid", "gid", "groups", "umask", "directory", "pam")
        rights = {name: value for name, value in spec["sandbox"].items() if name in kept}
        spec["sandbox"] = {**rights, "wrapper": [], "join": joined}
    supervisor.spec = spec
    try:
        null = os.open("/dev/null", os.O_WRONLY)
        command = "" if spec["sandbox"] else supervisor._resolve()
    except BaseException as problem:
        os.write(failed, f"command\n127 {problem}".encode("utf-8", "replace"))
        os._exit(126)
    supervisor._become(command, null, failed)
    raise AssertionError("it has become another process, or ended")
