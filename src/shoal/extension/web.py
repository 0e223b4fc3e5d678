"""Shared parts of the API's routes, those of extensions among them: who asks, how requests are read, and how
answers are written."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated, Any, Protocol, TypeVar, cast

import orjson
from fastapi import Depends, Header, Query, Request, Response

from shoal.base.http import BodyTooLarge
from shoal.contract.manifest import MAX_BYTES
from shoal.contract.manifest.values import NO_NUL as NO_NUL
from shoal.contract.models import EventList
from shoal.contract.principal import Principal
from shoal.contract.records import JobRecord
from shoal.core import Forbidden, Invalid, NotFound
from shoal.extension.asking import DEFAULT_TENANT as DEFAULT_TENANT
from shoal.extension.asking import Api as Api
from shoal.extension.asking import Credentials as Credentials
from shoal.extension.asking import resources_view as resources_view
from shoal.extension.base import Extension
from shoal.extension.describe import fails, shows

QUICK_PARSE_BYTES = 4 * 1024
"""Most manifests: read at once, for a thread costs more. The worst text of this size takes a few milliseconds."""
MAX_KEY = 200
PAGE = 500
"""Events of one answer, unless a request says otherwise."""
NEWEST = 2**62

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")
E = TypeVar("E", bound=Extension)

# --- who asks ---


async def get_principal(request: Request) -> Principal:
    """Whose token the request carries. Raises Unauthenticated, Overloaded beyond the token's rate, and Unavailable
    while the server starts or leaves."""
    return cast("Principal", await request.app.state.principal(request))


Who = Annotated[Principal, Depends(get_principal)]


async def get_asker(request: Request, principal: Who) -> Principal:
    """As `get_principal`, for a request whose answer is expensive to work out: these have a rate of their own."""
    request.app.state.question(request, principal)
    return principal


Asker = Annotated[Principal, Depends(get_asker)]


async def require_own(request: Request, who: Principal, job: JobRecord) -> None:
    """To be asked before a caller gets at what a job reads, writes or runs, or changes it. Raises Forbidden where
    another user of its tenant submitted it, and the caller has only his own."""
    await request.app.state.require_own(request, who, job)


def tenant_of(who: Principal, asked: str | None) -> str:
    """The tenant for which the caller acts. Raises Forbidden for another tenant."""
    if who.tenant is None:
        return asked or DEFAULT_TENANT
    if asked is not None and asked != who.tenant:
        raise Forbidden(f"this token is for tenant {who.tenant}, not {asked}", where="tenant", hint="leave it out")
    return who.tenant


def filter_of(who: Principal, asked: str | None) -> str | None:
    """Which tenant a listing shows; None is all of them. Another's is as good as absent. Raises NotFound."""
    if who.tenant is not None and asked is not None and asked != who.tenant:
        raise NotFound(f"there is no tenant {asked!r}", where="tenant")
    return who.tenant or asked


def owner(named: str | None, who: Principal, asked: str | None) -> str:
    """For which tenant a manifest is sent that names one, or none. Raises Invalid where the request names another."""
    if asked is not None and named is not None and asked != named:
        raise Invalid(
            f"the manifest is for tenant {named}, the request for {asked}", where="tenant", hint="name the tenant once"
        )
    return tenant_of(who, named or asked)


# --- what is asked ---

TenantQuery = Annotated[str | None, Query(description="act for this tenant (admin)", max_length=63, pattern=NO_NUL)]
Wait = Annotated[float, Query(ge=0, description="the most seconds to wait, bounded by the server")]
Cause = Annotated[str, Query(description="why, for the record", max_length=200, pattern=NO_NUL)]


class Parse(Protocol[T_co]):
    def __call__(self, text: bytes, *, source: str) -> T_co: ...


async def parse_body(body: bytes, parse: Parse[T]) -> T:
    """The manifest in a body, YAML or JSON. Raises Invalid with every problem."""
    if len(body) <= QUICK_PARSE_BYTES:
        return parse(body, source="manifest")
    return await asyncio.to_thread(parse, body, source="manifest")


async def read_body(request: Request, limit: int = MAX_BYTES) -> bytes:
    """The whole body. Raises BodyTooLarge as soon as it is known to be."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise _too_large(limit)
    chunks = bytearray()
    async for chunk in request.stream():
        chunks += chunk
        if len(chunks) > limit:
            raise _too_large(limit)
    return bytes(chunks)


def _too_large(limit: int) -> BodyTooLarge:
    hint = "upload files as a bundle, keep data outside the manifest"
    return BodyTooLarge(f"the body is over {limit} bytes", hint=hint)


def queried(request: Request, name: str) -> str | None:
    """A parameter of the query. Most requests that ask for it have no query, and Starlette would take it apart."""
    return request.query_params.get(name) if request.scope["query_string"] else None


def read_key(request: Request) -> str | None:
    """The request's idempotency key. Raises Invalid."""
    key = request.headers.get("idempotency-key") or None
    if key is not None and (len(key) > MAX_KEY or not key.isprintable()):
        raise Invalid(f"an idempotency key is at most {MAX_KEY} printable characters", where="Idempotency-Key")
    return key


def key_and_tenant(about_key: str) -> list[dict[str, Any]]:
    """The parameters of an operation that takes the bare request, for its description."""
    key = {"type": "string", "maxLength": MAX_KEY}
    return [
        {"name": "Idempotency-Key", "in": "header", "schema": key, "description": about_key},
        {"name": "tenant", "in": "query", "schema": {"type": "string"}, "description": "for this tenant (admin)"},
    ]


# --- what is answered ---


def answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """JSON as orjson writes it; NaN becomes null."""
    return Response(orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS), status, headers, "application/json")


EVENTS_ANSWERED = {**shows(EventList), **fails(404, 409, 410, 422, 503)}
EVENTS_ANSWERED[200]["content"]["text/event-stream"] = {"schema": {"type": "string"}}


@dataclass(frozen=True, slots=True)
class EventQuery:
    """Which events a request asks for, and how it wants them."""

    after: int | None
    follow: bool
    limit: int
    wait_s: float
    last_event_id: str | None


async def get_event_query(
    after: Annotated[int | None, Query(ge=0, le=NEWEST, description="only events after this sequence number")] = None,
    follow: Annotated[bool, Query(description="a stream of server-sent events instead of a list")] = False,
    limit: Annotated[int, Query(ge=0, le=1000, description="0: only tell the newest position")] = PAGE,
    wait_s: Wait = 0.0,
    last_event_id: Annotated[str | None, Header(description="where a broken stream goes on")] = None,
) -> EventQuery:
    return EventQuery(after, follow, limit, wait_s, last_event_id)


AskedEvents = Annotated[EventQuery, Depends(get_event_query)]


def extension_of(request: Request, kind: type[E]) -> E:
    """The extension whose route this is."""
    found = request.app.state.extensions.get(kind)
    assert isinstance(found, kind)
    return found


async def get_api(request: Request) -> Api:
    return cast("Api", request.app.state.api)


FromApi = Annotated[Api, Depends(get_api)]
