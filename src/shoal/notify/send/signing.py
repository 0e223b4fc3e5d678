"""Signatures of webhooks, as standardwebhooks.com has them: any of its libraries checks them."""

from __future__ import annotations

import base64
import hashlib
import hmac

_PREFIX = "whsec_"


def secret_of(derived: str) -> str:
    """As a receiver is given it, of a derived secret in hexadecimal digits."""
    return _PREFIX + base64.b64encode(bytes.fromhex(derived)).decode()


def headers(secret: str, key: str, at: float, body: bytes) -> dict[str, str]:
    """`webhook-signature` covers the key, the time and the body."""
    stamp = str(int(at))
    signed = f"{key}.{stamp}.".encode() + body
    digest = hmac.new(base64.b64decode(secret.removeprefix(_PREFIX)), signed, hashlib.sha256).digest()
    return {
        "webhook-id": key,
        "webhook-timestamp": stamp,
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
        "idempotency-key": key,
    }
