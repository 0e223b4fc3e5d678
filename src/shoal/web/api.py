"""The routes of the page: its files, signing in and out, and its stream."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response
from starlette.responses import RedirectResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from shoal.core import Forbidden, NotFound
from shoal.extension.describe import fails, shows
from shoal.extension.routing import Router
from shoal.extension.web import NEWEST, FromApi, TenantQuery, Who, answer, extension_of, filter_of
from shoal.web import site
from shoal.web.models import ChangesView, LinkView, SharesView, SignedInView, SignIn
from shoal.web.oidc_api import add_oidc
from shoal.web.parts import Parts
from shoal.web.requests import HOSTS_HINT, is_own_host, is_own_page, is_secure
from shoal.web.sessions import Voucher
from shoal.web.signing import NO_STORE, PAGE_PATH, OfPage, set_cookie, start_session, view
from shoal.web.stream import Hub


def router_of() -> APIRouter:
    router = Router(tags=["web"])
    _add_files(router)
    _add_sessions(router)
    add_oidc(router)
    _add_stream(router)
    _add_shares(router)
    return router


# --- the files ---


def _add_files(router: APIRouter) -> None:
    reads = {"methods": ["GET", "HEAD"], "include_in_schema": False, "response_class": Response}

    async def root(request: Request) -> Response:
        if "text/html" not in request.headers.get("accept", ""):
            raise NotFound("there is nothing at /", hint="see /openapi.json, or /ui/ in a browser")
        return RedirectResponse(PAGE_PATH, 307)

    async def bare() -> Response:
        return RedirectResponse(PAGE_PATH, 308)

    async def file(request: Request, path: str) -> Response:
        page = extension_of(request, Parts)  # type: ignore[type-var]
        if not is_own_host(request.headers.get("host", ""), page.names()):
            text = "this host name is not the server's own; the setting web.hosts can name it\n"
            return Response(text, 421, site.HEADERS, "text/plain")
        if not page.site.built:
            return site.not_built()
        return site.answer(await asyncio.to_thread(page.site.find, path), request.headers)

    router.add_api_route("/", root, **reads)  # type: ignore[arg-type]
    router.add_api_route("/ui", bare, **reads)  # type: ignore[arg-type]
    router.add_api_route("/ui/{path:path}", file, **reads)  # type: ignore[arg-type]


# --- signing in and out ---


def _add_sessions(router: APIRouter) -> None:
    @router.post(
        "/v1/web/session", summary="Sign in to the web page", response_class=Response,
        responses={**shows(SignedInView), **fails(403, 422, 503)}, openapi_extra={"security": []},
    )  # fmt: skip
    async def sign_in(request: Request, page: OfPage, body: SignIn) -> Response:
        """With a token, or with the code of a one-time link. The answer sets a cookie, which stands for the token in
        requests of the page."""
        _check_page(request, page)
        if (body.token is None) == (body.code is None):
            raise Forbidden("a sign-in needs a token, or the code of a link")
        who = page.codes.use(body.code) if body.code is not None else page.tokens.find(body.token or "")
        if who is None:
            raise Forbidden(
                "this token is not known here, or was revoked", where="token",
                hint="ask the admin: `shoal tenant token TENANT`",
            )  # fmt: skip
        secret, made = await start_session(request, page, who, Voucher.HOLDER)
        signed_in = answer(view(page, made).model_dump(), headers=NO_STORE)
        set_cookie(signed_in, page, secret, secure=is_secure(request.headers))
        return signed_in

    @router.get(
        "/v1/web/session", summary="Who is signed in to the web page", response_class=Response,
        responses={**shows(SignedInView), **fails(403, 503)}, openapi_extra={"security": []},
    )  # fmt: skip
    async def session(request: Request, page: OfPage) -> Response:
        """Answers also where nobody is."""
        return answer(view(page, page.session(request)).model_dump(), headers=NO_STORE)

    @router.delete(
        "/v1/web/session", status_code=204, summary="Sign out of the web page", response_class=Response,
        responses=fails(403, 503), openapi_extra={"security": []},
    )  # fmt: skip
    async def sign_out(request: Request, page: OfPage) -> Response:
        """The cookie is good for nothing after that."""
        if (found := page.session(request)) is not None:
            await page.sessions.end(found)
        gone = Response(None, 204, NO_STORE)
        gone.delete_cookie(page.cookie, path="/", httponly=True, samesite="strict")
        return gone

    @router.post(
        "/v1/web/link", summary="Make a link that signs in to the web page once", response_class=Response,
        responses={**shows(LinkView), **fails(403, 503)},
    )  # fmt: skip
    async def link(request: Request, page: OfPage) -> Response:
        """Good for one minute, with the rights of the token that asks. Needs that token itself, not a sign-in."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        who = page.tokens.find(token) if scheme.lower() == "bearer" else None
        if who is None:
            raise Forbidden("a link is made for a token, and this request has none that is known here")
        code, until = page.codes.make(who)
        return answer(LinkView(code=code, path=f"{PAGE_PATH}#code={code}", expires_at=until).model_dump(),
                      headers=NO_STORE)  # fmt: skip


