"""The extension as the routes of this component see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.extension import Server
    from shoal.notify.live.book import Book
    from shoal.notify.live.outbox import Outbox
    from shoal.notify.live.sender import Sender


class Telling:
    """What the routes need of the extension."""

    server: Server
    book: Book
    outbox: Outbox
    sender: Sender
