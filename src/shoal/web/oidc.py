"""Sign-in by an OpenID Connect provider: authorization code flow with PKCE, state and nonce.

A sign-in has three steps. The browser is sent to the provider with a state that is bound to it by a cookie. The
provider sends it back with a code. The server exchanges the code for an ID token, whose signature and claims are
checked, and looks up in the table of rights what the person's groups may do. The provider is asked once, at the
sign-in: what it says of a person holds until the session ends.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx
from authlib.common.errors import AuthlibBaseError
from authlib.oauth2.rfc6749.parameters import prepare_grant_uri
from authlib.oauth2.rfc7636 import create_s256_code_challenge
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from shoal.contract.principal import Principal
from shoal.core import Clock, Forbidden, Invalid, Overloaded, Unavailable, token_digest
from shoal.web.rights import Right, right_of
from shoal.web.sessions import Identity

WAIT_S = 600.0
"""How long a reader may take at the provider."""
_MOST_WAITING = 10_000
_METADATA_S = 3600.0
_ASK_S = 10.0
_LEEWAY_S = 60
_SERVER_ERROR = 500
_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"]
"""Signatures of the provider alone: none that the client's secret could make, and not `none`."""


@dataclass(frozen=True, slots=True)
class Client:
    """How the provider knows this server, and what its groups may do here."""

    issuer: str
    client_id: str
    client_secret: str
    scopes: str
    claim: str
    rights: tuple[Right, ...]


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A sign-in that the reader is away for."""

    browser_digest: str
    nonce: str
    verifier: str
    redirect_uri: str
    goes_to: str
    tenant: str | None
    until: float


class Provider:
    """One provider, as this server uses it. `transport` stands for the network, for tests."""

    def __init__(self, client: Client, clock: Clock, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._client = client
        self._clock = clock
        self._transport = transport
        self._waiting: dict[str, _Waiting] = {}
        self._metadata: Mapping[str, Any] = {}
        self._keys: KeySet | None = None
        self._read_at = -_METADATA_S

    async def begin(self, redirect_uri: str, goes_to: str, tenant: str | None) -> tuple[str, str]:
        """Where to send the browser, and the secret that it has to bring back in a cookie. Raises Unavailable where the
        provider does not answer, and Overloaded."""
        now = self._clock.monotonic()
        self._waiting = {state: one for state, one in self._waiting.items() if one.until > now}
        if len(self._waiting) >= _MOST_WAITING:
            raise Overloaded("too many sign-ins are on their way", retry_after_s=60.0)
        metadata = await self._read_metadata()
        state, nonce, verifier, browser = (secrets.token_urlsafe(48) for _ in range(4))
        url = prepare_grant_uri(
            metadata["authorization_endpoint"], self._client.client_id, "code", redirect_uri, self._client.scopes,
            state, nonce=nonce, code_challenge=create_s256_code_challenge(verifier), code_challenge_method="S256",
        )  # fmt: skip
        self._waiting[state] = _Waiting(
            token_digest(browser), nonce, verifier, redirect_uri, goes_to, tenant, now + WAIT_S
        )
        return url, browser

    async def end(self, answered: Mapping[str, str], browser: str) -> tuple[Identity, str]:
        """Whom the provider's answer signs in, and where that reader wants to go. Raises Forbidden, or Unavailable."""
        waiting = self._waiting.pop(answered.get("state", ""), None)
        if waiting is None or waiting.until <= self._clock.monotonic():
            raise Forbidden("this sign-in is over, or was not begun here", hint="begin it again")
        if not browser or token_digest(browser) != waiting.browser_digest:
            raise Forbidden("this sign-in was begun in another browser", hint="begin it again")
        if "error" in answered:
            told = answered.get("error_description") or answered["error"]
            raise Forbidden(f"the identity provider refused: {told[:200]}")
        if answered.get("iss", self._client.issuer) != self._client.issuer:
            raise Forbidden("the answer is that of another identity provider")
        claims = await self._claims(waiting, answered.get("code", ""))
        return self._identity(claims, waiting.tenant), waiting.goes_to

    def _identity(self, claims: Mapping[str, Any], tenant: str | None) -> Identity:
        groups = _texts(claims.get(self._client.claim))
        right = right_of(self._client.rights, groups, tenant)
        name = next((str(claims[one]) for one in ("email", "preferred_username", "name") if claims.get(one)), "")
        if right is None:
            raise Forbidden(
                f"no group of {name or 'this person'} has a right here",
                hint="the admin can give one by the setting web.oidc.rights",
            )
        # One person has one rate limit, in all of their sessions.
        who = token_digest(f"{self._client.issuer} {claims['sub']} {right.tenant} {right.role}")[:12]
        return Identity(Principal(right.tenant, f"oidc-{who}", right.read_only), name[:200])

    # --- asking the provider ---

    async def _claims(self, waiting: _Waiting, code: str) -> Mapping[str, Any]:
        metadata = await self._read_metadata()
        try:
            token = await self._exchange(metadata, waiting, code)
            claims = dict(await self._check(token, waiting.nonce))
            if self._client.claim not in claims and is_endpoint(metadata.get("userinfo_endpoint")):
                bearer = {"Authorization": f"Bearer {token.get('access_token', '')}"}
                more = await self._read(metadata["userinfo_endpoint"], bearer)
                if more.get("sub") == claims["sub"]:
                    claims = {**more, **claims}
        except (AuthlibBaseError, JoseError, ValueError) as error:
            raise Forbidden(f"the identity provider's answer does not hold: {_short(error)}") from error
        return claims

    async def _exchange(self, metadata: Mapping[str, Any], waiting: _Waiting, code: str) -> Mapping[str, Any]:
        """The tokens for a code. Raises ValueError where the provider gives none for it."""
        one = self._client
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": waiting.redirect_uri,
                "code_verifier": waiting.verifier}  # fmt: skip
        basic = "client_secret_basic" in metadata.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        auth = httpx.BasicAuth(one.client_id, one.client_secret) if one.client_secret and basic else None
        if auth is None:
            form |= {"client_id": one.client_id, **({"client_secret": one.client_secret} if one.client_secret else {})}
        try:
            async with self._http() as http:
                answered = await http.post(metadata["token_endpoint"], data=form, auth=auth or httpx.USE_CLIENT_DEFAULT)
        except httpx.HTTPError as error:
            raise Unavailable(f"the identity provider does not answer: {_short(error)}") from error
        if answered.status_code >= _SERVER_ERROR:
            raise Unavailable(f"the identity provider answers with {answered.status_code}")
        found = answered.json()
        if answered.is_error or not isinstance(found, dict):
            told = found.get("error") if isinstance(found, dict) else None
            raise ValueError(str(told or f"it answers with {answered.status_code}"))
        return found

    async def _check(self, token: Mapping[str, Any], nonce: str) -> CodeIDToken:
        """The claims of the ID token. Raises JoseError, AuthlibBaseError or ValueError where they do not hold."""
        if not isinstance(text := token.get("id_token"), str):
            raise ValueError("it has no ID token")
        try:
            found = jwt.decode(text, await self._read_keys(), algorithms=_ALGORITHMS)
        except (JoseError, ValueError):
            self._keys = None  # it may have new ones
            found = jwt.decode(text, await self._read_keys(), algorithms=_ALGORITHMS)
        ours = {"iss": {"essential": True, "value": self._client.issuer},
                "aud": {"essential": True, "value": self._client.client_id}}  # fmt: skip
        given = {"nonce": nonce, "client_id": self._client.client_id, "access_token": token.get("access_token")}
        claims = CodeIDToken(found.claims, found.header, ours, given)
        # Of the clock on the wall, by which the provider's times are meant.
        claims.validate(now=int(time.time()), leeway=_LEEWAY_S)
        return claims

    async def _read_metadata(self) -> Mapping[str, Any]:
        now = self._clock.monotonic()
        if now - self._read_at >= _METADATA_S:
            found = await self._read(f"{self._client.issuer.rstrip('/')}/.well-known/openid-configuration")
            if found.get("issuer") != self._client.issuer:
                raise Unavailable(
                    f"the identity provider calls itself {found.get('issuer')!r}, the setting {self._client.issuer!r}",
                    where="web.oidc.issuer",
                )  # fmt: skip
            for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
                if not is_endpoint(found.get(name)):
                    raise Unavailable(f"the identity provider tells no {name}", where=self._client.issuer)
            self._metadata, self._read_at, self._keys = found, now, None
        return self._metadata

    async def _read_keys(self) -> KeySet:
        if self._keys is None:
            self._keys = KeySet.import_key_set(await self._read(self._metadata["jwks_uri"]))  # type: ignore[arg-type]
        return self._keys

    async def _read(self, url: str, headers: Mapping[str, str] | None = None) -> Mapping[str, Any]:
        try:
            async with self._http() as http:
                found = (await http.get(url, headers=headers)).raise_for_status().json()
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise Unavailable(f"the identity provider does not answer: {_short(error)}", where=url) from error
        if not isinstance(found, dict):
            raise Unavailable("the identity provider answers no JSON object", where=url)
        return found

    def _http(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(timeout=_ASK_S, transport=self._transport, headers={"Accept": "application/json"})


def is_endpoint(url: object) -> bool:
    """Whether an address is that of TLS, or of this machine."""
    if not isinstance(url, str):
        return False
    found = urlsplit(url)
    own = found.hostname in ("localhost", "127.0.0.1", "::1")
    return bool(found.hostname) and (found.scheme == "https" or (found.scheme == "http" and own))


def check_client(client: Client) -> None:
    """Raises Invalid for settings that cannot work."""
    if not is_endpoint(client.issuer):
        raise Invalid(
            f"{client.issuer!r} is no address of an identity provider", where="web.oidc.issuer",
            hint="such as https://login.example.org/realms/team; http only on this machine",
        )  # fmt: skip
    if not client.client_id:
        raise Invalid("the identity provider knows this server by an id", where="web.oidc.client_id")
    if not client.rights:
        raise Invalid("no group has a right here", where="web.oidc.rights", hint="such as ml-team=red:member,ops=admin")
    if "openid" not in client.scopes.split():
        raise Invalid("the scopes of OpenID Connect include `openid`", where="web.oidc.scopes")


def _texts(value: object) -> Sequence[str]:
    """A claim may be one text, texts with spaces between, or a list of them."""
    if isinstance(value, str):
        return [value, *value.split()]
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _short(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:200]
