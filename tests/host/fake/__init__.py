"""A machine in memory that refuses what the kernel refuses, and whose counters move by a bandwidth model."""

from tests.host.fake.host import AMD, INTEL, RESCTRL_AMD, RESCTRL_INTEL, RESCTRL_MBPS, FakeHost, Machine
from tests.host.fake.model import CAPACITY
from tests.host.fake.processes import FakeProcess

__all__ = [
    "AMD",
    "CAPACITY",
    "INTEL",
    "RESCTRL_AMD",
    "RESCTRL_INTEL",
    "RESCTRL_MBPS",
    "FakeHost",
    "FakeProcess",
    "Machine",
]
