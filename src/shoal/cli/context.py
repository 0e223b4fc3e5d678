"""The command context that has a client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.base.console.command import CommandContext

if TYPE_CHECKING:
    from shoal.sdk import Client


_FIRST_S = 2.0
"""Who follows a job waits long for a server that restarts, but a wrong address is told soon."""


class CliContext(CommandContext):
    """Gives the commands of this package and of extensions a `shoal.Client`."""

    def client(self, *, patience_s: float = 2.0) -> Client:
        from shoal.sdk import Client

        return Client(self.url, home=self.home, patience_s=patience_s, first_s=_FIRST_S)
