"""The identity behind a request to the server."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.core import Forbidden

ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller. `tenant` None is the admin, who may act for any tenant."""

    tenant: str | None
    token_id: str

    @property
    def admin(self) -> bool:
        return self.tenant is None

    @property
    def actor(self) -> str:
        """How events name this principal."""
        return ADMIN if self.tenant is None else f"tenant:{self.tenant}"

    def may_see(self, tenant: str | None) -> bool:
        return self.tenant is None or self.tenant == tenant

    def require_admin(self, what: str) -> None:
        if not self.admin:
            raise Forbidden(f"only the admin may {what}", hint="use the admin token (HOME/admin.token)")
