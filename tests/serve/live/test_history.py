"""How services did over time."""

from __future__ import annotations

from shoal.serve.contract import ServiceStatus
from shoal.serve.live.history import Histories, Sample, worst


def test_several_samples_keep_the_greatest_latency() -> None:
    some = [Sample(0.1, 0.2, 1.0, 0), Sample(None, None, 0.0, 1), Sample(0.05, 0.9, 2.0, 3)]
    assert worst(some) == Sample(0.1, 0.9, 1.0, 3)
    assert worst(some[1:2]) == Sample(None, None, 0.0, 1)


def test_a_service_that_is_over_is_forgotten() -> None:
    histories = Histories()
    seen = [ServiceStatus("s-1", p99_s=0.2, rate_per_s=3.0), ServiceStatus("s-2")]
    histories.sample(1.0, seen, frozenset({"s-1", "s-2"}))
    histories.sample(2.0, seen, frozenset({"s-1"}))
    assert [(one.at, one.p99_s, one.rate_per_s) for one in histories.view("s-1").samples] == [
        (1.0, 0.2, 3.0), (2.0, 0.2, 3.0),
    ]  # fmt: skip
    assert histories.view("s-2").samples == []
