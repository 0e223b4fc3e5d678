"""Rules for the tenant and role of a machine's user: a pure decision over the table and the user's groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from shoal.core import Forbidden


class Kind(StrEnum):
    """What a rule is about."""

    USER = "user"
    GROUP = "group"


class Role(StrEnum):
    """What a user may do, from the least: look at what is the tenant's; submit, and change and open what is their own;
    do so with all of the tenant's jobs; all that the admin may."""

    VIEWER = "viewer"
    MEMBER = "member"
    LEAD = "lead"
    ADMIN = "admin"


class RunAs(StrEnum):
    """As whom the jobs run: the user who submitted them, or the user that belongs to the tenant, as by its tokens."""

    SELF = "self"
    TENANT = "tenant"


@dataclass(frozen=True, slots=True)
class Rule:
    """A row of the table. Only an admin has no tenant."""

    kind: Kind
    name: str
    tenant: str | None
    role: Role
    run_as: RunAs
    created_at: float

    @property
    def key(self) -> tuple[Kind, str]:
        return self.kind, self.name


Rules = Mapping[tuple[Kind, str], Rule]

_RANK = {role: n for n, role in enumerate(Role)}


def rule_for(rules: Rules, user: str, groups: Iterable[str]) -> Rule:
    """The user's own rule; else that of their groups with the highest role. Raises Forbidden for a user without one,
    and where groups belong to several tenants, of which none is the user's any more than another."""
    own = rules.get((Kind.USER, user))
    if own is not None:
        return own
    found = [rule for group in sorted(set(groups)) if (rule := rules.get((Kind.GROUP, group))) is not None]
    if not found:
        raise Forbidden(
            f"the user {user} of this machine belongs to no tenant here",
            hint=f"ask the admin for `shoal users add {user} --tenant TENANT`, or for a token",
        )
    if len({rule.tenant for rule in found}) > 1:
        told = ", ".join(f"{rule.name} ({rule.tenant or 'admin'})" for rule in found)
        raise Forbidden(
            f"the user {user} is in groups of several tenants: {told}",
            hint=f"ask the admin to say which: `shoal users add {user} --tenant TENANT`",
        )
    return max(found, key=lambda rule: (_RANK[rule.role], rule.run_as is RunAs.SELF))
