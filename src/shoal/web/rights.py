"""Rights of the groups of an identity provider: a table, whose first row that fits decides."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from shoal.contract.manifest.values import NAME
from shoal.contract.principal import ADMIN, TokenRole


@dataclass(frozen=True, slots=True)
class Right:
    """People of a group act for a tenant, or as an admin (None)."""

    group: str
    tenant: str | None
    role: TokenRole = TokenRole.MEMBER

    @property
    def read_only(self) -> bool:
        return self.tenant is not None and self.role is TokenRole.VIEWER

    def __str__(self) -> str:
        return f"{self.group}={ADMIN if self.tenant is None else f'{self.tenant}:{self.role}'}"


def right_of(rights: Sequence[Right], groups: Collection[str], tenant: str | None = None) -> Right | None:
    """The first row of one of these groups; with `tenant`, of those for it."""
    return next((one for one in rights if one.group in groups and (tenant is None or one.tenant == tenant)), None)


def read_rights(value: object) -> tuple[Right, ...]:
    """`GROUP=TENANT:ROLE` with commas between, or a mapping. Raises ValueError."""
    if isinstance(value, str):
        pairs = [one.rpartition("=")[::2] for one in value.split(",") if one.strip()]
    elif isinstance(value, Mapping):
        pairs = [(str(group), str(right)) for group, right in value.items()]
    elif isinstance(value, tuple | list) and all(isinstance(one, Right) for one in value):
        return tuple(value)
    else:
        raise ValueError("must be like ml-team=red:member,ops=admin")
    return tuple(_read(group.strip(), right.strip()) for group, right in pairs)


def write_rights(rights: Sequence[Right]) -> str:
    return ",".join(str(one) for one in rights)


def _read(group: str, right: str) -> Right:
    if not group:
        raise ValueError(f"{right!r} is the right of no group: it must be like ml-team=red:member or ops=admin")
    if right == ADMIN:
        return Right(group, None)
    tenant, colon, role = right.partition(":")
    roles = [one.value for one in TokenRole]
    if not re.fullmatch(NAME, tenant) or (colon and role not in roles):
        raise ValueError(f"{right!r} must be {ADMIN}, TENANT or TENANT:ROLE, with a role of {' or '.join(roles)}")
    return Right(group, tenant, TokenRole(role) if colon else TokenRole.MEMBER)
