"""Bills are split to the last micro-dollar, whatever was used and however the time is cut."""

from __future__ import annotations

import contextlib
import json
import resource
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core import Invalid, Money, PriorityClass
from shoal.inference.types import ModelSpec
from shoal.serve.contract import Deployment, GatewayConfig, TenantEntry
from shoal.serve.gateway.meter import INTERVAL_S, Meter
from shoal.serve.types import ServiceSpec
from shoal.serve.usage import OPERATOR, OpenInterval, Share, UsageRecord
from tests.serve import usage_file

TENANTS = ("ada", "bob", "cleo")
seconds = st.floats(0, 1e4, allow_nan=False)
prices = st.integers(0, 10**9).map(Money)
events = st.lists(st.tuples(st.sampled_from(("use", "overhead")), st.sampled_from(TENANTS), seconds), max_size=12)
reservations = st.dictionaries(st.sampled_from(TENANTS), st.integers(0, 10_000))


@given(
    price=prices, slots=st.integers(1, 64), start=st.floats(0, 2e9),
    intervals=st.lists(st.tuples(seconds, events, reservations), min_size=1, max_size=8),
)  # fmt: skip
def test_shares_add_up_to_the_bill_and_bills_to_the_price_of_the_time(
    price: Money, slots: int, start: float, intervals: list[tuple[float, list[tuple[str, str, float]], dict[str, int]]]
) -> None:
    book = OpenInterval(price, slots, start)
    now, billed = start, Money(0)
    for length, used, reserved in intervals:
        book.reserved = reserved
        for kind, tenant, slot_s in used:
            getattr(book, kind)(tenant, slot_s)
        now += length
        record = book.close(now)
        billed += record.bill
        assert sum((share.cost for share in record.shares), Money(0)) == record.bill
        assert all(min(share.use, share.overhead, share.idle) >= Money(0) for share in record.shares)
        assert {share.tenant for share in record.shares} <= {*TENANTS, OPERATOR}
    assert billed == price * ((now - start) / 3600)


def test_an_interval_is_shared_by_use_and_what_is_idle_by_reservation() -> None:
    book = OpenInterval(Money.usd(36), 2, 1000.0, {"ada": 1000, "bob": 3000})
    book.use("ada", 10)
    book.overhead("cleo", 5)
    record = book.close(1010.0)
    assert record.bill == Money.usd("0.1")  # 20 slot-seconds: 10 used, 5 overhead, 5 idle
    by_tenant = {share.tenant: share for share in record.shares}
    assert by_tenant["ada"].use == Money.usd("0.05")
    assert by_tenant["cleo"].overhead == Money.usd("0.025")
    assert (by_tenant["ada"].idle, by_tenant["bob"].idle) == (Money(6250), Money(18750))
    assert by_tenant["cleo"].idle == Money(0)


def test_without_a_reservation_idle_time_is_the_operators() -> None:
    record = OpenInterval(Money.usd(3600), 1, 0.0).close(1.0)
    assert record.shares == (Share(OPERATOR, idle=Money.usd(1)),)


def test_more_use_than_there_is_time_for_is_shared_in_proportion() -> None:
    book = OpenInterval(Money.usd(3600), 1, 0.0, {"cleo": 1})
    book.use("ada", 30)  # entered when the execution ends, in an interval shorter than it
    book.use("bob", 10)
    costs = {share.tenant: share.cost for share in book.close(1.0).shares}
    assert costs == {"ada": Money.usd("0.75"), "bob": Money.usd("0.25"), "cleo": Money(0)}


def test_a_clock_that_goes_back_bills_nothing_twice() -> None:
    book = OpenInterval(Money.usd(3600), 1, 100.0)
    assert [book.close(now).bill for now in (110.0, 105.0, 112.0)] == [Money.usd(10), Money(0), Money.usd(2)]


def test_a_pool_has_a_slot() -> None:
    with pytest.raises(Invalid, match="at least one slot, not 0"):
        OpenInterval(Money(1), 0, 0.0)


@given(price=prices, length=seconds, used=events, reserved=reservations)
def test_a_record_is_read_as_it_was_written(
    price: Money, length: float, used: list[tuple[str, str, float]], reserved: dict[str, int]
) -> None:
    book = OpenInterval(price, 4, 0.0, reserved)
    for kind, tenant, slot_s in used:
        getattr(book, kind)(tenant, slot_s)
    record = book.close(length)
    again = usage_file.record(json.loads(json.dumps(record.as_json())))
    assert (again.bill, [share.cost for share in again.shares]) == (record.bill, [one.cost for one in record.shares])
    assert again.as_json() == record.as_json()


# --- the meter, which keeps the book and the file ---


class Now:
    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


def config(price: Money, *deployments: tuple[str, int, int, PriorityClass]) -> GatewayConfig:
    """Deployments by their tenant (whose name is the service's id as well), generation, replicas and class."""
    return GatewayConfig(
        1, "/socket", 2, price_per_hour=price, tenants=(TenantEntry("ada", 1.0), TenantEntry("bob", 3.0)),
        services=tuple(
            Deployment(tenant, generation, ServiceSpec(
                "s", tenant, (ModelSpec("m", "/m", threads=2),), replicas=replicas, priority_class=kind,
            ), f"{tenant}{generation}")
            for tenant, generation, replicas, kind in deployments
        ),
    )  # fmt: skip


