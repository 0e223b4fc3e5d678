"""The command context that has a client."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

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

    def client(self, *, patience_s: float = 2.0) -> Client:
        with absent("httpx._main"):  # its own command line takes as long to load as the rest of it
            from shoal.sdk import Client
        without_pydantic_plugins()

        return Client(self.url, home=self.home, patience_s=patience_s, first_s=_FIRST_S)
