"""The policies on requests that are made up or recorded: nothing is read, and every figure is a simulated one.

Batches of requests for sets that are read whole (`batches`), as ROBUS has them, and training that reads its data in a
new order each epoch (`training`). The policies are those of the live loop.
"""

from shoal.cache.simulate.batches import Outcome, Run, policy_names, run
from shoal.cache.simulate.training import Job, Trained, train
from shoal.cache.simulate.workloads import WORKLOADS, Workload, robus

__all__ = ["WORKLOADS", "Job", "Outcome", "Run", "Trained", "Workload", "policy_names", "robus", "run", "train"]
