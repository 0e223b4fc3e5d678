"""Services in the database: their rows, their one guarded write, and what is asked of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import orjson
from sqlalchemy import Connection, insert, select, tuple_, update

from shoal.core import Conflict, Reason
from shoal.serve.lifecycle import ServiceEvent, ServiceState, check_step
from shoal.serve.live.records import DeploymentRecord, ServiceChange, ServiceFilter, ServiceRecord
from shoal.serve.live.tables import LIVE, deployment, service
from shoal.store import Store

_FIXED = ("id", "tenant", "name", "created_at")
_service = service.c
_deployment = deployment.c


class ServiceRepository:
    """Reads may come from any thread."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def service(self, service_id: str) -> ServiceRecord | None:
        found = self._store.rows(select(service).where(_service.id == service_id))
        return _service_of(found[0]) if found else None

    def services(self, service_filter: ServiceFilter) -> list[ServiceRecord]:
        """Newest first. A `before_id` that is no service's lists nothing."""
        query = select(service).order_by(_service.created_at.desc(), _service.id.desc())
        query = query.limit(service_filter.limit)
        if service_filter.tenant is not None:
            query = query.where(_service.tenant == service_filter.tenant)
        if service_filter.states is not None:
            query = query.where(_service.state.in_(sorted(state.value for state in service_filter.states)))
        if service_filter.name is not None:
            query = query.where(_service.name == service_filter.name)
        if service_filter.before_id is not None:
            position = service.alias().c
            start = select(position.created_at, position.id).where(position.id == service_filter.before_id)
            query = query.where(tuple_(_service.created_at, _service.id) < start.scalar_subquery())
        return [_service_of(row) for row in self._store.rows(query)]

    def live_services(self) -> list[ServiceRecord]:
        """All that are not STOPPED, oldest first."""
        query = select(service).where(LIVE).order_by(_service.created_at, _service.id)
        return [_service_of(row) for row in self._store.rows(query)]

    def deployments(self, service_id: str) -> list[DeploymentRecord]:
        """In the order of their numbers."""
        query = select(deployment).where(_deployment.service_id == service_id).order_by(_deployment.number)
        return [DeploymentRecord(*row) for row in self._store.rows(query)]

    def deployment_by_key(self, tenant: str, idempotency_key: str) -> DeploymentRecord | None:
        same = (_deployment.tenant == tenant, _deployment.idempotency_key == idempotency_key)
        found = self._store.rows(select(deployment).where(*same))
        return DeploymentRecord(*found[0]) if found else None

    async def apply(self, change: ServiceChange) -> bool:
        """Make or move a service, and submit the replicas that come with the step, all in one transaction.

        False when the stored version is not `before.version` any more: then nothing is written. Raises Conflict when
        the step is illegal, another live service of the tenant has the name, or the idempotency key was used.
        """
        _check(change)
        values = _values(change.after)

        def run(connection: Connection) -> bool:
            if change.before is None:
                connection.execute(insert(service).values(values))
            else:
                current = (_service.id == change.before.id, _service.version == change.before.version)
                if connection.execute(update(service).where(*current).values(values)).rowcount == 0:
                    return False
            if change.deployment is not None:
                connection.execute(insert(deployment).values(_columns(change.deployment)))
            return True

        return await self._store.transact(run, change.events, owner_id=change.after.id, jobs=change.jobs)


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
        if event.kind == ServiceEvent.STATE and event.new_state is not None:
            reached = ServiceState(event.new_state)
            if event.old_state != state:
                raise Conflict(f"an event leaves {event.old_state}, but the service is {state} then", where=after.id)
            check_step(state, reached, service_id=after.id)
            state = reached
    if state is not after.state:
        raise Conflict(f"the events lead to {state}, the row to {after.state}", where=after.id)
    for job in change.jobs:
        if job.owner_id != after.id:
            raise Conflict(f"job {job.id} is no replica of this service", where=after.id)


def _values(record: ServiceRecord) -> dict[str, Any]:
    reason = None if record.reason is None else orjson.dumps(record.reason, option=orjson.OPT_NON_STR_KEYS).decode()
    return {**_columns(record), "state": record.state.value, "reason": reason}


def _service_of(row: Sequence[Any]) -> ServiceRecord:
    # The columns stand in the order of the record's fields.
    record = ServiceRecord(*row)
    reason = None if record.reason is None else Reason(**orjson.loads(str(record.reason)))
    return replace(record, state=ServiceState(record.state), reason=reason)


def _columns(record: ServiceRecord | DeploymentRecord) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}
