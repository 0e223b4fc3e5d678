"""What a quota leaves: which limits a job would break, what it takes, and how many of its ranks still fit."""

from __future__ import annotations

import pytest

from shoal.admission import TenantState
from shoal.admission.quota import Account, Limit
from shoal.admission.snapshot import Need
from shoal.core import Quota, Resources, Tenant

RANK = Need("a100", 2, (("h100", 1),), 1000, 4096)
USED = Resources({"a100": 4, "h100": 1}, 3000, 8192)


def account(quota: Quota, used: Resources = USED, running_jobs: int = 2) -> Account:
    return Account(TenantState(Tenant("ada", quota=quota), used=used, running_jobs=running_jobs))


@pytest.mark.parametrize(
    ("quota", "limit"),
    [
        (Quota(accelerators=10), Limit("accelerators", 10, 5, 6)),
        (Quota(by_type=(("a100", 7),)), Limit("accelerators.a100", 7, 4, 4)),
        (Quota(by_type=(("h100", 2),)), Limit("accelerators.h100", 2, 1, 2)),
        (Quota(cpu_milli=4999), Limit("cpu_milli", 4999, 3000, 2000)),
        (Quota(memory_bytes=16383), Limit("memory_bytes", 16383, 8192, 8192)),
        (Quota(running_jobs=2), Limit("running_jobs", 2, 2, 1)),
    ],
)
def test_a_limit_is_broken_by_what_goes_over_it_and_not_by_what_fills_it(quota: Quota, limit: Limit) -> None:
    assert not account(quota).unlimited
    assert account(quota).exceeded(RANK, 2) == (limit,)
    (name,) = [field for field in ("accelerators", "cpu_milli", "memory_bytes", "running_jobs", "by_type")
               if getattr(quota, field)]  # fmt: skip
    more = ((quota.by_type[0][0], limit.used + limit.needs),) if name == "by_type" else limit.used + limit.needs
    assert account(Quota(**{name: more})).exceeded(RANK, 2) == ()


def test_what_a_job_does_not_take_is_not_counted() -> None:
    none = Quota(accelerators=0, by_type=(("a100", 0), ("h100", 0)), cpu_milli=0, memory_bytes=0)
    assert account(none).exceeded(Need("a100", 0, (), 0, 0), 2) == ()
    assert account(Quota(by_type=(("v100", 0),))).exceeded(RANK, 2) == ()
    fresh = account(Quota(by_type=(("a100", 3),)), used=Resources())
    assert fresh.exceeded(RANK, 2) == (Limit("accelerators.a100", 3, 0, 4),)
    fresh.take(Need("a100", 1, (), 0, 0), 1)
    assert fresh.exceeded(RANK, 2) == (Limit("accelerators.a100", 3, 1, 4),)


def test_without_any_limit_nothing_stands_in_the_way() -> None:
    free = account(Quota())
    assert free.unlimited
    assert (free.exceeded(RANK, 1000), free.most(RANK, 1000)) == ((), 1000)


def test_a_job_that_could_never_start_is_told_apart_from_one_that_must_wait() -> None:
    assert Limit("accelerators", 5, 0, 6).never
    assert not Limit("accelerators", 6, 6, 6).never


def test_what_starts_is_taken_of_every_limit() -> None:
    quota = Quota(accelerators=20, by_type=(("a100", 20), ("h100", 20)), cpu_milli=20, memory_bytes=20, running_jobs=20)
    held = account(quota)
    for _ in range(2):
        held.take(RANK, 3)
    found = {limit.name: limit.used for limit in held.exceeded(Need("a100", 50, (("h100", 50),), 50, 50), 100)}
    assert found == {
        "accelerators.a100": 4 + 12, "accelerators.h100": 1 + 6, "accelerators": 5 + 18, "cpu_milli": 3000 + 6000,
        "memory_bytes": 8192 + 6 * 4096,
    }  # fmt: skip
    assert account(Quota(running_jobs=3)).exceeded(RANK, 1) == ()
    full = account(Quota(running_jobs=3))
    full.take(RANK, 5)
    assert full.exceeded(RANK, 1) == (Limit("running_jobs", 3, 3, 1),)


@pytest.mark.parametrize(
    ("quota", "ranks"),
    [
        (Quota(accelerators=13), 2),
        (Quota(accelerators=14), 3),
        (Quota(accelerators=4), 0),
        (Quota(cpu_milli=4999), 1),
        (Quota(memory_bytes=1 << 30), 8),
        (Quota(running_jobs=3), 8),
        (Quota(running_jobs=4), 8),
        (Quota(running_jobs=2), 0),
        (Quota(running_jobs=1), 0),
    ],
)
def test_as_many_ranks_as_the_limits_leave(quota: Quota, ranks: int) -> None:
    assert account(quota).most(RANK, 8) == ranks


def test_what_is_saved_for_an_older_job_names_it() -> None:
    held = account(Quota(accelerators=10, cpu_milli=10_000))
    assert held.saved(RANK, 1) is None
    held.saved_for["cpu_milli"] = "old"
    assert held.saved(RANK, 1) == "old"
    assert held.saved(Need("a100", 1, (), 0, 0), 1) is None
