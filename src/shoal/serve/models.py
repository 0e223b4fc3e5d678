"""API models of services: shared by the server's routes, the client and the commands.

Units and rules are those of `shoal.contract.models`.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from shoal.contract.lifecycle import JobState
from shoal.contract.models import ReasonView, ResourcesView
from shoal.contract.view import Given, View
from shoal.core import PriorityClass
from shoal.serve.lifecycle import ServiceState


class TrafficView(View):
    """What a service did since its gateway started; rates and quantiles are of the last minute. `causes` counts the
    `rejected` by why they were refused. Goodput is the rate within the objective, null without one."""

    requests: int = 0
    rejected: int = 0
    causes: dict[str, int] = Field(default_factory=dict)
    failed: int = 0
    rate_per_s: float = 0.0
    goodput_per_s: float | None = None
    p50_s: float | None = None
    p99_s: float | None = None


class TrafficSample(View):
    """What the gateway measured of a service in the minute before `at` (Unix time). `rejected` counts from the start of
    the gateway."""

    at: float
    p50_s: float | None = None
    p99_s: float | None = None
    rate_per_s: float = 0.0
    rejected: int = 0


class ServiceHistory(View):
    """Oldest first, also from before a restart: the last hour every ten seconds, and up to a day before it in steps of
    five minutes, of which the greatest latency is kept."""

    samples: list[TrafficSample] = Field(default_factory=list)


class ServedModelView(View):
    """A model's version as the gateway sees it; `state` is UNKNOWN while it says nothing. `runtime_state` is a word of
    its runtime, "" where that gives none, and `figures` are the runtime's own."""

    name: str
    version: str
    runtime: str
    state: str = "UNKNOWN"
    reason: str = ""
    runtime_state: str = ""
    runtime_reason: str = ""
    figures: dict[str, float] = Field(default_factory=dict)


class EndpointsView(View):
    """Where the service's gateway answers: the base URL of the Open Inference Protocol, and its gRPC address."""

    http: str
    grpc: str


class ServiceView(View):
    """A service. `replicas` are wanted, `ready` take requests; `generation` is that of the replicas, `deployment`
    counts all updates. `reason` says why it is not ready, `settled` that waiting alone will hardly change it."""

    id: str
    tenant: str
    name: str
    state: ServiceState
    settled: bool
    version: int
    generation: int
    deployment: int
    replicas: int
    ready: int
    priority_class: PriorityClass
    slo_p99_s: float | None = None
    rate_limit: float | None = None
    created_at: float
    updated_at: float
    ended_at: float | None = None
    reason: ReasonView | None = None
    models: list[ServedModelView] = Field(default_factory=list)
    traffic: TrafficView | None = None
    endpoints: EndpointsView | None = None


class ReplicaView(View):
    """A replica, which is a job like any other. `ready` when the gateway sends it requests; else `text` says what it
    is at."""

    job_id: str
    name: str
    index: int
    generation: int
    state: JobState
    ready: bool
    leaving: bool = False
    text: str = ""
    attempt: int = 0
    resources: ResourcesView = Field(default_factory=ResourcesView)


class ServiceDetail(ServiceView):
    """A service with its manifest and the replicas that have not ended."""

    manifest: dict[str, Any] = Field(default_factory=dict)
    members: list[ReplicaView] = Field(default_factory=list)


class ServiceList(View):
    """`next` continues the listing (as `before`); absent when there is no more."""

    services: list[ServiceView]
    next: str | None = None


class ServiceCauseView(View):
    """One thing that keeps a service from being ready: of the gateway, a replica or a model (`subject`)."""

    subject: str
    reason: ReasonView
    change: str = ""


class ServiceExplanationView(View):
    service_id: str
    name: str
    state: ServiceState
    summary: str
    causes: list[ServiceCauseView] = Field(default_factory=list)


class ScaleGiven(Given):
    replicas: Annotated[int, Field(ge=0, le=1000)]
