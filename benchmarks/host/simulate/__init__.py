"""A deterministic simulator of a host whose memory is contended, to compare policies and to test the guard's loop.

Guaranteed work slows down with the pressure that best-effort work puts on the path to memory; how much was fitted to
measurements of one machine (an AMD Zen 4 guest; see `physics`). The policies and the guard's loop that run here are the
ones that run live: only the clock, the sensors and the actuators are simulated.
"""

from host.simulate.compare import NAMES, ORACLE, SUBDOMAIN, Comparison, compare, policy_of, workload_set
from host.simulate.host import SimulatedHost
from host.simulate.oracle import best_static
from host.simulate.outcome import Outcome
from host.simulate.run import simulate
from host.simulate.workloads import (
    BEST_EFFORT,
    GUARANTEED,
    BestEffort,
    Drift,
    Guaranteed,
    HostSpec,
    Mechanism,
    Scenario,
    Sensing,
)

__all__ = [
    "BEST_EFFORT",
    "GUARANTEED",
    "NAMES",
    "ORACLE",
    "SUBDOMAIN",
    "BestEffort",
    "Comparison",
    "Drift",
    "Guaranteed",
    "HostSpec",
    "Mechanism",
    "Outcome",
    "Scenario",
    "Sensing",
    "SimulatedHost",
    "best_static",
    "compare",
    "policy_of",
    "simulate",
    "workload_set",
]  # fmt: skip
