"""Rented instances for work with a deadline: which, where, spot or not, and when to move."""

from typing import TYPE_CHECKING

from shoal.base.faces import on_first_use

if TYPE_CHECKING:
    from shoal.market.feeds import read, read_all
    from shoal.market.history import Availability, History, Offer, Prices, Track
    from shoal.market.optimum import Optimum
    from shoal.market.policy.beliefs import Rates
    from shoal.market.policy.names import NAMES, policy_named
    from shoal.market.policy.view import Decision, Policy, View, safe
    from shoal.market.ticks import Job, Ticks, cut

__all__ = [
    "NAMES",
    "Availability",
    "Decision",
    "History",
    "Job",
    "Offer",
    "Optimum",
    "Policy",
    "Prices",
    "Rates",
    "Ticks",
    "Track",
    "View",
    "cut",
    "policy_named",
    "read",
    "read_all",
    "safe",
]  # fmt: skip

__getattr__ = on_first_use(globals(), {
    "feeds": "read read_all",
    "history": "Availability History Offer Prices Track",
    "optimum": "Optimum",
    "policy.beliefs": "Rates",
    "policy.names": "NAMES policy_named",
    "policy.view": "Decision Policy View safe",
    "ticks": "Job Ticks cut",
})  # fmt: skip
