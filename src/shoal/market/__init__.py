"""Which instances to rent, where, spot or not, and when to move, for work with a deadline."""

from typing import TYPE_CHECKING

from shoal.base.faces import on_first_use

if TYPE_CHECKING:
    from shoal.market.feeds import read, read_all
    from shoal.market.history import Availability, History, Offer, Prices, Track

__all__ = ["Availability", "History", "Offer", "Prices", "Track", "read", "read_all"]

__getattr__ = on_first_use(
    globals(),
    {
        "Availability": "history",
        "History": "history",
        "Offer": "history",
        "Prices": "history",
        "Track": "history",
        "read": "feeds",
        "read_all": "feeds",
    },
)
