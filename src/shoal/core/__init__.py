"""The vocabulary every component speaks: small frozen values, no I/O, nothing heavy imported."""

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
from shoal.core.reason import Reason
from shoal.core.resources import ANY, CPU_SLOT, Device, Node, Resources, Share, Throughput
from shoal.core.sandbox import Sandbox
from shoal.core.tenant import PriorityClass, Quota, Tenant
from shoal.core.tokens import token_digest

__all__ = [
    "ANY",
    "CPU_SLOT",
    "NO_JOBS",
    "Capability",
    "Clock",
    "Conflict",
    "Device",
    "DiskFull",
    "Estimate",
    "Fault",
    "Forbidden",
    "Invalid",
    "LeaseLost",
    "Lifetimes",
    "ManualClock",
    "Money",
    "Node",
    "NotFound",
    "Overloaded",
    "PriorityClass",
    "Quota",
    "Reason",
    "Resources",
    "Sandbox",
    "Share",
    "ShoalError",
    "Speeds",
    "SystemClock",
    "Tenant",
    "Throughput",
    "Unavailable",
    "token_digest",
]
