"""API models of news: shared by the server's routes, the client and the commands."""

from __future__ import annotations

import re

from pydantic import BaseModel, ConfigDict, Field

from shoal.contract.manifest.values import Duration
from shoal.contract.view import View
from shoal.notify.records import Kind, State, Topic

NAME = r"^[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?$"
NAME_PATTERN = re.compile(NAME[1:-1])


class SubscriptionRequest(BaseModel):
    """A subscription to make. `quiet` is such as 22:00-07:00 in the zone; `digest` a duration or a time of the day."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(pattern=NAME, description="lower-case letters, digits and dashes, at most 40")
    kind: Kind
    address: str = Field(min_length=1, max_length=2000, description="a mail address, or a URL")
    topics: tuple[Topic, ...] = Field(min_length=1, max_length=16)
    jobs: str = Field("*", min_length=1, max_length=128, description="only of jobs of such names, with * and ?")
    waits: Duration | None = Field(None, description="how long a job must wait for `waits` to be told")
    zone: str = Field("UTC", max_length=64, description="the time zone of quiet hours and of a daily digest")
    quiet: str | None = Field(None, max_length=16, description="nothing is sent then: 22:00-07:00")
    digest: str | None = Field(None, max_length=16, description="all news of so long, or of each day, in one message")
    everyone: bool = Field(False, description="news of all tenants and of the nodes (admin)")


class SubscriptionView(View):
    """Who is told what. `address` is without what may be a token; tenant `*` is everyone's."""

    name: str
    tenant: str
    kind: Kind
    address: str
    topics: tuple[Topic, ...]
    jobs: str
    waits_s: float | None
    zone: str
    quiet: str | None
    digest: str | None
    created_at: float
    created_by: str


class NewSubscriptionView(SubscriptionView):
    """`secret` signs a webhook's requests, and is shown this once; None for other kinds."""

    secret: str | None = None


class SubscriptionList(View):
    """By tenant and name."""

    subscriptions: tuple[SubscriptionView, ...]


class NewsView(View):
    topic: Topic
    tenant: str
    at: float
    title: str
    job_id: str | None


class DeliveryView(View):
    """A message to one receiver. `id` is its idempotency key, the same for each try; `to` names the subscription, or
    the mail address that a manifest names. `error` says why the last try failed."""

    id: str
    to: str
    tenant: str
    state: State
    attempts: int
    created_at: float
    next_at: float | None
    ended_at: float | None
    error: str
    news: tuple[NewsView, ...]


class DeliveryList(View):
    """The newest first."""

    deliveries: tuple[DeliveryView, ...]
