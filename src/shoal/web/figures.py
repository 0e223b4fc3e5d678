"""Time series of the whole server that dashboards and alerts need beside those of its parts."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.admission import Snapshot
from shoal.extension.metrics import gauge

if TYPE_CHECKING:
    from prometheus_client.core import Metric


def server_metrics(snapshot: Snapshot, home: Path) -> Iterable[Metric]:
    """Of nodes, queue, fairness and disk."""
    nodes = Counter[tuple[str, ...]]({("open",): 0, ("closed",): 0})
    nodes.update(("open" if one.schedulable else "closed",) for one in snapshot.nodes.values())
    oldest: dict[tuple[str, ...], float] = {}
    weight: dict[tuple[str, ...], float] = {}
    used: dict[tuple[str, ...], float] = {}
    deficit: dict[tuple[str, ...], float] = {}
    for name, state in snapshot.tenants.items():
        oldest[(name,)] = 0.0
        weight[(name,)] = float(state.tenant.weight)
        used[(name,)] = float(sum(state.used.accelerators.values()))
        deficit[(name,)] = state.deficit
    for name, queue in snapshot.pending.by_tenant.items():
        since = [
            first[1].queued_at for group in queue for runs in (group.ready, group.delayed) if (first := runs.first())
        ]
        if since:
            oldest[(name,)] = max(0.0, snapshot.now - min(since))
    yield gauge("shoal_nodes", "Nodes by whether they take new jobs.", ("state",), nodes)
    yield gauge("shoal_queue_oldest_seconds", "Wait of the tenant's oldest waiting job.", ("tenant",), oldest)
    yield gauge("shoal_tenant_weight", "Share that is owed to the tenant.", ("tenant",), weight)
    yield gauge("shoal_tenant_accelerators", "Accelerators that the tenant holds.", ("tenant",), used)
    yield gauge("shoal_tenant_deficit_seconds", "Time that the tenant may still start.", ("tenant",), deficit)
    disk = shutil.disk_usage(home)
    yield gauge("shoal_home_free_bytes", "Free space of the file system of the home.", (), {(): float(disk.free)})
    yield gauge("shoal_home_size_bytes", "Size of the file system of the home.", (), {(): float(disk.total)})
