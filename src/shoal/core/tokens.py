"""The digest of a bearer token, kept to recognise the token later."""

from __future__ import annotations

import hashlib


def token_digest(token: str) -> str:
    """Its SHA-256 in hexadecimal. Tokens have 256 random bits, so a plain hash is enough at rest, and a lookup by hash
    leaks nothing worth timing."""
    return hashlib.sha256(token.encode()).hexdigest()
