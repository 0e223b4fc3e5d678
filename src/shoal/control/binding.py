"""The sockets on which a server answers: at a port, and at a path for users of this machine."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from shoal.base.home import Home, read_server
from shoal.base.listening import LONGEST_PATH, listen, listen_locally
from shoal.control.server_settings import LOOPBACK
from shoal.control.settings import Settings
from shoal.core import Conflict, Invalid

_FREE_PORTS = 8
"""How many ports are tried where any will do: one that the system chose for IPv4 may be taken for IPv6."""
_PORT_WAIT_S = 10.0


def bind(host: str, port: int, *, preferred: int | None = None) -> list[socket.socket]:
    """Listening sockets on one port. `preferred` is tried first when any port will do.

    A loopback address means both, of IPv4 and of IPv6: else another user of the machine could take the other one, and
    answer those who say `localhost`.
    """
    if port == 0 and preferred:
        with contextlib.suppress(Conflict):
            return bind(host, preferred)
    try:
        named = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise Invalid(f"{host!r} is no address of this machine", where="--host", hint="try 127.0.0.1") from error
    also = [one for one in _loopback(port) if one not in named] if host in LOOPBACK else []
    for left in reversed(range(_FREE_PORTS if port == 0 else 1)):
        try:
            found = listen([*named, *also])
        except OSError as error:
            if error.errno == errno.EADDRINUSE and left:
                continue
            if error.errno == errno.EADDRINUSE:
                raise Conflict(
                    f"port {port} on {host} is taken", where="--port", hint="give another, or --port 0 for any free one"
                ) from error
            raise Invalid(f"cannot listen on {host}:{port}: {error.strerror}", where="--host") from error
        if found[0].family in {family for family, *_ in named}:
            return found
        for one in found:
            one.close()
        break
    raise Invalid(f"this machine has no address {host}", where="--host", hint="try 127.0.0.1")


def bind_locally(settings: Settings) -> list[socket.socket]:
    """The socket for users of this machine. In the home it is one for all where the server is root, who may let them
    in, else for the server's user; where its path is a setting, for all. None where the home's path is too long.

    Raises Conflict where another server listens there, and Invalid for a path that cannot be or that others could
    take over."""
    named = settings.values.socket
    path = Path(named).expanduser().absolute() if named else settings.home.socket_file
    if not named and len(os.fsencode(path)) > LONGEST_PATH:
        return []
    try:
        return [listen_locally(path, 0o666 if named or os.geteuid() == 0 else 0o600)]
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise Conflict(
                f"the socket {path} is taken: another server listens there, or it is a file", where="--socket",
                hint="stop that server, or give another path",
            ) from error  # fmt: skip
        hint = "its folder must be there, and only its owner and root may write in it"
        raise Invalid(f"cannot listen on {path}: {error.strerror or error}", where="--socket", hint=hint) from error


def _loopback(port: int) -> list[Any]:
    stream = (socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
    return [(socket.AF_INET, *stream, ("127.0.0.1", port)), (socket.AF_INET6, *stream, ("::1", port, 0, 0))]


def last_port(home: Home) -> int | None:
    """A server on any port comes back where it was, so that clients find it again."""
    info = read_server(home)
    port = info.url.rpartition(":")[2] if info else ""
    return int(port) if port.isdecimal() else None


def url_of(listener: socket.socket, host: str) -> str:
    port = listener.getsockname()[1]
    name = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
    return f"http://{name}:{port}"


def bind_again(settings: Settings, home: Home) -> list[socket.socket]:
    return bind(settings.values.host, settings.values.port or last_port(home) or 0)


def bind_after(bound: Callable[[], list[socket.socket]]) -> list[socket.socket]:
    """The sockets of a server that has just lost control, as soon as it lets go of them."""
    until = time.monotonic() + _PORT_WAIT_S
    while True:
        try:
            return bound()
        except Conflict:
            if time.monotonic() >= until:
                raise
            time.sleep(0.02)


def bind_patiently(host: str, port: int) -> list[socket.socket]:
    """As `bind`, for what a server that has just lost control may still hold."""
    return bind_after(lambda: bind(host, port))


@contextlib.contextmanager
def closing(listeners: Sequence[socket.socket]) -> Iterator[Sequence[socket.socket]]:
    """Nobody is to find a local one that nobody listens on: but it may be that of a server which came after this."""
    paths = [Path(one.getsockname()) for one in listeners if one.family == socket.AF_UNIX]
    ours = [(path, path.stat().st_ino) for path in paths]
    try:
        yield listeners
    finally:
        for listener in listeners:
            listener.close()
        for path, inode in ours:
            with contextlib.suppress(OSError):
                if path.lstat().st_ino == inode:
                    path.unlink()
