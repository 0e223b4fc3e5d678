"""The kinds of events that the market writes."""

from __future__ import annotations

from shoal.contract.events import EventKinds


class MarketEvent(EventKinds):
    """What is rented, and what that costs."""

    WANTED = "market.wanted", "An instance was written down as wanted, with the money for it; the launch follows."
    LAUNCHED = "market.launched", "The provider has the instance."
    ENDED = "market.ended", "A rented instance is gone; `data` has what it cost."
    REFUSED = "market.refused", "Nothing was rented, for the tenant's cap or for want of capacity."
    ORPHAN = "market.orphan", "An instance with our tag that no record knows is being terminated."
    NOTICE = "market.notice", "The provider will take an instance away: its job is asked to checkpoint and leave."
