"""Admission and placement: which waiting job starts now, where, and why the others wait.

Senses nothing itself: `ClusterIndex` keeps the control plane's picture of nodes, tenants, waiting and running jobs and
hands out a frozen `Snapshot` of it. `decide` is the policy, a pure function from a snapshot to a `Decision` in which
every start, preemption and wait carries its reason; `explain` answers for one job why it waits, what would have to
change, and when it may start. Carrying a decision out is the control plane's part.
"""

from shoal.admission.decide import decide
from shoal.admission.explain import explain, obstacles
from shoal.admission.index import ClusterIndex
from shoal.admission.outlook import Outlook
from shoal.admission.snapshot import Snapshot
from shoal.admission.types import (
    Blocker,
    Decision,
    Explanation,
    NodeState,
    Pending,
    Policy,
    Preemption,
    Running,
    Spread,
    Start,
    TenantState,
)
from shoal.admission.without import without

__all__ = [
    "Blocker", "ClusterIndex", "Decision", "Explanation", "NodeState", "Outlook", "Pending", "Policy",
    "Preemption", "Running", "Snapshot", "Spread", "Start", "TenantState", "decide", "explain", "obstacles",
    "without",
]  # fmt: skip
