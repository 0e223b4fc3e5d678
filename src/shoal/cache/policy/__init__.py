"""Policies that divide the cache: pure functions from a `Problem` to an `Allocation` with its `Certificate`."""

from shoal.cache.policy.certificate import Certificate, certify
from shoal.cache.policy.claims import Claims, claims_of
from shoal.cache.policy.decide import POLICIES, TOLERANCE, Decision, Policy, allocate, decide, proportional
from shoal.cache.policy.problem import Allocation, Configuration, Mode, Problem

__all__ = [
    "POLICIES", "TOLERANCE", "Allocation", "Certificate", "Claims", "Configuration", "Decision", "Mode", "Policy",
    "Problem", "allocate", "certify", "claims_of", "decide", "proportional",
]  # fmt: skip
