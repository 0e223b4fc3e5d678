"""The one process of a node that fills, evicts and decides. Readers of what is there do not need it."""

from typing import TYPE_CHECKING

from shoal.base.faces import on_first_use

if TYPE_CHECKING:
    from shoal.cache.daemon.cache import Account, Caller, Settings, SharedCache
    from shoal.cache.daemon.planner import Planner, Planning, Round
    from shoal.cache.daemon.protocol import Connection, admin_token, token_of
    from shoal.cache.daemon.server import Daemon

__all__ = [
    "Account",
    "Caller",
    "Connection",
    "Daemon",
    "Planner",
    "Planning",
    "Round",
    "Settings",
    "SharedCache",
    "admin_token",
    "token_of",
]  # fmt: skip

# A server speaks to the process, and is not it.
__getattr__ = on_first_use(globals(), {
    "cache": "Account Caller Settings SharedCache",
    "planner": "Planner Planning Round",
    "protocol": "Connection admin_token token_of",
    "server": "Daemon",
})  # fmt: skip
