"""Records of news, subscriptions and deliveries: frozen values that the database, the API and the decisions
share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from shoal.contract.events import EventKinds
from shoal.notify.policy.times import Schedule

EVERYONE = "*"
"""The tenant of an admin's subscription to the news of all tenants, and of the nodes."""

PLAIN = Schedule()


class NotifyEvent(EventKinds):
    """What becomes of subscriptions."""

    SUBSCRIBED = "notify.subscribed", "A subscription to news was made."
    UNSUBSCRIBED = "notify.unsubscribed", "A subscription to news was removed."


class Topic(StrEnum):
    """What news are about. `ended` is any end of a job, `failed` an end in failure."""

    STARTED = "started"
    ENDED = "ended"
    FAILED = "failed"
    REQUEUED = "requeued"
    TIME_LIMIT = "time-limit"
    WAITS = "waits"
    LATE = "late"
    SERVICE = "service"
    BUDGET = "budget"
    NODE = "node"
    TEST = "test"


ABOUT: Mapping[Topic, str] = {
    Topic.STARTED: "a job runs for the first time",
    Topic.ENDED: "a job is over, however it ended",
    Topic.FAILED: "a job failed",
    Topic.REQUEUED: "a job that ran waits again, for it was preempted or its node was lost",
    Topic.TIME_LIMIT: "a job was asked to end, for its `max_runtime` or its deadline is over",
    Topic.WAITS: "a job waits longer than `waits`",
    Topic.LATE: "a job waits longer than its first forecast promised",
    Topic.SERVICE: "a service is degraded, failed or out of its objective, or well again",
    Topic.BUDGET: "80 % of a budget are used, and all of it",
    Topic.NODE: "a node is gone, or took a job with it",
}
"""Those that can be subscribed to."""

OF_JOBS = frozenset({
    Topic.STARTED, Topic.ENDED, Topic.FAILED, Topic.REQUEUED, Topic.TIME_LIMIT, Topic.WAITS, Topic.LATE, Topic.NODE
})  # fmt: skip
"""Those that a job's manifest may ask for."""


class Kind(StrEnum):
    """Where news go to."""

    MAIL = "mail"
    WEBHOOK = "webhook"
    SLACK = "slack"


@dataclass(frozen=True, slots=True)
class Target:
    """`address` is a mail address, or a URL: that is a secret where it holds a token, as Slack's do."""

    kind: Kind
    address: str


@dataclass(frozen=True, slots=True)
class Subscription:
    """`from_seq` is the last event before it was made: it is told nothing that was then over. `jobs` is a pattern of
    their names."""

    id: str
    tenant: str
    name: str
    target: Target
    topics: frozenset[Topic]
    created_at: float
    created_by: str
    from_seq: int
    jobs: str = "*"
    waits_s: float | None = None
    schedule: Schedule = PLAIN


@dataclass(frozen=True, slots=True)
class News:
    """One thing to tell. `about` is the same whenever the same is told: with the channel it makes the row's key."""

    topic: Topic
    tenant: str
    at: float
    about: str
    title: str
    job_id: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


class State(StrEnum):
    """Of a delivery. GAVE_UP: it was tried as often as is allowed, or cannot be made."""

    WAITING = "waiting"
    SENT = "sent"
    GAVE_UP = "gave-up"


@dataclass(frozen=True, slots=True)
class Delivery:
    """Some news in one message to one receiver. `id` is its idempotency key, the same for each try. `channel` is the id
    of a subscription, or `mailto:TENANT:ADDRESS` of what a manifest named; `owner` is the tenant whose it is."""

    id: str
    channel: str
    owner: str
    created_at: float
    state: State
    attempts: int
    next_at: float
    ended_at: float | None
    error: str
    news: tuple[News, ...] = ()
