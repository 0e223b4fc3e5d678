"""The simulator: the real policies and the real round mechanism, under a simulated clock.

`cluster_of` puts jobs, accelerators and speeds together, `run_of` names a policy and how it is carried out, and
`simulate` plays it. A run depends on its inputs and its seed only: no wall time, no unseeded chance.
"""

from shoal.schedule.choices import Mechanism
from shoal.schedule.simulate.cluster import Cluster, cluster_of
from shoal.schedule.simulate.engine import simulate
from shoal.schedule.simulate.lengths import Knows, Lengths
from shoal.schedule.simulate.options import Faults, Run, run_of
from shoal.schedule.simulate.result import Simulated

__all__ = [
    "Cluster", "Faults", "Knows", "Lengths", "Mechanism", "Run", "Simulated", "cluster_of", "run_of",
    "simulate",
]  # fmt: skip
