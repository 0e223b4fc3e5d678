"""JupyterLab as a job: its manifest, and where it answers once it does."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.contract.manifest.quantities import read_duration
from shoal.core import Invalid, NotFound, ShoalError
from shoal.session.client.connection import Connection, upgrade
from shoal.session.client.relay import Detached, Over, Relay, Streams

_START = (
    'umask 077; cd "$1" || exit 126; shift; export JUPYTER_RUNTIME_DIR="$SHOAL_RUN/jupyter"; '
    "JUPYTER_TOKEN=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \\n'); export JUPYTER_TOKEN; "
    '[ "$(id -u)" = 0 ] && set -- "$@" --allow-root; exec "$@"'
)
"""The token is made in the job, and JupyterLab writes one that it was given to no log."""
_TELL = 'cat "$SHOAL_RUN"/jupyter/jpserver-*.json'
_MOST = 64 << 10


@dataclass(frozen=True, slots=True)
class Found:
    """Where JupyterLab listens in its job, and the token that opens it."""

    port: int
    token: str


def manifest(
    program: str, folder: Path, path: str, *, idle: str, priority_class: str, resources: dict[str, Any]
) -> dict[str, Any]:
    """Raises Invalid for an idle time that is none."""
    try:
        idle_s = round(read_duration(idle))
    except ValueError as error:
        raise Invalid(str(error), where="--idle", hint="such as 4h") from None
    words = [
        program, "lab", "--no-browser", "--ServerApp.ip=127.0.0.1", "--ServerApp.port=0",
        f"--ServerApp.shutdown_no_activity_timeout={idle_s}", f"--MappingKernelManager.cull_idle_timeout={idle_s}",
        "--MappingKernelManager.cull_connected=True",
    ]  # fmt: skip
    return {
        "name": "notebook", "command": ["/bin/sh", "-c", _START, "sh", str(folder), *words], "env": {"PATH": path},
        "priority_class": priority_class, "resources": resources, "labels": {"kind": "notebook"},
    }  # fmt: skip


def look(client: Any, job_id: str) -> Found | None:
    """What JupyterLab wrote down of itself; None where it has not yet."""
    try:
        session = client.session.execute(job_id, ["/bin/sh", "-c", _TELL])
    except NotFound:
        return None
    path = f"/v1/jobs/{job_id}/sessions/{session.id}/attach"
    code, said = output_of(lambda: upgrade(client.locate(), path, "shoal-session", {"wait_s": 20}))
    if code:
        return None
    return read(said)


def read(said: bytes) -> Found | None:
    """Of JupyterLab's own file. The job wrote it: whatever it is not, is not taken."""
    try:
        told = json.loads(said)
        port, token = int(told["port"]), str(told["token"])
    except (ValueError, KeyError, TypeError):
        return None
    if not 0 < port < 65536 or not token.isalnum() or len(token) > 200:
        return None
    return Found(port, token)


def output_of(connect: Callable[[], Connection]) -> tuple[int, bytes]:
    """Exit code and output, up to a limit, of a session that reads nothing."""
    nothing = os.open(os.devnull, os.O_RDWR)
    reader, writer = os.pipe()
    parts: list[bytes] = []

    def drain() -> None:
        while part := os.read(reader, _MOST):
            if sum(map(len, parts)) < _MOST:
                parts.append(part)

    thread = threading.Thread(target=drain)
    thread.start()
    try:
        code = Relay(connect, Streams(nothing, writer, nothing, terminal=False), lambda _: None).run()
    except (Detached, Over, ShoalError):
        code = 1
    finally:
        os.close(writer)
        thread.join()
        os.close(reader)
        os.close(nothing)
    return code, b"".join(parts)
