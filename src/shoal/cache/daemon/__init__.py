"""The one process of a node that fills, evicts and decides. Readers of what is there do not need it."""

from shoal.cache.daemon.cache import Account, Cache, Reader, Settings
from shoal.cache.daemon.planner import Planner, Planning, Round
from shoal.cache.daemon.protocol import Connection, admin_token, token_of
from shoal.cache.daemon.server import Daemon

__all__ = [
    "Account", "Cache", "Connection", "Daemon", "Planner", "Planning", "Reader", "Round", "Settings", "admin_token",
    "token_of",
]  # fmt: skip
