"""The vocabulary every component speaks: small frozen values, no I/O, nothing heavy imported."""

from shoal.core.affinity import (
    NO_AFFINITY,
    OWN_PREFIX,
    Affinity,
    Effect,
    Labels,
    Preference,
    Taint,
    Toleration,
    match,
)
from shoal.core.capability import NO_JOBS, Capability
from shoal.core.clock import Clock, ManualClock, SystemClock
from shoal.core.errors import (
    Conflict,
    DiskFull,
    Fault,
    Forbidden,
    Invalid,
    LeaseLost,
    NotFound,
    Overloaded,
    ShoalError,
    Unavailable,
)
from shoal.core.money import Money
from shoal.core.prediction import Estimate, Lifetimes, Speeds
from shoal.core.questions import (
    Budget,
    Budgets,
    FinishTimes,
    KillCauses,
    Miss,
    NeededBundles,
    NodeOffers,
    NodesToCome,
    Objectives,
    Sensors,
    Telemetry,
    first,
)
from shoal.core.reason import Reason
from shoal.core.resources import ANY, CPU_SLOT, Device, Node, Resources, Share, Throughput
from shoal.core.sandbox import Sandbox
from shoal.core.tenant import PriorityClass, Quota, Tenant
from shoal.core.tokens import token_digest

__all__ = [
    "ANY",
    "CPU_SLOT",
    "NO_AFFINITY",
    "NO_JOBS",
    "OWN_PREFIX",
    "Affinity",
    "Budget",
    "Budgets",
    "Capability",
    "Clock",
    "Conflict",
    "Device",
    "DiskFull",
    "Effect",
    "Estimate",
    "Fault",
    "FinishTimes",
    "Forbidden",
    "Invalid",
    "KillCauses",
    "Labels",
    "LeaseLost",
    "Lifetimes",
    "ManualClock",
    "Miss",
    "Money",
    "NeededBundles",
    "Node",
    "NodeOffers",
    "NodesToCome",
    "NotFound",
    "Objectives",
    "Overloaded",
    "Preference",
    "PriorityClass",
    "Quota",
    "Reason",
    "Resources",
    "Sandbox",
    "Sensors",
    "Share",
    "ShoalError",
    "Speeds",
    "SystemClock",
    "Taint",
    "Telemetry",
    "Tenant",
    "Throughput",
    "Toleration",
    "Unavailable",
    "first",
    "match",
    "token_digest",
]
