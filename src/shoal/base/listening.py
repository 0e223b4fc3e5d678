"""Sockets that listen: on each address that a name stands for, all on one port."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from typing import Any

_BACKLOG = 2048


def listen(addresses: Sequence[Any]) -> list[socket.socket]:
    """Sockets that listen on those of these addresses (of `getaddrinfo`) that this machine has, all on one port. Raises
    OSError, and then none is left open."""
    missing = OSError(errno.EADDRNOTAVAIL, "there is no such address")
    found: list[socket.socket] = []
    for family, kind, protocol, _, (host, port, *more) in addresses:
        try:
            listener = socket.socket(family, kind, protocol)
        except OSError as error:
            missing = error  # no IPv6 here, say
            continue
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind((host, port or (found[0].getsockname()[1] if found else 0), *more))
            listener.listen(_BACKLOG)
            listener.setblocking(False)
        except OSError as error:
            listener.close()
            if error.errno != errno.EADDRNOTAVAIL:
                for other in found:
                    other.close()
                raise
            missing = error
            continue
        found.append(listener)
    if not found:
        raise missing
    return found
