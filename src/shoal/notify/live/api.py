"""News in the API: a tenant's people see and change their own subscriptions, an admin all."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic_core import PydanticCustomError

from shoal.contract.manifest.quantities import read_duration
from shoal.contract.principal import Principal
from shoal.contract.view import View
from shoal.core import Conflict, Forbidden, Invalid, NotFound
from shoal.extension.describe import fails, shows
from shoal.extension.routing import Router
from shoal.extension.web import TenantQuery, Who, answer, extension_of, filter_of, tenant_of
from shoal.notify.live.book import check_topics
from shoal.notify.live.needs import Telling
from shoal.notify.live.outbox import Entry
from shoal.notify.live.page import address_shown, receiver
from shoal.notify.models import (
    NAME,
    DeliveryList,
    DeliveryView,
    NewSubscriptionView,
    NewsView,
    SubscriptionList,
    SubscriptionRequest,
    SubscriptionView,
)
from shoal.notify.policy.batches import MOST_OPEN
from shoal.notify.policy.times import Schedule, read_clock, read_quiet, read_zone
from shoal.notify.records import EVERYONE, Delivery, Kind, News, State, Subscription, Target, Topic
from shoal.notify.send.addresses import check_url

if TYPE_CHECKING:
    pass

_LONGEST_DIGEST_S = 86_400.0
_SHORTEST_DIGEST_S = 60.0


async def get_telling(request: Request) -> Telling:
    return extension_of(request, Telling)  # type: ignore[type-var]


Notify = Annotated[Telling, Depends(get_telling)]
SubscriptionName = Annotated[str, Path(pattern=NAME, description="the subscription's name")]
DeliveryId = Annotated[str, Path(pattern="^[0-9a-f]{32}$", description="the delivery's id")]
Everyone = Annotated[bool, Query(description="the subscription to the news of all tenants (admin)")]


def router_of() -> APIRouter:
    router = Router(tags=["news"])

    @router.post(
        "/v1/notify/subscriptions", summary="Subscribe to news", status_code=201, response_class=Response,
        responses={**shows(NewSubscriptionView, 201, "the secret is shown once"), **fails(403, 404, 409, 422, 503)},
    )  # fmt: skip
    async def add(notify: Notify, who: Who, asked: SubscriptionRequest, tenant: TenantQuery = None) -> Response:
        owner = _owner(who, tenant, everyone=asked.everyone)
        if owner != EVERYONE and owner not in notify.server.tenants():
            raise NotFound(f"there is no tenant {owner!r}", where="tenant")
        one = Subscription(
            notify.server.new_id("n"), owner, asked.name, Target(asked.kind, _address(notify, asked)),
            frozenset(asked.topics), notify.server.clock.now(), who.actor, await notify.book.last_seq(), asked.jobs,
            asked.waits, schedule_of(asked),
        )  # fmt: skip
        check_topics(one.topics, one.waits_s)
        await notify.book.add(one, actor=who.actor)
        secret = notify.sender.secret(one) if one.target.kind is Kind.WEBHOOK else None
        return _shown(NewSubscriptionView(**view(one).model_dump(), secret=secret), 201)

    @router.get(
        "/v1/notify/subscriptions", summary="Who is told what", response_class=Response,
        responses={**shows(SubscriptionList, 200, "by tenant and name"), **fails(404, 503)},
    )  # fmt: skip
    async def subscriptions(notify: Notify, who: Who, tenant: TenantQuery = None) -> Response:
        found = notify.book.of(filter_of(who, tenant))
        return _shown(SubscriptionList(subscriptions=tuple(map(view, found))))

    @router.delete(
        "/v1/notify/subscriptions/{name}", summary="Remove a subscription", status_code=204, response_class=Response,
        responses=fails(403, 404, 422, 503),
    )  # fmt: skip
    async def remove(
        notify: Notify, who: Who, name: SubscriptionName, tenant: TenantQuery = None, everyone: Everyone = False
    ) -> Response:
        one = notify.book.find(_owner(who, tenant, everyone=everyone), name)
        await notify.book.remove(one, actor=who.actor)
        return Response(status_code=204)

    @router.post(
        "/v1/notify/subscriptions/{name}/test", summary="Send a trial message", status_code=202,
        response_class=Response,
        responses={**shows(DeliveryView, 202, "it is on its way"), **fails(403, 404, 409, 422, 503)},
    )  # fmt: skip
    async def test(
        notify: Notify, who: Who, name: SubscriptionName, tenant: TenantQuery = None, everyone: Everyone = False
    ) -> Response:
        one, now = notify.book.find(_owner(who, tenant, everyone=everyone), name), notify.server.clock.now()
        under_way = await asyncio.to_thread(notify.outbox.waiting)
        if sum(each.channel == one.id for each in under_way) >= 2 * MOST_OPEN:
            raise Conflict("its receiver has enough under way", where=name, hint="`shoal notify deliveries` shows what")
        about = f"test/{notify.server.new_id('t')}"
        news = News(Topic.TEST, one.tenant, now, about, f"this is a trial message of the subscription {one.name}")
        made = await notify.outbox.put_delivery(Entry(one.id, one.tenant, news, now), now)
        notify.sender.wake()
        return _shown(await _delivery(notify, who, made), 202)

    @router.get(
        "/v1/notify/deliveries", summary="What was sent, waits, or was given up", response_class=Response,
        responses={**shows(DeliveryList, 200, "the newest first"), **fails(404, 422, 503)},
    )  # fmt: skip
    async def deliveries(
        notify: Notify, who: Who, tenant: TenantQuery = None,
        state: Annotated[State | None, Query(description="only in this state")] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 50,
    ) -> Response:  # fmt: skip
        shown = filter_of(who, tenant)
        found = await asyncio.to_thread(notify.outbox.deliveries, shown, state, limit)
        known = notify.book.of(None)
        return _shown(DeliveryList(deliveries=tuple(delivery_view(one, known) for one in found)))

    @router.get(
        "/v1/notify/deliveries/{delivery_id}", summary="One delivery", response_class=Response,
        responses={**shows(DeliveryView, 200, "as it is now"), **fails(404, 422, 503)},
    )  # fmt: skip
    async def delivery(notify: Notify, who: Who, delivery_id: DeliveryId) -> Response:
        return _shown(await _delivery(notify, who, delivery_id))

    @router.post(
        "/v1/notify/deliveries/{delivery_id}/retry", summary="Send again what was given up, or at once what waits",
        response_class=Response,
        responses={**shows(DeliveryView, 200, "it waits again"), **fails(403, 404, 409, 422, 503)},
    )  # fmt: skip
    async def retry(notify: Notify, who: Who, delivery_id: DeliveryId) -> Response:
        await _delivery(notify, who, delivery_id)
        if not await notify.outbox.again(delivery_id, notify.server.clock.now()):
            raise Conflict("it was sent already", where=delivery_id)
        notify.sender.wake()
        return _shown(await _delivery(notify, who, delivery_id))

    return router


def _owner(who: Principal, tenant: str | None, *, everyone: bool) -> str:
    if not everyone:
        return tenant_of(who, tenant)
    if tenant is not None:
        raise Invalid("everyone's news are of no tenant", where="tenant", hint="leave it out")
    if not who.admin:
        raise Forbidden("only the admin may be told of everyone's news", where="everyone", hint="leave it out")
    return EVERYONE


def _address(notify: Telling, asked: SubscriptionRequest) -> str:
    if asked.kind is not Kind.MAIL:
        return check_url(asked.address, "address")
    notify.sender.check_mail(asked.address)
    return asked.address


def schedule_of(asked: SubscriptionRequest) -> Schedule:
    """Raises Invalid."""
    zone = read_zone(asked.zone, "zone")
    quiet = None if asked.quiet is None else read_quiet(asked.quiet, "quiet")
    if asked.digest is None:
        return Schedule(zone, quiet)
    if ":" in asked.digest:
        return Schedule(zone, quiet, daily=read_clock(asked.digest, "digest"))
    try:
        every_s = read_duration(asked.digest)
    except PydanticCustomError:
        every_s = 0.0
    if not _SHORTEST_DIGEST_S <= every_s <= _LONGEST_DIGEST_S:
        raise Invalid(f"{asked.digest!r} is no digest", where="digest", hint="1m to 24h, or a time of the day: 08:00")
    return Schedule(zone, quiet, every_s=every_s)


def view(one: Subscription) -> SubscriptionView:
    plan = one.schedule
    digest = f"{plan.daily:%H:%M}" if plan.daily is not None else f"{plan.every_s:g}s" if plan.every_s else None
    quiet = None if plan.quiet is None else f"{plan.quiet[0]:%H:%M}-{plan.quiet[1]:%H:%M}"
    return SubscriptionView(
        name=one.name, tenant=one.tenant, kind=one.target.kind, address=address_shown(one),
        topics=tuple(sorted(one.topics)), jobs=one.jobs, waits_s=one.waits_s, zone=plan.zone, quiet=quiet,
        digest=digest, created_at=one.created_at, created_by=one.created_by,
    )  # fmt: skip


def delivery_view(one: Delivery, known: Sequence[Subscription]) -> DeliveryView:
    news = tuple(
        NewsView(topic=each.topic, tenant=each.tenant, at=each.at, title=each.title, job_id=each.job_id)
        for each in one.news
    )  # fmt: skip
    return DeliveryView(
        id=one.id, to=receiver(one.channel, known), tenant=one.owner, state=one.state, attempts=one.attempts,
        created_at=one.created_at, next_at=one.next_at if one.state is State.WAITING else None, ended_at=one.ended_at,
        error=one.error, news=news,
    )  # fmt: skip


async def _delivery(notify: Telling, who: Principal, delivery_id: str) -> DeliveryView:
    found = await asyncio.to_thread(notify.outbox.delivery, delivery_id)
    if found is None or not who.may_see(found.owner):
        raise NotFound("there is no such delivery", where=delivery_id, hint="`shoal notify deliveries` lists them")
    return delivery_view(found, notify.book.of(None))


def _shown(found: View, status: int = 200) -> Response:
    return answer(found.model_dump(mode="json"), status)
