"""Where the server is and which token opens it: arguments, then SHOAL_URL and SHOAL_TOKEN, then the home directory."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from shoal.base.home import Home, default_home, read_server
from shoal.core import ShoalError


class NoServer(ShoalError):
    """No server answers, or no address of a server is known."""

    code = "no-server"


@dataclass(frozen=True, slots=True)
class Target:
    """`alive` False: the home's server is known to be gone just now."""

    url: str
    token: str | None
    alive: bool = True


Locate = Callable[[], Target]


def locator(
    url: str | None = None,
    token: str | None = None,
    home: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Locate:
    """How to find the server now; asked again when it does not answer, for it may have come back elsewhere."""
    given = os.environ if environ is None else environ
    place = Home(Path(home).expanduser().absolute() if home is not None else default_home(given))

    def locate() -> Target:
        # A home that was named beats an address from the environment.
        address = url or (given.get("SHOAL_URL") if home is None else None)
        secret = token or (given.get("SHOAL_TOKEN") if home is None or url else None)
        if address:
            return Target(address.rstrip("/"), secret or _read_token(place))
        info = read_server(place)
        if info is None:
            raise NoServer(
                "no server runs here",
                where=str(place.path),
                hint="start one with `shoal up --detach`, or set SHOAL_URL",
            )
        return Target(info.url, secret or _read_token(place), info.alive())

    return locate


def _read_token(home: Home) -> str | None:
    try:
        return home.token_file.read_text().strip() or None
    except OSError:
        return None
