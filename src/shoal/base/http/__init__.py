"""An HTTP/1.1 server on asyncio protocols and llhttp (through httptools), with limits on all that a client can take.

`front.Front` listens; each client has a `connection.Connection`, whose subclass is the application: `asgi.AsgiFront`
runs any ASGI application, the inference gateway has its own. `receiver` makes requests of bytes (`head`, `chunks`,
`coding`), `peers` decides which clients may connect, and which idle connection is closed for another. This
package imports only names that cost nothing; the server itself comes from its modules.
"""

from shoal.base.http.errors import (
    BodyTooLarge,
    HeadTooLarge,
    Malformed,
    NoAnswer,
    Stopping,
    TooManyConnections,
    TooSlow,
    UnsupportedCoding,
    status_of,
)
from shoal.base.http.limits import Limits
from shoal.base.http.peers import network_of

__all__ = [
    "BodyTooLarge",
    "HeadTooLarge",
    "Limits",
    "Malformed",
    "NoAnswer",
    "Stopping",
    "TooManyConnections",
    "TooSlow",
    "UnsupportedCoding",
    "network_of",
    "status_of",
]
