"""The API of one control plane: its application, and what keeps its tokens and watchers up with what is committed."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import FastAPI

from shoal.control.api.app import create_app
from shoal.control.api.context import Context
from shoal.control.api.feed import Feed
from shoal.control.api.told import Told
from shoal.control.api.usage import Usage
from shoal.control.plane import ControlPlane
from shoal.control.server_settings import TokenLimits
from shoal.control.tokens import TokenCache
from shoal.extension.asking import DEFAULT_TENANT


class Door:
    """Open it once its plane is open; close it before."""

    def __init__(
        self, plane: ControlPlane, limits: TokenLimits | None = None, feed: Feed | None = None, told: Told | None = None
    ) -> None:
        """Off the event loop, a `feed` that was made there is needed."""
        self.context = Context(plane, feed or Feed(), TokenCache(), usage=Usage(limits), told=told or Told())
        self.app: FastAPI = create_app(self.context)
        self._unfollow: Callable[[], None] = lambda: None

    async def open(self) -> None:
        """Makes the first tenant, so that a newcomer can submit at once."""
        tenants = self.context.plane.tenants
        if not tenants.records:
            await tenants.create(DEFAULT_TENANT, actor="server")
        self._unfollow = self.context.follow()

    def close(self) -> None:
        self.context.feed.close()
        self._unfollow()
