"""The tenants of a server: what each may have, and how far apart its processes are kept."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from shoal.contract.events import EventKind
from shoal.contract.records import NewEvent, TenantRecord
from shoal.control.sandboxes import require_sandbox, usual_sandbox
from shoal.core import Clock, Conflict, Forbidden, Invalid, NotFound, PriorityClass, Quota, Sandbox, Tenant
from shoal.engine import Engine
from shoal.extension.asking import DEFAULT_TENANT
from shoal.store import Store


class Tenants:
    """`records` is in memory what the store has. `least_sandbox` is the weakest that any tenant has, `changed` is told
    of each tenant that was created or changed. `inner`: they are a plane's.

    Of two changes of a tenant at once, the second is made of what the first one wrote.
    """

    def __init__(
        self, store: Store, clock: Clock, engine: Engine, *,
        least_sandbox: Callable[[], Sandbox], changed: Callable[[Tenant], None], inner: bool = False,
    ) -> None:  # fmt: skip
        self.records: dict[str, TenantRecord] = {}
        self._store = store
        self._clock = clock
        self._engine = engine
        self._least_sandbox = least_sandbox
        self._changed = changed
        self._inner = inner
        self._changing = asyncio.Lock()

    def open(self) -> None:
        """Read them from the store. Raises Unavailable where the engine cannot give the least sandbox."""
        require_sandbox(self._least_sandbox(), self._engine)
        self.records.update({record.name: record for record in self._store.tenants()})

    def get(self, name: str) -> TenantRecord:
        """Raises NotFound."""
        record = self.records.get(name)
        if record is None:
            raise NotFound(f"no tenant {name!r}", where="tenant", hint="an admin can create it: shoal tenant create")
        return record

    def as_tenant(self, name: str) -> Tenant:
        """Its weight and quota; without limits for one that is not known."""
        record = self.records.get(name)
        return Tenant(name) if record is None else record.as_tenant()

    async def create(self, name: str, *, actor: str, **settings: Any) -> TenantRecord:
        """A new tenant; `settings` are fields of its record. Raises Conflict where there is one of this name, Invalid
        for a weight that cannot be, and Unavailable for a sandbox that the engine cannot give."""
        async with self._changing:
            if name in self.records:
                raise Conflict(
                    f"there is a tenant {name} already", where="name", hint="change it with `shoal tenant set`"
                )
            fresh = TenantRecord(name, 1.0, Quota(), self._clock.now())
            return await self._write(fresh, settings, EventKind.TENANT_CREATED, actor)

    async def change(
        self, name: str, *, actor: str, limits: Callable[[Quota], Quota] = lambda quota: quota, **settings: Any
    ) -> TenantRecord:
        """`limits` makes the new quota of the present one. Raises NotFound, and as `create` does."""
        async with self._changing:
            old = self.get(name)
            return await self._write(replace(old, quota=limits(old.quota)), settings, EventKind.TENANT_CHANGED, actor)

    async def _write(
        self, base: TenantRecord, settings: Mapping[str, Any], kind: EventKind, actor: str
    ) -> TenantRecord:
        if "sandbox" in settings:
            require_sandbox(settings["sandbox"], self._engine)
        record = replace(base, **settings)
        try:
            tenant = record.as_tenant()
        except ValueError as error:
            raise Invalid(str(error), where="weight", hint="a number above 0") from error
        note = NewEvent(self._clock.now(), kind, actor, f"tenant {record.name}", tenant=record.name)
        await self._store.put_tenant(record, note)
        self.records[record.name] = record
        self._changed(tenant)
        return record

    def check_class(self, name: str, priority_class: PriorityClass, what: str) -> TenantRecord:
        """The tenant, if it may have such a `what`. Raises NotFound or Forbidden."""
        record = self.get(name)
        if priority_class is PriorityClass.GUARANTEED and record.max_priority_class is PriorityClass.BEST_EFFORT:
            raise Forbidden(
                f"tenant {name} may not have guaranteed {what}", where="priority_class",
                hint="write `priority_class: best-effort`",
            )  # fmt: skip
        return record

    def usual_sandbox(self) -> Sandbox:
        """Of a tenant for which none was asked; in a plane, what the plane has."""
        return Sandbox.NONE if self._inner else usual_sandbox(self._engine, root=os.geteuid() == 0)

    def check_members(self, name: str) -> None:
        """Raise Conflict for the server's own tenant where its jobs have more rights than a new tenant's would: who may
        submit there may do what the server may, and nobody asked for that."""
        if name == DEFAULT_TENANT and self.sandbox(name) is Sandbox.NONE is not self.usual_sandbox():
            raise Conflict(
                f"a member of the tenant {name} would run commands as root on this machine", where="tenant",
                hint=f"`shoal tenant set {name} --sandbox user` first, or make a tenant for them",
            )  # fmt: skip

    def sandbox(self, name: str) -> Sandbox:
        """How far apart the processes of the tenant's jobs are kept."""
        record, least = self.records.get(name), self._least_sandbox()
        return least if record is None else record.sandbox.at_least(least)
