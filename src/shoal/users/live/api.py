"""Users in the API. The admin says who belongs where; everyone sees who they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Depends, Path, Request, Response

from shoal.contract.principal import Principal
from shoal.contract.view import View
from shoal.core import Forbidden
from shoal.extension.describe import fails, shows
from shoal.extension.routing import Router
from shoal.extension.web import Who, answer, extension_of
from shoal.users.live.callers import BY_SOCKET
from shoal.users.live.needs import Serving
from shoal.users.models import (
    NAME,
    RemovedView,
    RuleGiven,
    RuleList,
    RuleView,
    UserTokenGiven,
    UserTokenView,
    UserView,
)
from shoal.users.rules import Kind, Role, Rule

if TYPE_CHECKING:
    from shoal.users.live.table import Table


async def get_table(request: Request) -> Table:
    return extension_of(request, Serving).table  # type: ignore[type-var]


Known = Annotated["Table", Depends(get_table)]
Name = Annotated[str, Path(description="as the system names it", pattern=NAME)]
_NO_LABEL = UserTokenGiven()


def _shown(found: View, status: int = 200) -> Response:
    return answer(found.model_dump(mode="json"), status)


def _view(rule: Rule) -> RuleView:
    return RuleView(
        kind=rule.kind, name=rule.name, tenant=rule.tenant, role=rule.role, run_as=rule.run_as,
        created_at=rule.created_at,
    )  # fmt: skip


def router_of() -> APIRouter:
    router = Router(tags=["users"])

    @router.get(
        "/v1/whoami", summary="Who the caller is", response_class=Response,
        responses={**shows(UserView), **fails(403, 503)},
    )  # fmt: skip
    async def whoami(table: Known, who: Who) -> Response:
        """By the local socket as the kernel says, else by the token."""
        if who.user is not None:
            return _shown(await table.told(who.user.name))
        by = "the server's own user, or root" if who.token_id.startswith(BY_SOCKET) else f"token {who.token_id}"
        role = Role.ADMIN if who.admin else Role.VIEWER if who.read_only else Role.LEAD
        return _shown(UserView(user=None, uid=None, tenant=who.tenant, role=role, run_as=None, by=by))

    @router.get(
        "/v1/users", summary="Which users and groups belong where", response_class=Response,
        responses={**shows(RuleList, 200, "by kind and name"), **fails(403, 503)},
    )  # fmt: skip
    async def every(table: Known, who: Who) -> Response:
        """Of all tenants for the admin, else of the caller's own."""
        seen = [_view(rule) for rule in table.rules.values() if who.admin or rule.tenant == who.tenant]
        return _shown(RuleList(rules=tuple(seen)))

    @router.get(
        "/v1/users/{name}", summary="Who a user of the machine is here (admin)", response_class=Response,
        responses={**shows(UserView), **fails(403, 404, 422, 503)},
    )  # fmt: skip
    async def one(table: Known, who: Who, name: Name) -> Response:
        who.require_admin("see who others are")
        return _shown(await table.told(name))

    @router.put(
        "/v1/users/{name}/{kind}", summary="Say where a user or a group belongs (admin)", response_class=Response,
        responses={**shows(RuleView), **fails(403, 404, 409, 422, 503)},
    )  # fmt: skip
    async def put(table: Known, who: Who, name: Name, kind: Kind, asked: RuleGiven) -> Response:
        """In the place of what was said before. It holds at once."""
        who.require_admin("say who belongs where")
        return _shown(_view(await table.add(kind, name, asked, actor=who.actor)))

    @router.delete(
        "/v1/users/{name}/{kind}", summary="Take a user or a group out (admin)", response_class=Response,
        responses={**shows(RemovedView), **fails(403, 404, 422, 503)},
    )  # fmt: skip
    async def remove(table: Known, who: Who, name: Name, kind: Kind) -> Response:
        """Holds at once, and a user's tokens are revoked. Their jobs that run go on; those that wait do not start."""
        who.require_admin("say who belongs where")
        return _shown(await table.remove(kind, name, actor=who.actor))

    @router.post(
        "/v1/users/{name}/tokens", summary="Make a token that is a user's", status_code=201, response_class=Response,
        responses={**shows(UserTokenView, 201, "made; the token is shown once"), **fails(403, 404, 422, 503)},
    )  # fmt: skip
    async def token(table: Known, who: Who, name: Name, asked: UserTokenGiven = _NO_LABEL) -> Response:
        """By the admin, or by that user through the local socket."""
        _require_self(who, name)
        return _shown(await table.token(name, asked, actor=who.actor), 201)

    return router


def _require_self(who: Principal, name: str) -> None:
    if who.admin or (who.user is not None and who.user.name == name and who.token_id.startswith(BY_SOCKET)):
        return
    raise Forbidden(
        f"a token of {name} is made by the admin, or by {name} on the server's machine",
        hint="ask the admin for `shoal users token`",
    )
