"""Admission of connections, and the choice of an idle one that is closed for another. Does no I/O."""

from __future__ import annotations

import ipaddress
import socket
import struct
from typing import Generic, Protocol, TypeVar

from shoal.base.http.limits import Room

_NETWORK_BITS = 64
"""The part of an IPv6 address that names one customer: a customer has all addresses below it."""


class Client(Protocol):
    """`idle`: nothing is being worked on for it, so that closing it loses no answer. `since` is when that began."""

    @property
    def idle(self) -> bool: ...
    @property
    def since(self) -> float: ...


C = TypeVar("C", bound=Client)


class Peers(Generic[C]):
    """All connections by the address that they came from.

    At a limit a newcomer is let in if an idle connection can be closed for it: at the limit of an address one of its
    own, else one of the address that has most. So a flood of idle connections harms only its sender, and the newest
    connection, such as a health check's, is the last to be closed.
    """

    def __init__(self, room: Room) -> None:
        self._room = room
        self._of: dict[str, dict[C, float]] = {}
        """Each address's connections; with each, since when it was idle when it was last passed over."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def full_for(self, address: str, descriptor: int) -> bool:
        """Whether a newcomer needs another's place."""
        own = len(self._of.get(address, ()))
        return (
            own >= self._room.per_address
            or self._count >= self._room.connections
            or descriptor >= self._room.first_reserved
        )

    def victim(self, address: str) -> C | None:
        """The idle connection to close for a newcomer from this address; None if there is none."""
        own = self._of.get(address, {})
        if len(own) >= self._room.per_address:
            return _longest_idle(own)
        for clients in sorted(self._of.values(), key=len, reverse=True):
            found = _longest_idle(clients)
            if found is not None:
                return found
        return None

    def add(self, address: str, client: C) -> None:
        self._of.setdefault(address, {})[client] = client.since
        self._count += 1

    def discard(self, address: str, client: C) -> None:
        clients = self._of.get(address, {})
        if clients.pop(client, None) is not None:
            self._count -= 1
            if not clients:
                del self._of[address]


def _longest_idle(clients: dict[C, float]) -> C | None:
    """The second-chance rule: in order of arrival, but one that was used since it was last passed over goes to the
    end. Over many calls each client is looked at about once, where sorting would look at all each time."""
    spare = None
    for _ in range(len(clients)):
        client, seen = next(iter(clients.items()))
        if client.idle and client.since <= seen:
            return client
        if client.idle and spare is None:
            spare = client
        del clients[client]
        clients[client] = client.since
    return spare


def local_user(client: socket.socket) -> int | None:
    """The user id of the process that connected to a local socket, as the kernel says; None for other sockets. One of
    another user namespace, whom this one has no number for, has the kernel's overflow id."""
    if client.family != socket.AF_UNIX:
        return None
    _, uid, _ = struct.unpack("iII", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(uid)


def network_of(address: object) -> str:
    """What counts as one address: an IPv4 address, an IPv6 network of 64 bits, "" for local sockets."""
    if not isinstance(address, tuple):
        return ""
    try:
        found = ipaddress.ip_address(str(address[0]).partition("%")[0])
    except ValueError:
        return str(address[0])
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((found, _NETWORK_BITS), strict=False))
    return str(found)
