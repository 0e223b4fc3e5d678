"""Performance of services over time, as their gateway measured it: bounded, in memory, since the server's start."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from shoal.base.history import History
from shoal.serve.contract import ServiceStatus

if TYPE_CHECKING:
    from shoal.serve.models import ServiceHistory


class Sample(NamedTuple):
    """Of the minute before: quantiles in seconds, requests a second; and what was refused since the gateway's start."""

    p50_s: float | None
    p99_s: float | None
    rate_per_s: float
    rejected: int


class Histories:
    """One for each service that is live."""

    def __init__(self) -> None:
        self._of: dict[str, History[Sample]] = {}

    def sample(self, now: float, seen: Iterable[ServiceStatus], live: frozenset[str]) -> None:
        """Those that are no longer live are forgotten."""
        self._of = {name: history for name, history in self._of.items() if name in live}
        for one in seen:
            if one.id in live:
                history = self._of.setdefault(one.id, History(worst))
                history.add(now, Sample(one.p50_s, one.p99_s, one.rate_per_s, one.rejected))

    def view(self, service_id: str) -> ServiceHistory:
        from shoal.serve.models import ServiceHistory, TrafficSample

        history = self._of.get(service_id)
        points = history.points() if history is not None else []
        return ServiceHistory(samples=[TrafficSample(at=at, **value._asdict()) for at, value in points])


def worst(samples: Sequence[Sample]) -> Sample:
    """Several as one: the greatest latencies, so that no peak is lost, and the mean rate."""
    return Sample(
        max((one.p50_s for one in samples if one.p50_s is not None), default=None),
        max((one.p99_s for one in samples if one.p99_s is not None), default=None),
        sum(one.rate_per_s for one in samples) / len(samples),
        samples[-1].rejected,
    )
