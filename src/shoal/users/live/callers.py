"""Callers: who is at the other end of the local socket, and whose a token is."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from shoal.contract.principal import Principal, User
from shoal.core import Forbidden
from shoal.users.accounts import Accounts, SystemUser
from shoal.users.rules import Role, Rule, Rules, rule_for

BY_SOCKET = "socket:"
"""How the ids of principals begin who came by the socket."""
_OVERFLOW = Path("/proc/sys/kernel/overflowuid")


def overflow_uid() -> int:
    """The number that the kernel shows for all users of other user namespaces whom this one has no number for."""
    try:
        return int(_OVERFLOW.read_text())
    except (OSError, ValueError):
        return 65534


class Whose:
    """Answers `shoal.contract.principal.Callers`. `rules` and `holders` are as the database has them now."""

    def __init__(
        self, accounts: Accounts, rules: Callable[[], Rules], holders: Callable[[], Mapping[str, User]], *,
        own_uid: int | None = None, overflow: int | None = None,
    ) -> None:  # fmt: skip
        self._accounts = accounts
        self._rules = rules
        self._holders = holders
        self._own_uid = os.geteuid() if own_uid is None else own_uid
        self._overflow = overflow_uid() if overflow is None else overflow

    async def local(self, uid: int) -> Principal:
        """See `Callers.local`."""
        if uid == self._overflow:
            raise Forbidden(
                "you call from another user namespace, such as a container: this machine does not know who you are",
                hint="call from outside of it, or with a token of your own (`shoal users token NAME`)",
            )
        if uid in (0, self._own_uid):
            return Principal(None, f"{BY_SOCKET}{uid}")
        account = await self._accounts.user(uid)
        if account is None:
            raise Forbidden(
                f"the user id {uid} has no name on this machine", hint="ask the admin for a token: `shoal tenant token`"
            )
        return _principal(rule_for(self._rules(), account.name, account.group_names), account, f"{BY_SOCKET}{uid}")

    async def holder(self, principal: Principal) -> Principal:
        """See `Callers.holder`."""
        user = self._holders().get(principal.token_id)
        if user is None:
            return principal
        account = await self._accounts.user(user.uid)
        if account is None or account.name != user.name:
            raise Forbidden(
                f"this token is of {user.name}, who is no user of the server's machine any more",
                hint="ask the admin for another token",
            )
        rule = rule_for(self._rules(), account.name, account.group_names)
        if rule.tenant != principal.tenant:
            raise Forbidden(
                f"this token is of {user.name} in tenant {principal.tenant}, where they are no more",
                hint=f"ask for another one: `shoal users token {user.name}`",
            )
        return _principal(rule, account, principal.token_id, read_only=principal.read_only)


def _principal(rule: Rule, account: SystemUser, token_id: str, *, read_only: bool = False) -> Principal:
    return Principal(
        rule.tenant, token_id, read_only=read_only or rule.role is Role.VIEWER, user=User(account.name, account.uid),
        own_only=rule.role in (Role.VIEWER, Role.MEMBER),
    )  # fmt: skip
