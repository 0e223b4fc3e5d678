"""The server's address and token: arguments, then SHOAL_URL and SHOAL_TOKEN, then the home directory,
then the socket that all users of this machine share. Through a socket no token is needed: the server sees who calls."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from shoal.base.home import SYSTEM_SOCKET, Home, default_home, read_server
from shoal.core import ShoalError


class NoServer(ShoalError):
    """No server answers, or no address of a server is known."""

    code = "no-server"


@dataclass(frozen=True, slots=True)
class Target:
    """`alive` False: the home's server is known to be gone just now. Where there is a `socket`, requests go there, and
    `url` only names the server."""

    url: str
    token: str | None
    alive: bool = True
    socket: Path | None = None


Locate = Callable[[], Target]

_SOCKET = "unix:"
_HERE = "http://localhost"


def locator(
    url: str | None = None,
    token: str | None = None,
    home: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
    shared: Path = SYSTEM_SOCKET,
) -> Locate:
    """How to find the server now; asked again when it does not answer, for it may have come back elsewhere."""
    given = os.environ if environ is None else environ
    place = Home(Path(home).expanduser().absolute() if home is not None else default_home(given))

    def locate() -> Target:
        # A home that was named beats an address from the environment, and the token that came with that address.
        address = url or (given.get("SHOAL_URL") if home is None else None)
        secret = token or (given.get("SHOAL_TOKEN") if address or not given.get("SHOAL_URL") else None)
        if address and address.startswith(_SOCKET):
            return Target(_HERE, secret, socket=_path(address))
        if address:
            return Target(address.rstrip("/"), secret or _read_token(place))
        info = read_server(place)
        if info is None and home is None and not given.get("SHOAL_HOME") and _trusted(shared):
            return Target(_HERE, secret, socket=shared)
        if info is None:
            raise NoServer(
                "no server runs here",
                where=str(place.path),
                hint="start one with `shoal up --detach`, or set SHOAL_URL",
            )
        # Nobody else can listen there, while a port that its server has left may be another user's by now.
        local = place.socket_file if secret is None and _trusted(place.socket_file) else None
        return Target(info.url, secret or _read_token(place), info.alive(), local)

    return locate


def _path(address: str) -> Path:
    """`unix:/path`, or `unix:///path`."""
    path = address.removeprefix(_SOCKET)
    return Path(path.removeprefix("//") if path.startswith("///") else path)


def _trusted(path: Path) -> bool:
    """Whether there is a socket of root's, or of the caller's own."""
    try:
        found = path.stat()
    except OSError:
        return False
    return stat.S_ISSOCK(found.st_mode) and found.st_uid in (0, os.geteuid())


def _read_token(home: Home) -> str | None:
    try:
        return home.token_file.read_text().strip() or None
    except OSError:
        return None
