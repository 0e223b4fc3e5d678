"""The extension as the routes of the page see it."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from shoal.extension.asking import Api
from shoal.web.sessions import Codes, KnownTokens, Session, Sessions
from shoal.web.shares import ShareHistory
from shoal.web.site import Site
from shoal.web.stream import Hub

if TYPE_CHECKING:
    from fastapi import Request

    from shoal.web.oidc import Provider


class Parts:
    """`cookie` names the cookie of sessions. Nothing is answered before `is_open`."""

    cookie: str
    lifetime_s: float
    site: Site
    tokens: KnownTokens
    codes: Codes
    sessions: Sessions
    hub: Hub
    shares: ShareHistory
    is_open = False
    oidc: Provider | None = None
    """Who signs people in that have no token of their own."""
    oidc_url: str = ""
    """The server's address as browsers have it; "" for what they ask for."""

    def session(self, request: Request) -> Session | None:
        """Whose cookie a request carries, if it is the page's own. Raises Forbidden where it is not."""
        raise NotImplementedError

    def names(self) -> Collection[str]:
        """The host names of this server, beside localhost and addresses."""
        raise NotImplementedError

    def tenants(self) -> Collection[str]:
        """Those that there are."""
        raise NotImplementedError

    def end_streams_with(self, api: Api) -> None:
        """End all streams when the server is about to leave."""
        raise NotImplementedError
