"""The web page as an extension of the server: it signs people in, serves the built files, and keeps open pages live."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from shoal import __version__
from shoal.base.extras import install
from shoal.base.history import EVERY_S
from shoal.base.home import Home, read_server
from shoal.base.loops import BackgroundLoop, RunningLoop
from shoal.contract.principal import Principal
from shoal.contract.records import Event
from shoal.core import Capability, Clock, Invalid
from shoal.extension import Extension, Section, Server
from shoal.extension.asking import Api, Credentials
from shoal.extension.history import WRITE_EVERY_S
from shoal.extension.metrics import gauge
from shoal.store import Tables
from shoal.web import site
from shoal.web.figures import server_metrics
from shoal.web.parts import Parts
from shoal.web.requests import host_name, refuse
from shoal.web.sessions import Codes, Identity, KnownTokens, Session, Sessions, Voucher
from shoal.web.settings import OidcSettings, WebSection
from shoal.web.shares import ShareHistory, shares_of
from shoal.web.stream import Hub
from shoal.web.tables import TABLES

if TYPE_CHECKING:
    from fastapi import APIRouter, Request
    from prometheus_client.core import Metric

    from shoal.web.oidc import Provider

_BEAT_EVERY_S = 15.0


class Web(Extension, Parts):
    """A request without `Authorization` that carries a session's cookie has the rights of the token behind it."""

    name: ClassVar[str] = "web"
    paths: ClassVar[Sequence[str]] = ("/v1/web", "/ui")
    not_in_planes: ClassVar[str] = "the page shows one server"
    settings: ClassVar[type[Section]] = WebSection
    tables: ClassVar[Tables | None] = TABLES

    def __init__(self, server: Server, settings: WebSection) -> None:
        self._server = server
        self._settings = settings
        # Browsers send cookies of a host to all of its ports: several servers on one machine must not share a name.
        own = hashlib.sha256(server.derive_secret("web-cookie").encode()).hexdigest()[:8]
        self.cookie = f"shoal_session_{own}"
        self.lifetime_s = settings.lifetime
        self.site = site.Site()
        self.tokens = KnownTokens()
        self.codes = Codes(server.clock)
        self.shares = ShareHistory(server.store)
        self.hub = Hub(server.clock.now, __version__, most_of_one=settings.streams)
        self.sessions = Sessions(
            server.store, server.clock, lifetime_s=settings.lifetime, idle_s=settings.idle, ended=self._ended
        )
        self.oidc = _provider(settings.oidc, server.clock) if settings.oidc.issuer else None
        self.oidc_url = settings.oidc.url.rstrip("/")
        self._names = settings.names
        self._bound: str | None = None
        self._leaving: asyncio.Task[None] | None = None

    @classmethod
    def off(cls) -> Sequence[Capability]:
        return (Capability("web", False, "off: `shoal up --set web.enabled=on`", "no web page at /ui/"),)

    @classmethod
    def probe(cls, home: Path) -> Sequence[Capability]:
        del home
        return (_page_capability(site.Site().built),)

    async def open(self) -> None:
        self.sessions.load()
        self.shares.load()
        self._reload_tokens()
        self.hub.begin(self._server.store.last_seq())
        self.is_open = True

    async def close(self) -> None:
        if self._leaving is not None:
            self._leaving.cancel()
        self.hub.close()
        await self.sessions.write()
        await self.shares.close()

    def loops(self) -> Sequence[BackgroundLoop]:
        return (
            RunningLoop("sessions", self._write), RunningLoop("stream", self._beat),
            RunningLoop("shares", self._share),
        )  # fmt: skip

    async def _write(self) -> None:
        while True:
            await asyncio.sleep(WRITE_EVERY_S)
            await self.sessions.write()
            await self.shares.write()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(_BEAT_EVERY_S)
            self.hub.end(lambda tab: tab.session is not None and not self.sessions.is_live(tab.session), "expired")
            self.hub.beat()

    async def _share(self) -> None:
        while True:
            self.shares.sample(self._server.clock.now(), shares_of(self._server.snapshot()))
            await asyncio.sleep(EVERY_S)

    # --- sense ---

    def committed(self, events: Iterable[Event]) -> None:
        events = tuple(events)
        self.hub.add(events)
        if any(event.kind.startswith(("token.", "tenant.")) for event in events):
            self._reload_tokens()

    def _reload_tokens(self) -> None:
        self.tokens.replace(
            (one.token_sha256, Identity(Principal(one.tenant, one.id, one.read_only), one.label))
            for one in self._server.store.tokens() if one.revoked_at is None
        )  # fmt: skip
        self.codes.keep(self.tokens.has)
        self.sessions.keep(self._valid)
        self.hub.end(lambda tab: tab.session is None and not self.tokens.has_id(tab.token_id), "revoked")

    def _valid(self, one: Session) -> bool:
        if one.by is Voucher.HOLDER:
            return self.tokens.has(one.principal)
        return one.tenant is None or one.tenant in self._server.tenants()

    def _ended(self, one: Session, why: str) -> None:
        self.hub.end(lambda tab: tab.session == one.digest, why)

    # --- who asks ---

    def answers(self) -> Mapping[type, object]:
        return {Credentials: self}

    def principal(self, request: Request) -> Principal | None:
        """See `Credentials`."""
        found = self.session(request)
        return None if found is None else found.principal

    def session(self, request: Request) -> Session | None:
        secret = request.cookies.get(self.cookie)
        if not secret or not self.is_open:
            return None
        found = self.sessions.find(secret)
        if found is not None:
            refuse(request.method, request.headers, self.names())
        return found

    def names(self) -> frozenset[str]:
        if self._bound is None and (info := read_server(Home(self._server.home))) is not None:
            self._bound = host_name(info.url.partition("://")[2])
        return self._names | {self._bound} if self._bound else self._names

    def tenants(self) -> Collection[str]:
        return self._server.tenants()

    def end_streams_with(self, api: Api) -> None:
        async def wait() -> None:
            await api.leaving()
            self.hub.close()

        if self._leaving is None:
            self._leaving = asyncio.create_task(wait(), name="shoal.web.leaving")

    # --- shown ---

    def capabilities(self) -> Sequence[Capability]:
        return (_page_capability(self.site.built),)

    def metrics(self) -> Iterable[Metric]:
        yield from server_metrics(self._server.snapshot(), self._server.home)
        yield gauge("shoal_web_sessions", "Sign-ins to the web page.", (), {(): len(self.sessions)})
        yield gauge("shoal_web_streams", "Open pages that are kept live.", (), {(): len(self.hub)})

    def routers(self) -> Sequence[APIRouter]:
        from shoal.web.api import router_of

        return (router_of(),)


def _provider(settings: OidcSettings, clock: Clock) -> Provider:
    """Raises Invalid for settings that cannot work, and where the library is missing."""
    try:
        from shoal.web.oidc import Client, Provider, check_client
    except ImportError as error:
        raise Invalid(
            f"sign-in by OpenID Connect needs a package: {error}", where="web.oidc", hint=install("oidc")
        ) from error
    secret = ""
    if settings.client_secret_file:
        try:
            secret = Path(settings.client_secret_file).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise Invalid(f"the secret cannot be read: {error}", where="web.oidc.client_secret_file") from error
    client = Client(
        settings.issuer, settings.client_id, secret, settings.scopes, settings.claim, settings.rights
    )  # fmt: skip
    check_client(client)
    return Provider(client, clock)


def _page_capability(built: bool) -> Capability:
    if built:
        return Capability("web page", True, "at /ui/", "")
    return Capability("web page", False, "it is not built: `.ci/web` builds it, with Node.js", "no page at /ui/")
