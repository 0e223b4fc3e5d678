"""Services in the store: their rows, their one guarded write, and what is asked of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import orjson
from sqlalchemy import Connection, insert, select, tuple_, update

from shoal.contract.events import EventKind
from shoal.contract.service_lifecycle import ServiceState, check_step
from shoal.contract.service_records import DeploymentRecord, ServiceChange, ServiceFilter, ServiceRecord
from shoal.core import Conflict
from shoal.store import rows, schema, statements
from shoal.store.operations import BULKS, Other, Pending, pending
from shoal.store.reads import Reads

_FIXED = ("id", "tenant", "name", "created_at")
_service = schema.service.c
_deployment = schema.deployment.c


class ServiceReads(Reads):
    def service(self, service_id: str) -> ServiceRecord | None:
        found = self._all(select(schema.service).where(_service.id == service_id))
        return _service_of(found[0]) if found else None

    def services(self, service_filter: ServiceFilter) -> list[ServiceRecord]:
        """Newest first. A `before_id` that is no service's lists nothing."""
        query = select(schema.service).order_by(_service.created_at.desc(), _service.id.desc())
        query = query.limit(service_filter.limit)
        if service_filter.tenant is not None:
            query = query.where(_service.tenant == service_filter.tenant)
        if service_filter.states is not None:
            query = query.where(_service.state.in_(sorted(state.value for state in service_filter.states)))
        if service_filter.name is not None:
            query = query.where(_service.name == service_filter.name)
        if service_filter.before_id is not None:
            position = schema.service.alias().c
            start = select(position.created_at, position.id).where(position.id == service_filter.before_id)
            query = query.where(tuple_(_service.created_at, _service.id) < start.scalar_subquery())
        return [_service_of(row) for row in self._all(query)]

    def live_services(self) -> list[ServiceRecord]:
        """All that are not STOPPED, oldest first."""
        query = select(schema.service).where(schema.LIVE).order_by(_service.created_at, _service.id)
        return [_service_of(row) for row in self._all(query)]

    def deployments(self, service_id: str) -> list[DeploymentRecord]:
        """In the order of their numbers."""
        query = select(schema.deployment).where(_deployment.service_id == service_id).order_by(_deployment.number)
        return [DeploymentRecord(*row) for row in self._all(query)]

    def deployment_by_key(self, tenant: str, idempotency_key: str) -> DeploymentRecord | None:
        same = (_deployment.tenant == tenant, _deployment.idempotency_key == idempotency_key)
        found = self._all(select(schema.deployment).where(*same))
        return DeploymentRecord(*found[0]) if found else None


def apply(change: ServiceChange) -> Other:
    """The write of a change: gives whether it was current. Raises Conflict for one that is no legal step."""
    _check(change)
    jobs = [rows.job_row(job) for job in change.jobs]
    values = _values(change.after)

    def run(connection: Connection) -> tuple[bool, bool]:
        if change.before is None:
            connection.execute(insert(schema.service).values(values))
        else:
            current = (_service.id == change.before.id, _service.version == change.before.version)
            if connection.execute(update(schema.service).where(*current).values(values)).rowcount == 0:
                return False, False
        if change.deployment is not None:
            connection.execute(insert(schema.deployment).values(_columns(change.deployment)))
        statements.run(connection, BULKS["jobs"], jobs)
        return True, True

    events: tuple[Pending, ...] = pending(change.events, change.after.id)
    return Other(run, events)


def _check(change: ServiceChange) -> None:
    before, after = change.before, change.after
    state = ServiceState.DEPLOYING if before is None else before.state
    if before is not None:
        for name in _FIXED:
            if getattr(before, name) != getattr(after, name):
                raise Conflict(f"a service keeps its {name} for life", where=before.id)
        if after.version <= before.version:
            raise Conflict(f"version {after.version} does not follow {before.version}", where=before.id)
    for event in change.events:
        if event.kind == EventKind.SERVICE_STATE and event.new_state is not None:
            reached = ServiceState(event.new_state)
            if event.old_state != state:
                raise Conflict(f"an event leaves {event.old_state}, but the service is {state} then", where=after.id)
            check_step(state, reached, service_id=after.id)
            state = reached
    if state is not after.state:
        raise Conflict(f"the events lead to {state}, the row to {after.state}", where=after.id)
    for job in change.jobs:
        if job.service_id != after.id:
            raise Conflict(f"job {job.id} is no replica of this service", where=after.id)


def _values(service: ServiceRecord) -> dict[str, Any]:
    reason = None if service.reason is None else rows.json_text(service.reason, "reason")
    return {**_columns(service), "state": service.state.value, "reason": reason}


def _service_of(row: Sequence[Any]) -> ServiceRecord:
    # The columns stand in the order of the record's fields.
    record = ServiceRecord(*row)
    reason = None if record.reason is None else orjson.loads(str(record.reason))
    return replace(record, state=ServiceState(record.state), reason=reason)


def _columns(record: ServiceRecord | DeploymentRecord) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}
