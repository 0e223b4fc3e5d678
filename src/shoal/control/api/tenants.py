"""Tenants, their tokens and their secrets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

from fastapi import Path, Response

from shoal.contract import models
from shoal.contract.events import EventKind
from shoal.contract.manifest.values import SECRET_NAME
from shoal.contract.principal import ADMIN, Principal, TokenRole
from shoal.contract.records import NewEvent, TenantRecord, TokenRecord
from shoal.control.api.context import Context, Ctx
from shoal.control.api.responses import tenant_view, token_view
from shoal.control.tokens import new_token, new_token_id
from shoal.core import Conflict, Invalid, NotFound, Quota, token_digest
from shoal.extension.describe import fails, shows
from shoal.extension.routing import Router
from shoal.extension.web import TenantQuery, Who, answer, tenant_of

router = Router(prefix="/v1", tags=["tenants"])

Name = Annotated[str, Path(max_length=63)]
_NO_LABEL = models.TokenCreate()
SecretName = Annotated[str, Path(pattern=SECRET_NAME)]


@router.get("/tenants", summary="Tenants", responses={**shows(models.TenantList), **fails(503)})
async def list_tenants(context: Ctx, who: Who) -> Response:
    """All of them for the admin, else the token's own."""
    return answer({"tenants": await _views(context, who)})


@router.post(
    "/tenants",
    summary="Create a tenant",
    status_code=201,
    responses={**shows(models.TenantView, 201), **fails(403, 409, 422, 503)},
)
async def create(context: Ctx, who: Who, body: models.TenantCreate) -> Response:
    who.require_admin("create tenants")
    if body.name == ADMIN:
        raise Invalid("this name is reserved", where="name", hint="choose another")
    tenants = context.plane.tenants
    settings = {"sandbox": tenants.usual_sandbox(), **_settings(body)}
    record = await tenants.create(body.name, actor=who.actor, quota=_changed(Quota(), body.quota), **settings)
    return answer(tenant_view(record), 201)


@router.get("/tenants/{name}", summary="One tenant", responses={**shows(models.TenantView), **fails(404, 422, 503)})
async def show(context: Ctx, who: Who, name: Name) -> Response:
    _record(context, who, name)
    return answer(next(view for view in await _views(context, who) if view["name"] == name))


@router.patch(
    "/tenants/{name}",
    summary="Change a tenant",
    responses={**shows(models.TenantView), **fails(403, 404, 422, 503)},
)
async def change(context: Ctx, who: Who, name: Name, body: models.TenantChange) -> Response:
    """Only what is given changes; a null within `quota` lifts that limit."""
    who.require_admin("change tenants")
    _record(context, who, name)
    given = body.quota or models.QuotaView()
    await context.plane.tenants.change(
        name, actor=who.actor, limits=lambda quota: _changed(quota, given), **_settings(body)
    )
    return answer(next(view for view in await _views(context, who) if view["name"] == name))


@router.post(
    "/tenants/{name}/tokens",
    summary="Make a token",
    status_code=201,
    tags=["tokens"],
    responses={**shows(models.NewTokenView, 201), **fails(403, 404, 409, 422, 503)},
)
async def create_token(context: Ctx, who: Who, name: Name, body: models.TokenCreate = _NO_LABEL) -> Response:
    """The answer is the only place where the token is ever shown."""
    who.require_admin("make tokens")
    _record(context, who, name)
    token = new_token(name)
    label = body.label
    now = context.plane.clock.now()
    viewer = body.role is TokenRole.VIEWER
    if not viewer:
        context.plane.tenants.check_members(name)
    record = TokenRecord(new_token_id(), name, token_digest(token), label, now, read_only=viewer)
    event = NewEvent(now, EventKind.TOKEN_CREATED, who.actor, label, tenant=name, data={"token_id": record.id})
    await context.plane.store.put_token(record, event)
    context.reload_tokens()
    return answer({**token_view(record), "token": token}, 201)


@router.get(
    "/tenants/{name}/tokens",
    summary="Tokens of a tenant, without the tokens themselves",
    tags=["tokens"],
    responses={**shows(models.TokenList), **fails(404, 422, 503)},
)
async def list_tokens(context: Ctx, who: Who, name: Name) -> Response:
    _record(context, who, name)
    tokens = await context.read(context.plane.store.tokens)
    return answer({"tokens": [token_view(token) for token in tokens if token.tenant == name]})


