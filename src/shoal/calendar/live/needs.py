"""The extension as the routes of this component see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.calendar.live.crons import Crons
    from shoal.calendar.live.plans import Plans
    from shoal.extension import Server


class Planning:
    """What the routes need of the extension."""

    server: Server
    crons: Crons
    plans: Plans
    zone: str
