"""The table of users, as it is in the database, and what may be written there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from shoal.contract.events import EventKind
from shoal.contract.principal import TokenRole, User, submitter
from shoal.contract.records import NewEvent, TokenRecord
from shoal.core import (
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Sandbox,
    Unavailable,
    new_token,
    new_token_id,
    token_digest,
)
from shoal.extension import Server
from shoal.users.accounts import Accounts, SystemUser
from shoal.users.live.events import UserEvent
from shoal.users.live.tables import UserRepository
from shoal.users.rules import Kind, Role, Rule, RunAs, rule_for

if TYPE_CHECKING:
    from shoal.users.models import RemovedView, RuleGiven, UserTokenGiven, UserTokenView, UserView


class Table:
    """`rules` and `holders` are in memory what the database has. `missing` says why the server starts no jobs as other
    users, `as_root` whether what it starts without a sandbox is root's."""

    def __init__(
        self, server: Server, accounts: Accounts, *, missing: Callable[[], str | None], as_root: bool, allow_root: bool
    ) -> None:
        self.rules: dict[tuple[Kind, str], Rule] = {}
        self.holders: dict[str, User] = {}
        self._server = server
        self._accounts = accounts
        self._repository = UserRepository(server.store)
        self._missing = missing
        self._as_root = as_root
        self._allow_root = allow_root

    def open(self) -> None:
        self.rules = self._repository.rules()
        self.holders = self._repository.holders()

    async def add(self, kind: Kind, name: str, asked: RuleGiven, *, actor: str) -> Rule:
        """Raises Invalid, NotFound, Conflict and Unavailable for what cannot be."""
        self._check_tenant(asked)
        self._check_run_as(asked)
        await self._check_name(kind, name)
        now = self._server.clock.now()
        rule = Rule(kind, name, asked.tenant, asked.role, asked.run_as, now)
        told = f"the {kind} {name} is {asked.role} of {asked.tenant or 'the server'}"
        data = {"kind": kind.value, "name": name, "role": asked.role.value, "run_as": asked.run_as.value}
        await self._repository.put(rule, NewEvent(now, UserEvent.ADDED, actor, told, tenant=asked.tenant, data=data))
        self.rules[rule.key] = rule
        return rule

    def _check_tenant(self, asked: RuleGiven) -> None:
        if asked.role is Role.ADMIN:
            if asked.tenant is not None:
                raise Invalid("an admin belongs to no tenant", where="tenant", hint="leave it out")
            return
        if asked.tenant is None:
            raise Invalid("it is not said to which tenant they belong", where="tenant", hint="--tenant TENANT")
        if asked.tenant not in self._server.tenants():
            raise NotFound(
                f"no tenant {asked.tenant!r}", where="tenant", hint=f"make it: `shoal tenant create {asked.tenant}`"
            )
        # What is submitted for a service runs as the tenant's user, whoever submits it.
        if self._as_root and asked.role is not Role.VIEWER and self._server.sandbox(asked.tenant) is Sandbox.NONE:
            raise Conflict(
                f"a member of the tenant {asked.tenant} could run services as root on this machine", where="tenant",
                hint=f"`shoal tenant set {asked.tenant} --sandbox user` first, or make a tenant for them",
            )  # fmt: skip

    def _check_run_as(self, asked: RuleGiven) -> None:
        if asked.run_as is RunAs.SELF and asked.role is not Role.VIEWER and (why := self._missing()) is not None:
            raise Unavailable(
                f"their jobs cannot run as them: {why}", where="run_as",
                hint="start the server as root, or give `--run-as tenant`: their jobs then run as their tenant's do",
            )  # fmt: skip

    async def _check_name(self, kind: Kind, name: str) -> None:
        if kind is Kind.GROUP:
            if not await self._accounts.has_group(name):
                raise Invalid(f"this machine has no group {name!r}", where="name", hint="`getent group` lists them")
            return
        found = await self._accounts.named(name)
        if found is None:
            raise Invalid(f"this machine has no user {name!r}", where="name", hint="`getent passwd` lists them")
        if found.uid == 0 and not self._allow_root:
            raise Invalid(
                f"{name} is root, whose jobs are not run", where="name",
                hint="root is an admin anyway; the setting users.allow_root lets it run jobs",
            )  # fmt: skip

    async def remove(self, kind: Kind, name: str, *, actor: str) -> RemovedView:
        """Raises NotFound."""
        from shoal.users.models import RemovedView

        if (kind, name) not in self.rules:
            raise NotFound(f"there is no {kind} {name!r} in the table", where="name", hint="see `shoal users list`")
        now, tenant = self._server.clock.now(), self.rules[kind, name].tenant
        event = NewEvent(now, UserEvent.REMOVED, actor, f"the {kind} {name} belongs to no tenant", tenant=tenant)
        await self._repository.remove(kind, name, event)
        self.rules.pop((kind, name), None)
        revoked = [one for one, user in self.holders.items() if kind is Kind.USER and user.name == name]
        known = {token.id: token for token in self._server.store.tokens()}
        for token_id in revoked:
            if (token := known.get(token_id)) is not None and token.revoked_at is None:
                event = NewEvent(
                    now, EventKind.TOKEN_REVOKED, actor, token.label, tenant=token.tenant, data={"token_id": token_id}
                )
                await self._server.store.revoke_token(token_id, event)
        unfinished = await asyncio.to_thread(self._unfinished, kind, name)
        return RemovedView(kind=kind, name=name, revoked=tuple(revoked), unfinished=unfinished)

    def _unfinished(self, kind: Kind, name: str) -> int:
        """How many jobs of this user are not over. Blocks."""
        store = self._server.store
        if kind is Kind.GROUP:
            return 0
        found = (submitter(store.events(job_id=job.id, limit=1)) for job in store.unfinished_jobs())
        return sum(user is not None and user.name == name for user in found)

    async def account(self, name: str) -> SystemUser:
        """Raises NotFound for one whom the system does not know."""
        found = await self._accounts.named(name)
        if found is None:
            raise NotFound(f"this machine has no user {name!r}", where="name", hint="`getent passwd` lists them")
        return found

    async def told(self, name: str) -> UserView:
        """Who this user is here. Raises NotFound, and Forbidden for one who belongs nowhere."""
        from shoal.users.models import UserView

        account = await self.account(name)
        rule = rule_for(self.rules, account.name, account.group_names)
        run_as = account.name if rule.run_as is RunAs.SELF and rule.role is not Role.VIEWER else None
        by = f"the {rule.kind} {rule.name}"
        return UserView(
            user=account.name, uid=account.uid, tenant=rule.tenant, role=rule.role, run_as=run_as, by=by
        )  # fmt: skip

    async def token(self, name: str, asked: UserTokenGiven, *, actor: str) -> UserTokenView:
        """Raises NotFound, and Forbidden for one who belongs nowhere, or is an admin."""
        from shoal.users.models import UserTokenView

        account = await self.account(name)
        rule = rule_for(self.rules, account.name, account.group_names)
        if rule.tenant is None:
            raise Forbidden(f"{name} is an admin, who has the socket", hint="tokens are for members of a tenant")
        user, secret, now = User(account.name, account.uid), new_token(rule.tenant), self._server.clock.now()
        viewer = asked.role is TokenRole.VIEWER
        label = asked.label or f"of {name}"
        record = TokenRecord(new_token_id(), rule.tenant, token_digest(secret), label, now, read_only=viewer)
        await self._repository.hold(record.id, user)
        self.holders[record.id] = user
        event = NewEvent(now, EventKind.TOKEN_CREATED, actor, label, tenant=rule.tenant, data={"token_id": record.id})
        await self._server.store.put_token(record, event)
        return UserTokenView(
            id=record.id, tenant=rule.tenant, label=label, created_at=now, read_only=viewer, token=secret,
            user=user.name, uid=user.uid,
        )  # fmt: skip
