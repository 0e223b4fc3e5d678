"""The vocabulary every room speaks: small frozen values, no I/O, nothing heavy imported."""

from shoal.core.clock import Clock, ManualClock, SystemClock
from shoal.core.errors import (
    Conflict,
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
from shoal.core.objective import CostCap, Deadline, Objective, P99Latency
from shoal.core.reason import Reason
from shoal.core.resources import ANY, Device, Node, Resources, Throughput
from shoal.core.tokens import token_digest
from shoal.core.workload import Job, PriorityClass, Quota, Service, Tenant, Workload

__all__ = [
    "ANY", "Clock", "Conflict", "CostCap", "Deadline", "Device", "Fault", "Forbidden", "Invalid", "Job", "LeaseLost",
    "ManualClock", "Money", "Node", "NotFound", "Objective", "Overloaded", "P99Latency", "PriorityClass", "Quota",
    "Reason", "Resources", "Service", "ShoalError", "SystemClock", "Tenant", "Throughput", "Unavailable", "Workload",
    "token_digest",
]  # fmt: skip
