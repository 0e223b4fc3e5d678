"""The live jobs in memory: what is kept of those that wait, however many they are."""

from __future__ import annotations

import gc

from shoal.admission import ClusterIndex
from shoal.contract.lifecycle import JobState
from shoal.contract.manifest import JobManifest
from shoal.contract.records import JobRecord
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

    del cache
    after = JobCache(ClusterIndex())
    after.load(records, {}, [Tenant("ada")], Inventory(()))
    assert len(after.index.snapshot(0.0).pending) == 2300
    assert kept() - before <= 2000
    assert after["j-0"].manifest.name == "n0"


def test_of_few_jobs_each_manifest_is_read_once() -> None:
    cache, record = JobCache(ClusterIndex()), waiting(1)
    cache.load([record, record.evolve(id="j-2")], {}, [Tenant("ada")], Inventory(()))
    assert cache["j-1"].manifest is cache["j-2"].manifest is cache["j-1"].manifest
