"""The extension as the routes of this component see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.users.live.table import Table


class Serving:
    """What the routes need of the extension."""

    table: Table