@router.delete(
    "/tokens/{token_id}",
    summary="Revoke a token, at once",
    status_code=204,
    tags=["tokens"],
    responses=fails(404, 409, 422, 503),
)
async def revoke_token(context: Ctx, who: Who, token_id: Annotated[str, Path(max_length=64)]) -> Response:
    tokens = await context.read(context.plane.store.tokens)
    token = next((one for one in tokens if one.id == token_id and who.may_see(one.tenant)), None)
    if token is None:
        raise NotFound(f"there is no token {token_id!r}", where=token_id)
    if token.tenant is None and token.revoked_at is None:
        others = [one for one in tokens if one.tenant is None and one.revoked_at is None and one.id != token_id]
        if not others:
            raise Conflict("this is the last admin token", where=token_id, hint="make another one first")
    now = context.plane.clock.now()
    event = NewEvent(
        now, EventKind.TOKEN_REVOKED, who.actor, token.label, tenant=token.tenant, data={"token_id": token_id}
    )
    await context.plane.store.revoke_token(token_id, event)
    context.reload_tokens()
    return Response(status_code=204)


@router.get(
    "/secrets",
    summary="Names of secrets",
    tags=["secrets"],
    responses={**shows(models.SecretList), **fails(403, 404, 422, 503)},
)
async def list_secrets(context: Ctx, who: Who, tenant: TenantQuery = None) -> Response:
    name = _owner(context, who, tenant)
    found = await context.read(context.plane.store.secret_names, name)
    return answer({"tenant": name, "secrets": [{"name": secret, "set_at": at} for secret, at in found]})


@router.put(
    "/secrets/{name}",
    summary="Set a secret",
    status_code=204,
    tags=["secrets"],
    responses=fails(403, 404, 422, 503),
)
async def put_secret(
    context: Ctx, who: Who, name: SecretName, body: models.SecretPut, tenant: TenantQuery = None
) -> Response:
    """Stored encrypted; jobs name it in their manifest and find its value in their environment."""
    await context.plane.secrets.set(_owner(context, who, tenant), name, body.value, actor=who.actor)
    return Response(status_code=204)


@router.delete(
    "/secrets/{name}",
    summary="Delete a secret",
    status_code=204,
    tags=["secrets"],
    responses=fails(403, 404, 422, 503),
)
async def delete_secret(context: Ctx, who: Who, name: SecretName, tenant: TenantQuery = None) -> Response:
    await context.plane.secrets.delete(_owner(context, who, tenant), name, actor=who.actor)
    return Response(status_code=204)


def _record(context: Context, who: Principal, name: str) -> TenantRecord:
    """Another tenant does not exist. Raises NotFound."""
    record = context.plane.tenants.records.get(name)
    if record is None or not who.may_see(name):
        raise NotFound(f"there is no tenant {name!r}", where="tenant", hint="see `shoal tenant list`")
    return record


def _owner(context: Context, who: Principal, asked: str | None) -> str:
    return _record(context, who, tenant_of(who, asked)).name


async def _views(context: Context, who: Principal) -> list[dict[str, Any]]:
    tenants = context.plane.tenants.records.values()
    counts = await tenant_counts(context)
    usage = context.plane.garbage.usage
    states = {state.tenant.name: state for state in context.plane.tenants_state()}
    return [
        tenant_view(tenant, states.get(tenant.name), counts.get(tenant.name), disk_bytes=usage.get(tenant.name, 0))
        for tenant in sorted(tenants, key=lambda tenant: tenant.name)
        if who.may_see(tenant.name)
    ]


async def tenant_counts(context: Context) -> Mapping[str, Mapping[str, int]]:
    """How many jobs of each tenant are in each state."""
    counts: dict[str, dict[str, int]] = defaultdict(dict)
    for (tenant, state), count in (await context.read(context.plane.store.job_counts)).items():
        counts[tenant][state] = count
    return counts


def _settings(body: models.TenantCreate | models.TenantChange) -> dict[str, Any]:
    """What was given, all but the quota."""
    given = {name: getattr(body, name) for name in ("weight", "max_priority_class", "sandbox")}
    return {name: value for name, value in given.items() if value is not None}


def _changed(quota: Quota, given: models.QuotaView) -> Quota:
    """`quota` with the fields that were given, null included."""
    values: dict[str, Any] = {name: getattr(given, name) for name in given.model_fields_set}
    if "by_type" in values:
        values["by_type"] = tuple(sorted(values["by_type"].items()))
    return replace(quota, **values)
