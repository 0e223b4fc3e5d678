"""The identity behind a request to the server."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, Self

from shoal.contract.events import EventKind
from shoal.core import Forbidden

if TYPE_CHECKING:
    from shoal.contract.records import Event

ADMIN = "admin"
_USER = "user:"


class TokenRole(StrEnum):
    """What the holder of a tenant's token may do: a member all that is the tenant's, a viewer only look."""

    MEMBER = "member"
    VIEWER = "viewer"


@dataclass(frozen=True, slots=True)
class User:
    """A user of the server's machine. The number says who it is, also when the name is given to another one later."""

    name: str
    uid: int

    @property
    def actor(self) -> str:
        """How events name this user: what they did is told from these words alone."""
        return f"{_USER}{self.name}/{self.uid}"

    @classmethod
    def of(cls, actor: str) -> Self | None:
        """The user whom events name so; None for any other actor."""
        name, _, uid = actor.removeprefix(_USER).rpartition("/")
        return cls(name, int(uid)) if actor.startswith(_USER) and name and uid.isdecimal() else None


def submitter(events: Iterable[Event]) -> User | None:
    """The user who submitted a job, by its first events; None for a tenant's token, an admin's, and what the server
    itself made."""
    first = next(iter(events), None)
    return User.of(first.actor) if first is not None and first.kind == EventKind.JOB_SUBMITTED else None


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller. `tenant` None is the admin, who may act for any tenant. One that is `read_only` changes nothing. One
    that is `own_only` opens and changes, of the jobs that users of the tenant submitted, none but those of `user`."""

    tenant: str | None
    token_id: str
    read_only: bool = False
    user: User | None = None
    own_only: bool = False

    @property
    def admin(self) -> bool:
        return self.tenant is None

    @property
    def actor(self) -> str:
        """How events name this principal."""
        if self.user is not None:
            return self.user.actor
        return ADMIN if self.tenant is None else f"tenant:{self.tenant}"

    def may_see(self, tenant: str | None) -> bool:
        return self.tenant is None or self.tenant == tenant

    def may_open(self, submitter: User | None) -> bool:
        """Whether the caller may read and change what this user submitted; None: what no user did, but the tenant."""
        return not self.own_only or submitter is None or submitter == self.user

    def require_method(self, method: str) -> None:
        """Raises Forbidden for a request that may change something, of one who may not."""
        if self.read_only and method not in ("GET", "HEAD", "OPTIONS"):
            raise Forbidden(
                "a viewer changes nothing" if self.user else "this token is a viewer's: it changes nothing",
                hint="ask the admin to be a member" if self.user else "ask the admin for a member's token",
            )

    def require_admin(self, what: str) -> None:
        if not self.admin:
            raise Forbidden(f"only the admin may {what}", hint="use the admin token (HOME/admin.token)")


class Callers(Protocol):
    """Who calls, beside what tokens say by themselves. A question of the server's API; it may be awaited for as long as
    the system looks a user up."""

    async def local(self, uid: int) -> Principal:
        """Who this user of the machine is, of whom the kernel says that they are at the other end of the server's
        local socket. Raises Forbidden for one who may not call."""
        ...

    async def holder(self, principal: Principal) -> Principal:
        """The principal of a token, with the user whom it belongs to, where it does. Raises Forbidden for a token whose
        user may not call any more."""
        ...