def costs(meter: Meter) -> dict[str, Money]:
    return {total.tenant: total.cost for total in meter.totals()}


@pytest.fixture
def at(tmp_path: Path) -> Callable[[Now], Meter]:
    nobody = replace(config(Money.usd(3600)), tenants=())  # idle time is the operator's
    return lambda now: Meter(nobody, tmp_path / "usage.jsonl", clock=now)


def lines(tmp_path: Path) -> list[UsageRecord]:
    return usage_file.read(tmp_path / "usage.jsonl")


def test_intervals_are_written_when_they_are_over(tmp_path: Path, at: Callable[[Now], Meter]) -> None:
    now = Now()
    meter = at(now)
    meter.use("ada", 2.0)
    now.at += INTERVAL_S / 2
    meter.close_interval()
    assert (costs(meter), lines(tmp_path)) == ({}, [])
    now.at += INTERVAL_S / 2
    meter.close_interval()
    assert costs(meter) == {"ada": Money.usd(1)}
    assert [(one.start, one.end, one.bill) for one in lines(tmp_path)] == [(1000, 1010, Money.usd(10))]
    meter.close()


def test_nothing_is_written_of_time_that_is_free_and_idle(tmp_path: Path) -> None:
    now = Now()
    meter = Meter(config(Money(0)), tmp_path / "usage.jsonl", clock=now)
    now.at += INTERVAL_S
    meter.close_interval()
    assert lines(tmp_path) == []
    meter.use("ada", 1.0)
    meter.close()
    assert [share.use_s for one in lines(tmp_path) for share in one.shares if share.tenant == "ada"] == [1.0]


def test_idle_time_goes_by_what_the_newest_generations_reserve_and_else_by_weight(at: Callable[[Now], Meter]) -> None:
    now, price = Now(), Money.usd(3600)
    meter = at(now)
    meter.follow(config(price))
    now.at += 4
    guaranteed, best_effort = PriorityClass.GUARANTEED, PriorityClass.BEST_EFFORT
    rollout = config(price, ("ada", 1, 3, guaranteed), ("ada", 2, 1, guaranteed), ("bob", 1, 9, best_effort))
    meter.follow(rollout)
    assert costs(meter) == {"ada": Money.usd(1), "bob": Money.usd(3)}
    now.at += 4
    meter.follow(rollout)  # the same again ends no interval
    assert costs(meter) == {"ada": Money.usd(1), "bob": Money.usd(3)}
    meter.follow(config(price, ("ada", 2, 1, guaranteed), ("bob", 2, 1, guaranteed)))
    assert costs(meter) == {"ada": Money.usd(5), "bob": Money.usd(3)}
    meter.close()


def test_a_price_counts_from_when_it_changed(at: Callable[[Now], Meter]) -> None:
    now = Now()
    meter = at(now)
    meter.use("ada", 2.0)
    now.at += 1
    meter.follow(replace(config(Money.usd(7200)), tenants=()))
    meter.use("ada", 2.0)
    now.at += 1
    meter.close()
    assert costs(meter)["ada"] == Money.usd(3)


def test_totals_go_on_after_a_restart_even_if_the_last_line_was_torn(
    tmp_path: Path, at: Callable[[Now], Meter]
) -> None:
    now, file = Now(), tmp_path / "usage.jsonl"
    for used_s in (2.0, 1.0):
        meter = at(now)
        meter.use("ada", used_s)
        now.at += 1
        meter.close()
    total = costs(meter)
    assert total == {"ada": Money.usd("1.5")}
    with file.open("ab") as torn:
        torn.write(file.read_bytes().splitlines()[-1][:40])
    meter = at(now)
    assert costs(meter) == total
    meter.use("ada", 2.0)
    now.at += 1
    meter.close()
    assert costs(meter) == {"ada": Money.usd("2.5")}
    assert len(lines(tmp_path)) == 3  # the torn one spoils only itself
    assert costs(at(now)) == {"ada": Money.usd("2.5")}


def test_a_file_of_nonsense_is_kept_and_begins_anew(
    tmp_path: Path, at: Callable[[Now], Meter], caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "usage.jsonl").write_bytes(b'{"totals": 3}\n\xff\xfe\n[]\n')
    meter = at(Now())
    assert costs(meter) == {}
    assert "the totals begin anew" in caplog.text
    meter.use("ada", 1.0)
    meter.close()
    assert (tmp_path / "usage.jsonl").read_bytes().startswith(b'{"totals": 3}\n')


@contextlib.contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """As on a disk with so much room."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_what_a_full_disk_does_not_take_is_written_when_there_is_room(
    tmp_path: Path, at: Callable[[Now], Meter], caplog: pytest.LogCaptureFixture
) -> None:
    now, file = Now(), tmp_path / "usage.jsonl"
    meter = at(now)
    with files_of_at_most(100):
        for _ in range(3):
            meter.use("ada", 2.0)
            now.at += INTERVAL_S
            meter.close_interval()
        assert file.stat().st_size == 100  # a part of the first line
    assert "the usage file cannot be written" in caplog.text
    assert costs(meter) == {"ada": Money.usd(3)}
    meter.use("ada", 2.0)
    now.at += 1
    meter.close()
    assert [one.end for one in lines(tmp_path)] == [1010, 1020, 1030, 1031]
    assert costs(at(now)) == costs(meter)
