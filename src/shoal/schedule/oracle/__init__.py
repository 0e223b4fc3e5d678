"""The throughput oracle: how fast each kind of job runs on each accelerator type, how sure that is, and what it
came from.

It senses reported steps (`Sample`) and believes, in this order: what the job itself did, what other jobs of its kind
did, what the kind's rates on other types imply, and a guess. After Gavel's throughput
estimator (OSDI'20), with a regression on all known kinds in place of the nearest one. State is the newest reports, as
JSON; there is no clock.
"""

from shoal.schedule.oracle.beliefs import Source
from shoal.schedule.oracle.oracle import Estimate, Oracle
from shoal.schedule.oracle.samples import Sample, is_rate

__all__ = ["Estimate", "Oracle", "Sample", "Source", "is_rate"]
