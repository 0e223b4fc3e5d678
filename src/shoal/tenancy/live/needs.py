"""The extension as the routes of this component see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.tenancy.live.planes import Planes


class Serving:
    """What the routes need of the extension."""

    planes: Planes
    domain: str = ""
