"""How services did over time."""

from __future__ import annotations

from pathlib import Path

from shoal.serve.contract import ServiceStatus
from shoal.serve.live.history import Sample, ServiceHistories, worst
from shoal.serve.live.tables import TABLES
from shoal.store import open_store


def test_several_samples_keep_the_greatest_latency() -> None:
    some = [Sample(0.1, 0.2, 1.0, 0), Sample(None, None, 0.0, 1), Sample(0.05, 0.9, 2.0, 3)]
    assert worst(some) == Sample(0.1, 0.9, 1.0, 3)
    assert worst(some[1:2]) == Sample(None, None, 0.0, 1)


async def test_a_service_that_is_over_is_forgotten_and_the_others_are_known_after_a_restart(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'shoal.db'}", tables=[TABLES])
    store.acquire("test")
    histories = ServiceHistories(store)
    seen = [ServiceStatus("s-1", p99_s=0.2, rate_per_s=3.0), ServiceStatus("s-2")]
    histories.sample(1.0, seen, frozenset({"s-1", "s-2"}))
    await histories.write()
    histories.sample(2.0, seen, frozenset({"s-1"}))
    await histories.write()
    again = ServiceHistories(store)
    again.load()
    for one in (histories, again):
        assert [(each.at, each.p99_s, each.rate_per_s) for each in one.view("s-1").samples] == [
            (1.0, 0.2, 3.0), (2.0, 0.2, 3.0),
        ]  # fmt: skip
        assert one.view("s-2").samples == []
    store.close()
