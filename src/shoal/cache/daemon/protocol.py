"""Messages between a door and the daemon: one JSON object a line, over a Unix socket.

A request is {"do": NAME, ...}; its answer is {"ok": ...} or {"error": {code, what, where, hint}}. `report` has no
answer, so that a reader never waits for it. A tenant that shares its user with others proves its name by a token.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from shoal.core import Conflict, Forbidden, Invalid, NotFound, Overloaded, ShoalError, Unavailable

DOOR = "door"
"""The folder of the socket: a sandbox that shows it finds the socket of the next daemon too."""

SOCKET = f"{DOOR}/cache.sock"
ADMIN_TOKEN = "admin.token"  # noqa: S105 a file's name
LONGEST = 1 << 20
"""Bytes of a line. A report of 10,000 objects has half of it."""

NO_ANSWER = frozenset({"report"})
ROOT_VARIABLE, TENANT_VARIABLE, TOKEN_VARIABLE = "SHOAL_CACHE", "SHOAL_CACHE_TENANT", "SHOAL_CACHE_TOKEN"
VIEW_VARIABLE = "SHOAL_CACHE_VIEW"
"""`NAME:PROOF`: under which a job's inputs are shown. The server alone gives it, to what fetches them."""

ROOT_FILE = "cache.root"
"""In the home of a server that runs a cache: the directory of it."""

_KINDS = {kind.code: kind for kind in (Invalid, NotFound, Conflict, Forbidden, Unavailable, Overloaded)}


def token_of(secret: bytes, tenant: str) -> str:
    """Proves a tenant's name; that of no tenant, `""`, proves the admin."""
    return hmac.new(secret, f"cache/{tenant}".encode(), hashlib.sha256).hexdigest()


def remote_token_of(secret: bytes, tenant: str) -> str:
    """Of a tenant whose sandbox hides the machine's files: the daemon reads none of them for it."""
    return token_of(secret, f"{tenant}/remote")


def view_of(secret: bytes, tenant: str, name: str) -> str:
    """Proves that the server lets the tenant have a view of this name: `JOB.ATTEMPT`."""
    return f"{name}:{token_of(secret, f'{tenant}/{name}')}"


def admin_token(root: Path) -> str:
    """Of the cache in this directory, for those who may read it; else the one of the environment."""
    try:
        return (root / ADMIN_TOKEN).read_text()
    except OSError:
        return os.environ.get(TOKEN_VARIABLE, "")


def error_of(given: Mapping[str, Any]) -> ShoalError:
    made = _KINDS.get(str(given.get("code")), ShoalError)(
        str(given.get("what")), where=given.get("where"), hint=given.get("hint")
    )
    made.code = str(given.get("code"))
    return made


class Connection:
    """To the daemon of `root`; one for each process and thread. Raises Unavailable where there is no daemon."""

    def __init__(self, root: Path, tenant: str = "", token: str = "", timeout_s: float = 120.0) -> None:
        self._pid = os.getpid()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout_s)
        try:
            _connect(self._socket, root / SOCKET)
        except OSError as error:
            self._socket.close()
            raise Unavailable("no cache runs there", where=str(root), hint="shoal cache serve --root DIR") from error
        self._lines = self._socket.makefile("rb")
        self.hello = self.ask("hello", tenant=tenant, token=token)

    @property
    def mine(self) -> bool:
        """Whether this process made it: after a fork the answers would mix."""
        return self._pid == os.getpid()

    def ask(self, do: str, **given: Any) -> Any:
        """Raises what the daemon says, and Unavailable where it is gone."""
        line = json.dumps({"do": do, **given}).encode() + b"\n"
        if len(line) > LONGEST:
            raise Invalid("the request is too long")
        try:
            self._socket.sendall(line)
            if do in NO_ANSWER:
                return None
            answer = self._lines.readline()
        except OSError as error:
            raise Unavailable(f"the cache does not answer: {error}") from error
        if not answer:
            raise Unavailable("the cache went away")
        found = json.loads(answer)
        if "error" in found:
            raise error_of(found["error"])
        return found["ok"]

    def close(self) -> None:
        with suppress(AttributeError):  # it was never connected
            self._lines.close()
        self._socket.close()

    def __del__(self) -> None:
        """A thread that ends takes its connection with it."""
        self.close()


def _connect(made: socket.socket, path: Path) -> None:
    """A socket's path has 107 bytes: a longer one is reached through its folder's descriptor."""
    if len(os.fsencode(path)) < 108:
        made.connect(str(path))
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        made.connect(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)
