"""As whom a job runs: the user who submitted it, where that user may, and the server can."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from shoal.contract.gangs import RUN, parse_gang_name
from shoal.contract.lifecycle import JobState
from shoal.contract.principal import User
from shoal.core import Forbidden
from shoal.engine import Account, Gang, Refused
from shoal.extension import LiveJob
from shoal.users.accounts import Accounts, SystemUser
from shoal.users.live.settings import UsersManifest
from shoal.users.rules import Role, Rules, RunAs, rule_for

_NOBODY = 65534


class Running:
    """`missing` says why the server starts nothing as other users; None where it does."""

    def __init__(
        self, accounts: Accounts, rules: Callable[[], Rules], submitter: Callable[[str], User | None], *,
        umask: int, allow_root: bool, missing: Callable[[], str | None],
    ) -> None:  # fmt: skip
        self._accounts = accounts
        self._rules = rules
        self._submitter = submitter
        self._umask = umask
        self._allow_root = allow_root
        self._missing = missing

    def prepared(self, live: LiveJob, gang: Gang) -> Gang:
        """The gang with its user. Raises Refused for one who may not have it started, and Unavailable while the system
        is asked who the user is. A user who was removed meanwhile keeps what has begun."""
        asked = _asked(live.manifest.extensions)
        user = self._submitter(live.job.id)
        if user is None:
            if asked != UsersManifest():
                raise self._refused(gang, "only a job that runs as a user of this machine has `directory` or `home`")
            return gang
        begun = live.job.state is not JobState.STARTING
        found = self._accounts.known(user.uid)
        if found is None or found.name != user.name:
            if not begun:
                raise self._refused(gang, f"{user.name}, who submitted it, is no user of this machine any more")
            return self._with(gang, _remembered(user, gang), asked)
        if not self._as_self(found, live.job.tenant, gang, begun=begun):
            if asked != UsersManifest():
                raise self._refused(gang, f"jobs of {user.name} do not run as that user: leave out `directory`, `home`")
            return gang
        if user.uid == 0 and not self._allow_root:
            raise self._refused(gang, "no job runs as root", hint="the setting users.allow_root would let it")
        if (why := self._missing()) is not None:
            raise self._refused(gang, why, hint="an admin can map the user with `--run-as tenant`")
        return self._with(gang, self._account(found), asked)

    def _as_self(self, found: SystemUser, tenant: str, gang: Gang, *, begun: bool) -> bool:
        """Whether the job runs as its user, not as that of its tenant."""
        try:
            rule = rule_for(self._rules(), found.name, found.group_names)
        except Forbidden as problem:
            if begun:
                return self._missing() is None
            raise self._refused(gang, problem.what, hint=problem.hint) from problem
        if not begun and (rule.role is Role.VIEWER or rule.tenant not in (None, tenant)):
            what = f"{found.name}, who submitted it, may submit nothing in tenant {tenant} any more"
            raise self._refused(gang, what, hint="ask the admin: `shoal users show`")
        return rule.run_as is RunAs.SELF

    def _account(self, found: SystemUser) -> Account:
        return Account(found.name, found.uid, found.gid, found.groups, found.home, found.shell, self._umask)

    def _with(self, gang: Gang, account: Account, asked: UsersManifest) -> Gang:
        changed = replace(gang, account=account, home=asked.home)
        if asked.directory is None or not _runs(gang):
            return changed
        directory = Path(asked.directory)
        if directory.parts[0] == "~":
            directory = account.home.joinpath(*directory.parts[1:])
        return replace(changed, directory=directory)

    @staticmethod
    def _refused(gang: Gang, what: str, hint: str | None = None) -> Refused:
        return Refused(what, where=gang.name, hint=hint)


def _runs(gang: Gang) -> bool:
    """What is fetched and stored goes by the run directory."""
    named = parse_gang_name(gang.name)
    return named is None or named.phase == RUN


def _asked(extensions: Mapping[str, Any]) -> UsersManifest:
    return UsersManifest.model_validate(extensions.get("users", {}))


def _remembered(user: User, gang: Gang) -> Account:
    """For what has begun: the user who has the number or the group now has nothing to do with it."""
    return Account(user.name, user.uid, _NOBODY, (), gang.run_dir)