def _check_page(request: Request, page: Parts) -> None:
    """A foreign page must not sign its visitor in, as somebody of its choice. Raises Forbidden."""
    headers, names = request.headers, page.names()
    foreign = "origin" in headers or "sec-fetch-site" in headers
    if foreign and not (is_own_host(headers.get("host", ""), names) and is_own_page("POST", headers, names)):
        raise Forbidden("a sign-in comes from the server's own page", where="Origin", hint=HOSTS_HINT)
    if not headers.get("content-type", "").lower().startswith("application/json"):
        raise Forbidden("a sign-in is JSON", hint="send Content-Type: application/json")


# --- fairness over time ---


def _add_shares(router: APIRouter) -> None:
    @router.get(
        "/v1/web/shares", summary="What tenants were due and received of the accelerators, over time",
        response_class=Response, responses={**shows(SharesView), **fails(404, 422, 503)},
    )  # fmt: skip
    async def shares(page: OfPage, who: Who, tenant: TenantQuery = None) -> Response:
        """Of one tenant; an admin who names none sees those with the greatest shares."""
        return answer(SharesView(tenants=page.shares.samples(filter_of(who, tenant))).model_dump())


# --- the stream ---


def _add_stream(router: APIRouter) -> None:
    shape = shows(ChangesView, text="server-sent events; `data` of `changes` is a ChangesView")
    shape[200]["content"] = {"text/event-stream": {"schema": shape[200]["content"]["application/json"]["schema"]}}

    @router.get(
        "/v1/web/stream", summary="What happens, for an open page", response_class=Response,
        responses={**shape, **fails(404, 422, 503)},
    )  # fmt: skip
    async def stream(
        request: Request, page: OfPage, who: Who, api: FromApi, tenant: TenantQuery = None,
        after: Annotated[int | None, Query(ge=0, le=NEWEST, description="the last event that the page knows")] = None,
        last_event_id: Annotated[str | None, Header(description="where a broken stream goes on")] = None,
    ) -> Response:  # fmt: skip
        """Server-sent events: `hello` with the present position, `changes` with a batch of committed events, `reset`
        where the page has to load everything anew, `bye` when the sign-in is over."""
        if last_event_id is not None and last_event_id.isdecimal():
            after = min(int(last_event_id[:20]), NEWEST)
        found = page.session(request) if "authorization" not in request.headers else None
        page.end_streams_with(api)
        shown = filter_of(who, tenant)
        return _TabStream(page.hub, shown, who.token_id, None if found is None else found.digest, after)


class _TabStream(StreamingResponse):
    """An open page, which is counted as long as its stream is sent."""

    def __init__(self, hub: Hub, tenant: str | None, token_id: str, session: str | None, after: int | None) -> None:
        headers = {**NO_STORE, "X-Accel-Buffering": "no"}
        super().__init__((), media_type="text/event-stream", headers=headers)
        self._hub = hub
        self._asked = tenant, token_id, session, after

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        tab = self._hub.open(*self._asked)
        try:
            self.body_iterator = tab.read()
            await super().__call__(scope, receive, send)
        finally:
            self._hub.leave(tab)
