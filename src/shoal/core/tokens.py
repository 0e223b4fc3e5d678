"""Bearer tokens: how one is made, and its digest, which is kept to recognise it later."""

from __future__ import annotations

import hashlib
import secrets


def new_token(whose: str) -> str:
    """A fresh token for a tenant, or for the admin: `shoal_WHOSE_` and 256 random bits."""
    return f"shoal_{whose}_{secrets.token_urlsafe(32)}"


def new_token_id() -> str:
    return f"tok-{secrets.token_hex(6)}"


def token_digest(token: str) -> str:
    """Its SHA-256 in hexadecimal. Tokens have 256 random bits, so a plain hash is enough at rest, and a lookup by hash
    leaks nothing worth timing."""
    return hashlib.sha256(token.encode()).hexdigest()
