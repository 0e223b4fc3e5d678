"""A deterministic simulator of a device that does not preempt, to compare ways of sharing it.

The gate's decisions and the choice of slices are those of the compiled policy that front ends run. Kernels, requests
and the device are models (see `workloads`).
"""

from device.simulate.run import SYSTEMS, Outcome, System, compare, simulate
from device.simulate.workloads import DIAGONAL, MIXES, SERVICES, TRAININGS

__all__ = [
    "DIAGONAL", "MIXES", "SERVICES", "SYSTEMS", "TRAININGS", "Outcome", "System", "compare", "simulate",
]  # fmt: skip
