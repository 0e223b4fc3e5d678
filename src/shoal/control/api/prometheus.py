"""The metrics of /metrics, for Prometheus. Counters and histograms follow the committed events; gauges are given at
each scrape.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import Metric

from shoal.contract.events import EventKind
from shoal.contract.lifecycle import JobState
from shoal.contract.records import Event

_WAIT_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200, 43200)
_RUN_BUCKETS = (1, 5, 15, 60, 300, 1800, 7200, 43200, 172800)


# The time at which a counter was made is of no use here, and doubles the number of lines.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """One registry per application, so that several can live in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        new: dict[str, Any] = {"registry": self.registry}
        self._requests = Counter("shoal_http_requests", "HTTP requests answered.", ["method", "route", "status"], **new)
        self._latency = Histogram("shoal_http_request_seconds", "Time to answer, streams included.", ["route"], **new)
        self._submitted = Counter("shoal_jobs_submitted", "Jobs accepted.", ["tenant"], **new)
        self._steps = Counter("shoal_job_steps", "Steps of jobs into a state.", ["tenant", "state"], **new)
        self._attempts = Counter("shoal_attempts_ended", "Attempts ended, by outcome.", ["tenant", "outcome"], **new)
        self._waits = Histogram(
            "shoal_queue_wait_seconds", "Wait in the queue before each admission.", ["tenant"],
            buckets=_WAIT_BUCKETS, **new,
        )  # fmt: skip
        self._runs = Histogram(
            "shoal_attempt_run_seconds", "Run time of attempts that ended.", ["tenant"], buckets=_RUN_BUCKETS, **new
        )
        self._streams = Gauge("shoal_event_streams", "Open event streams.", **new)
        self._answers: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        # To find a counter by its labels takes longer than to count.
        self._submitted_by, self._steps_by = cache(self._submitted.labels), cache(self._steps.labels)
        self._attempts_by, self._waits_by = cache(self._attempts.labels), cache(self._waits.labels)
        self._runs_by = cache(self._runs.labels)

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        kind = (method, route, status)
        if kind not in self._answers:
            self._answers[kind] = self._requests.labels(method, route, str(status)), self._latency.labels(route)
        count, latency = self._answers[kind]
        count.inc()
        latency.observe(seconds)

    def stream_opened(self) -> None:
        self._streams.inc()

    def stream_closed(self) -> None:
        self._streams.dec()

    def events(self, events: Iterable[Event]) -> None:
        """Follow committed events; `data` of an admission carries `waited_s`, of the step that ends an attempt its
        outcome and `ran_s`."""
        for event in events:
            tenant = event.tenant or ""
            if event.kind == EventKind.JOB_SUBMITTED:
                self._submitted_by(tenant).inc()
            if event.new_state is not None and event.kind.startswith("job."):
                self._steps_by(tenant, event.new_state).inc()
            if event.new_state == JobState.ADMITTED and "waited_s" in event.data:
                self._waits_by(tenant).observe(event.data["waited_s"])
            if "outcome" in event.data:
                self._attempts_by(tenant, str(event.data["outcome"])).inc()
                self._runs_by(tenant).observe(event.data.get("ran_s", 0.0))

    def render(self, gauges: Iterable[Metric] = ()) -> bytes:
        """The counters and histograms so far, with these gauges. May be called in any thread."""
        return generate_latest(_Joined(self.registry, gauges))


class _Joined(CollectorRegistry):
    def __init__(self, registry: CollectorRegistry, more: Iterable[Metric]) -> None:
        super().__init__()
        self._parts = registry, more

    def collect(self) -> Iterator[Metric]:
        registry, more = self._parts
        yield from registry.collect()
        yield from more
