"""The two routes of a sign-in at an identity provider, which a browser is led through."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response
from starlette.responses import RedirectResponse

from shoal.core import NotFound, ShoalError
from shoal.extension.describe import Responses, fails
from shoal.extension.web import NO_NUL
from shoal.web.parts import Parts
from shoal.web.requests import HOSTS_HINT, is_own_host
from shoal.web.sessions import Voucher
from shoal.web.signing import NO_STORE, PAGE_PATH, OfPage, set_cookie, start_session

_CALLBACK = "/v1/web/oidc/callback"
_BACK: Responses = {302: {"description": "leads on"}}
_WAIT_S = 600


def is_own_place(path: str) -> bool:
    """Whether a sign-in may end there: a place of the page, and nothing that a browser takes for another host."""
    return path.startswith(PAGE_PATH) and path.isprintable() and path.isascii() and "\\" not in path


def add_oidc(router: APIRouter) -> None:
    @router.get(
        "/v1/web/oidc/start", summary="Sign in at the identity provider", status_code=302, response_class=Response,
        responses={**_BACK, **fails(404, 422)}, openapi_extra={"security": []},
    )  # fmt: skip
    async def start(
        request: Request, page: OfPage,
        to: Annotated[str, Query(alias="next", max_length=2000, pattern=NO_NUL, description="where it ends")] = "",
        tenant: Annotated[str | None, Query(max_length=63, pattern=NO_NUL, description="act for this tenant")] = None,
    ) -> Response:  # fmt: skip
        """For browsers: leads to the provider, which leads back."""
        if page.oidc is None:
            raise NotFound("this server knows no identity provider", hint="the setting web.oidc.issuer names one")
        if not is_own_host(request.headers.get("host", ""), page.names()):
            raise NotFound("this host name is not the server's own", where="Host", hint=HOSTS_HINT)
        goes_to = to if is_own_place(to) else PAGE_PATH
        try:
            url, browser = await page.oidc.begin(f"{_base(request, page)}{_CALLBACK}", goes_to, tenant)
        except ShoalError as error:
            return _failed(error)
        sent = RedirectResponse(url, 302, NO_STORE)
        # Lax: the provider's page leads back here, and a strict cookie would stay behind.
        sent.set_cookie(
            _cookie(page), browser, _WAIT_S, path=_CALLBACK, secure=_is_secure(request, page), httponly=True,
            samesite="lax",
        )  # fmt: skip
        return sent

    @router.get(
        _CALLBACK, summary="Where the identity provider leads back to", status_code=302, response_class=Response,
        responses={**_BACK, **fails(404)}, openapi_extra={"security": []},
    )  # fmt: skip
    async def callback(request: Request, page: OfPage) -> Response:
        """Signs in, and leads to the page."""
        if page.oidc is None:
            raise NotFound("this server knows no identity provider", hint="the setting web.oidc.issuer names one")
        try:
            who, goes_to = await page.oidc.end(request.query_params, request.cookies.get(_cookie(page), ""))
            if who.principal.tenant is not None and who.principal.tenant not in page.tenants():
                raise NotFound(f"there is no tenant {who.principal.tenant}", where="web.oidc.rights")
        except ShoalError as error:
            failed = _failed(error)
            failed.delete_cookie(_cookie(page), path=_CALLBACK)
            return failed
        secret, _ = await start_session(request, page, who, Voucher.PROVIDER)
        signed_in = RedirectResponse(goes_to, 302, NO_STORE)
        set_cookie(signed_in, page, secret, secure=_is_secure(request, page))
        signed_in.delete_cookie(_cookie(page), path=_CALLBACK)
        return signed_in


def _failed(error: ShoalError) -> Response:
    """The page says it: behind `#`, where no log of a server has it."""
    told = error.what if error.hint is None else f"{error.what}: {error.hint}"
    return RedirectResponse(f"{PAGE_PATH}#error={quote(told, safe='')}", 302, NO_STORE)


def _cookie(page: Parts) -> str:
    return f"{page.cookie}_oidc"


def _base(request: Request, page: Parts) -> str:
    return page.oidc_url or f"http://{request.headers['host']}"


def _is_secure(request: Request, page: Parts) -> bool:
    return _base(request, page).startswith("https://")
