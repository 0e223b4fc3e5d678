"""Bearer tokens: `shoal_<tenant>_<43 characters>`, 256 random bits, of which only the SHA-256 is kept."""

from __future__ import annotations

from collections.abc import Iterable

from shoal.contract.principal import ADMIN, Principal
from shoal.contract.records import TokenRecord
from shoal.core import ShoalError, token_digest
from shoal.core import new_token as fresh_token
from shoal.core import new_token_id as new_token_id


class Unauthenticated(ShoalError):
    """No token, or an unknown one."""

    code = "unauthenticated"


def new_token(tenant: str | None) -> str:
    """A fresh token for a tenant, or for the admin (None)."""
    return fresh_token(tenant or ADMIN)


class TokenCache:
    """The principals of all valid tokens by hash; `replace` after every change of the token table."""

    def __init__(self, records: Iterable[TokenRecord] = ()) -> None:
        self._principals: dict[str, Principal] = {}
        self.replace(records)

    def replace(self, records: Iterable[TokenRecord]) -> None:
        self._principals = {
            record.token_sha256: Principal(record.tenant, record.id, record.read_only)
            for record in records
            if record.revoked_at is None
        }

    def principal(self, authorization: str | None) -> Principal:
        """The sender of this `Authorization` header. Raises Unauthenticated."""
        if not authorization:
            raise Unauthenticated(
                "this needs a token", hint="send the header 'Authorization: Bearer TOKEN', or set SHOAL_TOKEN"
            )
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Unauthenticated(
                "the Authorization header is not a bearer token", hint="send 'Authorization: Bearer TOKEN'"
            )
        principal = self._principals.get(token_digest(token.strip()))
        if principal is None:
            raise Unauthenticated(
                "this token is not known here, or was revoked", hint="ask the admin: `shoal tenant token TENANT`"
            )
        return principal
