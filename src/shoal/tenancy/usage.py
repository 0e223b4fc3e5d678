"""Use of the shared pool by a plane, and the audit of who did what in it, for the shared server's admin. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from shoal.contract.principal import ADMIN
from shoal.contract.records import Event, Usage

if TYPE_CHECKING:
    from shoal.tenancy.models import AuditEntry, UsageView

_TENANT = "tenant:"
_HOUR_S = 3600.0


def usage_of(plane: str, tenant: str, since: float, used: Iterable[Usage]) -> UsageView:
    """Sums over all jobs; a device counts whole for a job that has it with others."""
    from shoal.tenancy.models import UsageView

    jobs, cpu_s, memory_s, devices_s = 0, 0.0, 0.0, dict[str, float]()
    for one in used:
        rank_s = one.ranks * one.ran_s
        jobs += one.jobs
        cpu_s += one.resources.cpu_milli / 1000 * rank_s
        memory_s += one.resources.memory_bytes / (1 << 30) * rank_s
        for kind, count in one.resources.accelerators.items():
            devices_s[kind] = devices_s.get(kind, 0.0) + count * rank_s
    return UsageView(
        plane=plane, tenant=tenant, since=since, jobs=jobs, core_hours=cpu_s / _HOUR_S,
        memory_gib_hours=memory_s / _HOUR_S,
        accelerator_hours={kind: seconds / _HOUR_S for kind, seconds in sorted(devices_s.items())},
    )  # fmt: skip


def audited(events: Iterable[Event]) -> list[AuditEntry]:
    """What people did, not what the server did by itself. Causes and data are left out: they may hold what is the
    team's own."""
    from shoal.tenancy.models import AuditEntry

    return [
        AuditEntry(
            seq=event.seq, at=event.at, actor=event.actor, kind=event.kind, tenant=event.tenant, job_id=event.job_id,
            state=event.new_state,
        )
        for event in events
        if event.actor == ADMIN or event.actor.startswith(_TENANT)
    ]  # fmt: skip
