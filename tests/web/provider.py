"""A small identity provider, for tests: it keeps to OpenID Connect, checks PKCE, and lies where it is told to."""

from __future__ import annotations

import base64
import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlencode

from joserfc import jwt
from joserfc.jwk import RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

ISSUER = "https://login.example.org"
CLIENT, SECRET = "shoal", "the client's secret: with a colon"


@dataclass
class SmallProvider:
    claims: dict[str, Any] = field(default_factory=dict)
    """What it says of the person who signs in."""
    told_later: dict[str, Any] = field(default_factory=dict)
    """What only its userinfo says."""
    spoil: Callable[[dict[str, Any], dict[str, Any]], None] = lambda header, claims: None
    """Changes an ID token before it is signed."""
    sign: Callable[[dict[str, Any], dict[str, Any]], str] | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    broken: bool = False
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.key = RSAKey.generate_key(2048, {"kid": "k1", "use": "sig", "alg": "RS256"})
        self._codes: dict[str, dict[str, str]] = {}
        self.app = Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self._configuration),
                Route("/keys", self._keys),
                Route("/token", self._token, methods=["POST"]),
                Route("/userinfo", self._userinfo),
            ]
        )

    def authorize(self, asked: dict[str, str], **more: str) -> str:
        """The person agrees: the address to which their browser is sent."""
        assert asked["client_id"] == CLIENT
        assert asked["response_type"] == "code"
        assert asked["code_challenge_method"] == "S256"
        assert "openid" in asked["scope"].split()
        code = secrets.token_urlsafe(16)
        self._codes[code] = asked
        return f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state'], 'iss': ISSUER, **more})}"

    async def _configuration(self, _: Request) -> Response:
        self.asked.append("configuration")
        if self.broken:
            return Response("<html>", 200)
        return JSONResponse({
            "issuer": ISSUER, "authorization_endpoint": f"{ISSUER}/authorize", "token_endpoint": f"{ISSUER}/token",
            "jwks_uri": f"{ISSUER}/keys", "userinfo_endpoint": f"{ISSUER}/userinfo", **self.metadata,
        })  # fmt: skip

    async def _keys(self, _: Request) -> Response:
        self.asked.append("keys")
        return JSONResponse({"keys": [self.key.as_dict(private=False)]})

    async def _token(self, request: Request) -> Response:
        form = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        given = base64.b64decode(request.headers["authorization"].removeprefix("Basic ")).decode()
        asked = self._codes.pop(form.get("code", ""), None)
        proof = base64.urlsafe_b64encode(hashlib.sha256(form.get("code_verifier", "").encode()).digest()).decode()
        if given != f"{CLIENT}:{SECRET}":
            return JSONResponse({"error": "invalid_client"}, 401)
        if (
            asked is None
            or proof.rstrip("=") != asked["code_challenge"]
            or form["redirect_uri"] != asked["redirect_uri"]
        ):
            return JSONResponse({"error": "invalid_grant"}, 400)
        now = int(time.time())
        header: dict[str, Any] = {"alg": "RS256", "kid": self.key.kid}
        claims = {
            "iss": ISSUER,
            "sub": "u1",
            "aud": CLIENT,
            "iat": now,
            "exp": now + 300,
            "nonce": asked["nonce"],
            **self.claims,
        }
        self.spoil(header, claims)
        signed = (
            self.sign(header, claims) if self.sign else jwt.encode(header, claims, self.key, algorithms=[header["alg"]])
        )
        return JSONResponse({"access_token": "a", "token_type": "Bearer", "expires_in": 300, "id_token": signed})

    async def _userinfo(self, request: Request) -> Response:
        assert request.headers["authorization"] == "Bearer a"
        return JSONResponse({"sub": "u1", **self.told_later})


def follow(url: str) -> dict[str, str]:
    """What a browser that is sent there brings along."""
    return {name: values[0] for name, values in parse_qs(url.partition("?")[2]).items()}
