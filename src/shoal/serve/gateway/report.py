"""Reports of the gateway: its status for the control plane, its metrics for Prometheus."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from shoal.core import Reason
from shoal.serve.contract import ReplicaStatus, ServiceStatus, VersionStatus
from shoal.serve.gateway.core import Gateway
from shoal.serve.gateway.directory import Entry
from shoal.serve.gateway.stats import Stats, merged_quantiles


def services(gateway: Gateway) -> tuple[ServiceStatus, ...]:
    """Every configured service, all its generations together."""
    entries: dict[str, list[Entry]] = {service_id: [] for service_id in sorted(gateway.directory.services)}
    for entry in gateway.directory:
        entries[entry.service_id].append(entry)
    stats: dict[str, list[Stats]] = {}
    for one in gateway.stats.values():
        if not one.shadow:  # what callers asked for
            stats.setdefault(one.service_id, []).append(one)
    return tuple(_service(gateway, service_id, own, stats.get(service_id, [])) for service_id, own in entries.items())


def _service(gateway: Gateway, service_id: str, entries: Sequence[Entry], stats: Sequence[Stats]) -> ServiceStatus:
    now = time.time()
    versions = tuple(gateway.status(entry, version) for entry in entries for version in entry.versions)
    goal_s = entries[0].service.slo_p99_s if entries else None
    p50, p99 = merged_quantiles([one.window for one in stats], (0.5, 0.99), now)
    return ServiceStatus(
        id=service_id,
        replicas=tuple(
            ReplicaStatus(member.replica.name, member.ready, member.reason, failed=bool(member.problems))
            for member in gateway.replica_set.of(service_id)
        ),
        models=versions,
        requests=sum(one.success.count + one.fail.count + one.rejected.count for one in stats),
        rejected=sum(one.rejected.count for one in stats),
        causes=dict(sum((one.causes for one in stats), Counter())),
        failed=sum(one.fail.count for one in stats),
        rate_per_s=sum(one.window.rate_per_s(now) for one in stats),
        goodput_per_s=None if goal_s is None else sum(one.window.within_per_s(goal_s, now) for one in stats),
        p50_s=p50,
        p99_s=p99,
        reason=_why_not(gateway, service_id, entries, versions),
    )


def _why_not(
    gateway: Gateway, service_id: str, entries: Sequence[Entry], versions: Sequence[VersionStatus]
) -> Reason | None:
    taken = gateway.directory.names_taken.get(service_id)
    if taken is not None:
        return Reason("name-taken", f"another service of the tenant has a model called {taken}", {"model": taken})
    if not versions or any(gateway.takes(entry) for entry in entries):
        return None
    waiting = versions[0]
    return Reason("not-ready", f"{waiting.model} {waiting.version}: {waiting.reason}", {"model": waiting.model})


class Metrics:
    """A collector of `prometheus_client`, and the text it makes. Times are of the last minute where they are
    quantiles, and since the start where they are sums."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def render(self) -> bytes:
        return generate_latest(self)

    def collect(self) -> Iterator[Metric]:
        labels = ("tenant", "model", "version")
        requests = CounterMetricFamily("shoal_serve_requests", "Requests by outcome.", labels=(*labels, "outcome"))
        samples = CounterMetricFamily("shoal_serve_samples", "Samples executed.", labels=labels)
        executions = CounterMetricFamily("shoal_serve_executions", "Batches executed.", labels=labels)
        queue = CounterMetricFamily("shoal_serve_queue_seconds", "Time requests waited.", labels=labels)
        compute = CounterMetricFamily("shoal_serve_compute_seconds", "Time batches ran.", labels=labels)
        latency = GaugeMetricFamily(
            "shoal_serve_latency_seconds", "Latency in the gateway, last minute.", labels=(*labels, "quantile")
        )
        waiting = GaugeMetricFamily("shoal_serve_waiting", "Requests that wait.", labels=labels)
        now = time.time()
        for key, one in list(self._gateway.stats.items()):
            at = (key.partition("/")[0], one.name, one.version)
            for outcome, total in (("success", one.success), ("failed", one.fail), ("rejected", one.rejected)):
                requests.add_metric((*at, outcome), total.count)
            samples.add_metric(at, one.inferences)
            executions.add_metric(at, one.executions)
            queue.add_metric(at, one.queue.total_s)
            compute.add_metric(at, one.busy_s)
            waiting.add_metric(at, self._gateway.waiting(key))
            for quantile, value in zip(_QUANTILES, one.window.quantiles(_QUANTILES, now), strict=True):
                if value is not None:
                    latency.add_metric((*at, f"{quantile:g}"), value)
        yield from (requests, samples, executions, queue, compute, waiting, latency)
        yield from self._runtimes()
        yield from self._sequences()
        replicas = GaugeMetricFamily("shoal_serve_replicas", "Replicas that joined.", labels=("service", "ready"))
        for service in services(self._gateway):
            for ready in (True, False):
                count = sum(replica.ready is ready for replica in service.replicas)
                replicas.add_metric((service.id, str(ready).lower()), count)
        yield replicas
        device = CounterMetricFamily("shoal_serve_device_seconds", "Slot-seconds that were billed.", labels=("tenant",))
        cost = CounterMetricFamily("shoal_serve_cost_usd", "What tenants owe.", labels=("tenant",))
        for owed in self._gateway.meter.totals():
            device.add_metric((owed.tenant,), owed.device_s)
            cost.add_metric((owed.tenant,), owed.cost.micro_usd / 1e6)
        yield from (device, cost)

    def _sequences(self) -> Iterator[Metric]:
        sequences, labels = self._gateway.stepper.sequences, ("tenant", "model", "version")
        live = GaugeMetricFamily("shoal_serve_sequences", "Sequences whose state is kept.", labels=labels)
        ends = CounterMetricFamily("shoal_serve_sequence_events", "Begun, and how ended.", labels=(*labels, "event"))
        for key, counts in sequences.counts.items():
            at = key.split("/")
            live.add_metric(at, len(sequences.of(key)))
            for event, count in sorted(counts.items()):
                ends.add_metric((*at, event), count)
        yield from (live, ends)

    def _runtimes(self) -> Iterator[Metric]:
        """What runtimes say of their models, by replica."""
        labels = ("tenant", "model", "version", "replica")
        figures = GaugeMetricFamily("shoal_serve_runtime_figure", "A runtime's own figure.", labels=(*labels, "figure"))
        states = GaugeMetricFamily(
            "shoal_serve_runtime_state", "The state it gives a model.", labels=(*labels, "state")
        )
        for entry in self._gateway.directory:
            for version in entry.versions:
                key = entry.key(version)
                for replica, said in self._gateway.replica_set.conditions(entry.service_id, key).items():
                    at = (entry.service.tenant, entry.name, version, replica)
                    states.add_metric((*at, said.state.word), 1)
                    for name, value in said.figures.items():
                        figures.add_metric((*at, name), value)
        yield from (figures, states)


_QUANTILES = (0.5, 0.95, 0.99)
