"""The live jobs in memory: what is kept of those that wait, however many they are."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from shoal.admission import ClusterIndex
from shoal.contract.lifecycle import JobState
from shoal.contract.manifest import JobManifest
from shoal.contract.records import JobRecord
from shoal.control.jobs import asked as asked_module
from shoal.control.jobs.asked import asked_by, asked_in
from shoal.control.jobs.cache import JobCache
from shoal.core import PriorityClass, Tenant
from shoal.engine import Inventory

from .simulation import manifest


def waiting(number: int) -> JobRecord:
    asked = manifest(name=f"n{number}", labels={"number": str(number)})
    return JobRecord(
        id=f"j-{number}", tenant="ada", name=asked.name, state=JobState.QUEUED, version=1,
        manifest=asked.canonical_json(), resources=asked.resources_per_rank(), ranks=1,
        priority_class=PriorityClass.BEST_EFFORT, priority=0, submitted_at=float(number), updated_at=0.0,
    )  # fmt: skip


def kept() -> int:
    gc.collect()
    return sum(isinstance(each, JobManifest) for each in gc.get_objects())


def test_of_many_jobs_that_wait_only_some_have_their_manifests_read() -> None:
    records = [waiting(number) for number in range(2300)]
    before = kept()
    cache = JobCache(ClusterIndex())
    cache.index.set_tenant(Tenant("ada"))
    for record in records:
        cache.added(record, manifest=manifest(name=record.name, labels={"number": record.name[1:]}))
    assert len(cache.index.snapshot(0.0).pending) == 2300
    assert kept() - before <= 2000
    assert cache["j-2299"].manifest.labels == {"number": "2299"}  # read again


def test_a_restart_reads_no_manifest_twice_that_asks_the_same() -> None:
    records = [waiting(number) for number in range(2300)]
    before = kept()
    cache = JobCache(ClusterIndex())
    cache.load(records, {}, [Tenant("ada")], Inventory(()))
    assert len(cache.index.snapshot(0.0).pending) == 2300
    assert kept() == before
    assert cache["j-0"].manifest.name == "n0"


MANY = [
    {}, {"placement": "spread"}, {"nodes": {"require": {"zone": "a"}}}, {"ranks": 4, "ranks_per_node": 2},
    {"max_runtime": "1h"}, {"restart": {"on": "always"}}, {"after": ["j-7"]}, {"array": "0-9%3"},
]  # fmt: skip


@pytest.mark.parametrize("asks", MANY, ids=str)
def test_what_deciding_reads_is_each_manifests_own(asks: dict[str, Any]) -> None:
    """Among others that differ in who and what they run, and that quote what is looked for."""
    for trap in ("x", ',"resources":{"accelerators":{}', "\\"):
        asked = manifest(
            name="n", labels={"resources": trap}, env={"resources": trap}, command=["a", trap], description=trap, **asks
        )
        record = waiting(1).evolve(manifest=asked.canonical_json())
        assert asked_by(record) == asked_in(asked)
        assert asked_by(record, asked) is asked_by(record)


def test_long_manifests_of_tenants_do_not_fill_the_memory() -> None:
    before = dict(asked_module._known)
    for number in range(20):
        long = manifest(name="n", outputs=[{"from": f"{number}-{'x' * 900}-{at}", "to": "/srv/x"} for at in range(12)])
        assert asked_by(waiting(number).evolve(manifest=long.canonical_json())) == asked_in(long)
    assert asked_module._known == before
