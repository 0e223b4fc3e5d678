"""The command context that has a client."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.base.console.command import CommandContext
from shoal.base.imports import absent, without_pydantic_plugins

if TYPE_CHECKING:
    from shoal.sdk import Client


_FIRST_S = 2.0
"""Who follows a job waits long for a server that restarts, but a wrong address is told soon."""


class CliContext(CommandContext):
    """Gives the commands of this package and of extensions a `shoal.Client`."""

    def server_home(self) -> Path | None:
        """The home of the server that is asked, if that is how it is found."""
        return None if self.url or os.environ.get("SHOAL_URL") else self.folder().absolute()

    def later_client(self, *, patience_s: float) -> LaterClient:
        return LaterClient(self, patience_s)

    def client(self, *, patience_s: float = 2.0) -> Client:
        with absent("httpx._main"):  # its own command line takes as long to load as the rest of it
            from shoal.sdk import Client
        without_pydantic_plugins()

        return Client(self.url, home=self.home, patience_s=patience_s, first_s=_FIRST_S)


class LaterClient:
    """Says where the server is, and loads the client when anything else is asked of it: that takes longer than a
    session with a short command does."""

    def __init__(self, context: CliContext, patience_s: float) -> None:
        from shoal.sdk.locate import locator

        self.locate = locator(context.url, home=context.home)
        self._load = functools.partial(context.client, patience_s=patience_s)
        self._client: Client | None = None

    def __enter__(self) -> LaterClient:
        return self

    def __exit__(self, *_: object) -> None:
        if self._client is not None:
            self._client.close()

    def __getattr__(self, name: str) -> Any:
        if self._client is None:
            self._client = self._load()
        return getattr(self._client, name)
