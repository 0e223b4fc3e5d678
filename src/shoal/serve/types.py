"""Services as they are deployed: their models, routes and limits; and what a request took of a model in steps."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.core import PriorityClass
from shoal.inference.types import ModelSpec

LOAD_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class Route:
    """How a model's requests are shared among its versions: `shares` by version (canary; they sum to 1), and what
    part of them is copied to `shadow`, whose answers are thrown away."""

    shares: tuple[tuple[str, float], ...]
    shadow: str | None = None
    shadow_share: float = 0.0


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """A tenant's deployed service. `slo_p99_s` is its latency objective and the default deadline of its requests;
    `rate_limit` is in compute-seconds per second, `burst_s` how many compute-seconds may be saved up. A replica that
    needs longer than `load_timeout_s` to load one model is taken for stuck, and is replaced."""

    name: str
    tenant: str
    models: tuple[ModelSpec, ...]
    routes: tuple[tuple[str, Route], ...] = ()
    replicas: int = 1
    priority_class: PriorityClass = PriorityClass.GUARANTEED
    slo_p99_s: float | None = None
    rate_limit: float | None = None
    burst_s: float = 1.0
    memory_bytes: int = 0
    load_timeout_s: float = LOAD_TIMEOUT_S


@dataclass(frozen=True, slots=True)
class StepWork:
    """What a request took of a runtime that works in steps: how many steps, how many rows there were in them, and how
    long one took, both on average."""

    steps: int
    rows: float
    step_s: float
