"""The extension as the routes of this component see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.extension import Server
    from shoal.sweep.live.stopping import Stopping


class Watching:
    """What the routes need of the extension."""

    server: Server
    stopping: Stopping
