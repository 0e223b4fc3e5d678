"""Shared parts of the ways to sign in: the answer that gives a browser its session, and what the page is told of it."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request, Response

from shoal.contract.principal import ADMIN, Principal, TokenRole
from shoal.core import Unavailable
from shoal.extension.web import extension_of
from shoal.web.models import SignedInView
from shoal.web.parts import Parts
from shoal.web.sessions import Identity, Session, Voucher

PAGE_PATH = "/ui/"
NO_STORE = {"Cache-Control": "no-store"}


async def get_parts(request: Request) -> Parts:
    found = extension_of(request, Parts)  # type: ignore[type-var]
    if not found.is_open:
        raise Unavailable("the web page is not open yet")
    return found


OfPage = Annotated[Parts, Depends(get_parts)]


async def start_session(request: Request, page: Parts, who: Identity, by: Voucher) -> tuple[str, Session]:
    """A new session in place of the one that the browser had; the first value is for its cookie."""
    if (old := page.sessions.find(request.cookies.get(page.cookie, ""))) is not None:
        await page.sessions.end(old)
    return await page.sessions.start(who.principal, who.name, by)


def set_cookie(response: Response, page: Parts, secret: str, *, secure: bool) -> None:
    age = int(page.lifetime_s)
    response.set_cookie(page.cookie, secret, age, path="/", secure=secure, httponly=True, samesite="strict")


def view(page: Parts, found: Session | None) -> SignedInView:
    offered = page.oidc is not None
    if found is None:
        return SignedInView(signed_in=False, oidc=offered)
    return SignedInView(
        signed_in=True, tenant=found.tenant, role=role_of(found.principal), name=found.name,
        expires_at=found.expires_at, oidc=offered,
    )  # fmt: skip


def role_of(who: Principal) -> str:
    if who.admin:
        return ADMIN
    return TokenRole.VIEWER if who.read_only else TokenRole.MEMBER
