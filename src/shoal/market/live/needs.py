"""The extension as the routes of this component see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.market.live.jobs import Demand
    from shoal.market.live.ledger import Ledger
    from shoal.market.live.provider import Provider
    from shoal.market.live.renter import Renter


class Renting:
    """What the routes need of the extension."""

    provider: Provider
    ledger: Ledger
    renter: Renter
    demand: Demand
