"""The identity behind a request to the server."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from shoal.core import Forbidden

ADMIN = "admin"


class TokenRole(StrEnum):
    """What the holder of a tenant's token may do: a member all that is the tenant's, a viewer only look."""

    MEMBER = "member"
    VIEWER = "viewer"


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller. `tenant` None is the admin, who may act for any tenant. One that is `read_only` changes nothing."""

    tenant: str | None
    token_id: str
    read_only: bool = False

    @property
    def admin(self) -> bool:
        return self.tenant is None

    @property
    def actor(self) -> str:
        """How events name this principal."""
        return ADMIN if self.tenant is None else f"tenant:{self.tenant}"

    def may_see(self, tenant: str | None) -> bool:
        return self.tenant is None or self.tenant == tenant

    def require_method(self, method: str) -> None:
        """Raises Forbidden for a request that may change something, of one who may not."""
        if self.read_only and method not in ("GET", "HEAD", "OPTIONS"):
            raise Forbidden("this token is a viewer's: it changes nothing", hint="ask the admin for a member's token")

    def require_admin(self, what: str) -> None:
        if not self.admin:
            raise Forbidden(f"only the admin may {what}", hint="use the admin token (HOME/admin.token)")
