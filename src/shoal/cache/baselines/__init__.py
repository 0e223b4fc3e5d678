"""Policies to compare with: static partition, random serial dictatorship, utility-maximal and greedy; and, as caches
that follow requests, LRU and FairRide. Nothing live imports them."""

from shoal.cache.baselines.allocations import BASELINES
from shoal.cache.baselines.replacement import FairRide, LeastRecentlyUsed, Replacement

__all__ = ["BASELINES", "FairRide", "LeastRecentlyUsed", "Replacement"]
