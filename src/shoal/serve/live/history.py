"""Performance of services over time, as their gateway measured it: bounded, and kept over restarts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from shoal.extension.history import Histories
from shoal.serve.contract import ServiceStatus
from shoal.serve.live.tables import samples as table
from shoal.store import Store

if TYPE_CHECKING:
    from shoal.serve.models import ServiceHistory


class Sample(NamedTuple):
    """Of the minute before: quantiles in seconds, requests a second; and what was refused since the gateway's start."""

    p50_s: float | None
    p99_s: float | None
    rate_per_s: float
    rejected: int


class ServiceHistories(Histories[Sample]):
    """One for each service that is live."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, table, worst, pack=list, unpack=lambda value: Sample(*value))

    def sample(self, now: float, seen: Iterable[ServiceStatus], live: frozenset[str]) -> None:
        """Those that are no longer live are forgotten."""
        self.keep(live)
        for one in seen:
            if one.id in live:
                self.add(one.id, now, Sample(one.p50_s, one.p99_s, one.rate_per_s, one.rejected))

    def view(self, service_id: str) -> ServiceHistory:
        from shoal.serve.models import ServiceHistory, TrafficSample

        points = self.points(service_id)
        return ServiceHistory(samples=[TrafficSample(at=at, **value._asdict()) for at, value in points])


def worst(samples: Sequence[Sample]) -> Sample:
    """Several as one: the greatest latencies, so that no peak is lost, and the mean rate."""
    return Sample(
        max((one.p50_s for one in samples if one.p50_s is not None), default=None),
        max((one.p99_s for one in samples if one.p99_s is not None), default=None),
        sum(one.rate_per_s for one in samples) / len(samples),
        samples[-1].rejected,
    )
