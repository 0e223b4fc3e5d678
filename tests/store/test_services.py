"""Services in the store: one guarded write makes, moves and fills them, and what comes out is what went in."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from shoal.contract.records import JobFilter
from shoal.contract.service_lifecycle import ServiceState as S
from shoal.contract.service_records import DeploymentRecord, ServiceChange, ServiceFilter, ServiceRecord
from shoal.core import Conflict

SERVICE = ServiceRecord(
    "s-1", "red", "ocr", S.DEPLOYING, 1, '{"name":"ocr"}', 2, 100.0, 100.0, fingerprint="f", reason={"code": "x"}
)


def made(service=SERVICE, key=None, **fields):
    service = replace(service, **fields)
    deployment = DeploymentRecord(service.id, 1, 1, service.tenant, 100.0, service.manifest, "f", key)
    return ServiceChange(None, service, (), deployment)


def moved(make, before, new=None, jobs=(), **fields):
    after = replace(before, version=before.version + 1, state=new or before.state, **fields)
    events = ()
    if new is not None:
        events = (make.event("service.state", old_state=before.state, new_state=new, service_id=before.id),)
    return ServiceChange(before, after, events, jobs=jobs)


async def test_a_service_is_kept_whole(store, make):
    assert await store.apply_service(made(key="k"))
    assert store.service("s-1") == SERVICE
    assert store.live_services() == [SERVICE]
    assert store.services(ServiceFilter()) == [SERVICE]
    assert store.deployment_by_key("red", "k") == made(key="k").deployment
    assert store.deployment_by_key("blue", "k") is None
    full = moved(
        make,
        SERVICE,
        S.READY,
        updated_at=2.5,
        replicas=3,
        generation=4,
        deployment=5,
        serves=3,
        launched=9,
        reason=None,
    )
    assert await store.apply_service(full)
    assert store.service("s-1") == full.after
    assert store.service("s-2") is None


async def test_a_change_of_an_older_version_changes_nothing(store, make):
    await store.apply_service(made())
    first, late = (
        moved(make, SERVICE, S.READY),
        moved(make, SERVICE, S.FAILED, jobs=(make.job("s-1-0", service_id="s-1"),)),
    )
    assert await asyncio.gather(store.apply_service(first), store.apply_service(late)) == [True, False]
    assert store.service("s-1") == first.after
    assert store.job("s-1-0") is None
    assert [event.new_state for event in store.events()] == [S.READY]


async def test_replicas_come_with_the_step_that_counts_them_or_not_at_all(store, make):
    await store.apply_service(made())
    replica = make.job("s-1-0", service_id="s-1")
    submitted = make.event("job.submitted", job_id=replica.id)
    change = moved(make, SERVICE, jobs=(replica,), launched=1)
    assert await store.apply_service(replace(change, events=(submitted,)))
    assert store.job("s-1-0") == replica
    assert [event.service_id for event in store.events(service_id="s-1")] == ["s-1"]
    doubled = moved(make, change.after, jobs=(replica,), launched=2)
    with pytest.raises(Conflict, match="the database refused the write"):
        await store.apply_service(doubled)
    assert store.service("s-1") == change.after


async def test_replicas_are_listed_only_when_asked_for_and_found_by_name(store, make):
    await store.apply_service(made())
    replica = make.job("s-1-0", name="ocr-0-1", service_id="s-1")
    await store.apply_service(moved(make, SERVICE, jobs=(replica,)))
    job = await store.submit(make.job("j-1"), [])
    assert store.jobs(JobFilter()) == [job]
    assert store.jobs(JobFilter(replicas=True)) == [replica, job]
    assert store.find_jobs("ocr-0-1", "red") == [replica]
    assert {one.id for one in store.unfinished_jobs()} == {"j-1", "s-1-0"}


async def test_what_happens_to_a_replica_is_part_of_its_services_story(store, make):
    from shoal.contract.lifecycle import JobState

    await store.apply_service(made())
    replica = make.job("s-1-0", service_id="s-1")
    await store.submit(replica, [make.event("job.submitted", job_id="s-1-0")])
    await store.apply(make.change(replica, JobState.ADMITTED))
    await store.submit(make.job("j-1"), [make.event("job.submitted", job_id="j-1")])
    assert [event.kind for event in store.events(service_id="s-1")] == ["job.submitted", "job.state"]
    assert len(store.events()) == 3


async def test_a_name_is_one_live_service_of_a_tenant(store, make):
    await store.apply_service(made())
    with pytest.raises(Conflict):
        await store.apply_service(made(id="s-2"))
    assert await store.apply_service(made(id="s-3", tenant="blue"))
    stopping = moved(make, SERVICE, S.STOPPING)
    await store.apply_service(stopping)
    await store.apply_service(moved(make, stopping.after, S.STOPPED, ended_at=7.0))
    assert await store.apply_service(made(id="s-2", created_at=101.0))
    assert [one.id for one in store.live_services()] == ["s-3", "s-2"]
    assert [one.id for one in store.services(ServiceFilter(tenant="red"))] == ["s-2", "s-1"]
    assert [one.id for one in store.services(ServiceFilter(states=frozenset({S.STOPPED})))] == ["s-1"]
    assert [one.id for one in store.services(ServiceFilter(limit=1, before_id="s-2"))] == ["s-3"]


async def test_a_key_is_one_deployment_of_a_tenant(store, make):
    await store.apply_service(made(key="k"))
    with pytest.raises(Conflict):
        await store.apply_service(made(id="s-2", name="other", key="k"))
    assert store.service("s-2") is None
    assert await store.apply_service(made(id="s-3", tenant="blue", key="k"))


async def test_an_illegal_step_is_refused_before_anything_is_written(store, make):
    await store.apply_service(made())
    legal = moved(make, SERVICE, S.READY)
    illegal = {
        "the events lead to READY, the row to FAILED": replace(legal, after=replace(legal.after, state=S.FAILED)),
        "the events lead to DEPLOYING, the row to READY": replace(legal, events=()),
        "cannot go from DEPLOYING to STOPPED": moved(make, SERVICE, S.STOPPED),
        "version 1 does not follow 1": replace(legal, after=replace(legal.after, version=1)),
        "keeps its tenant for life": replace(legal, after=replace(legal.after, tenant="blue")),
        "is no replica of this service": replace(legal, jobs=(make.job("j-1"),)),
    }
    for message, change in illegal.items():
        with pytest.raises(Conflict, match=message):
            await store.apply_service(change)
    assert store.service("s-1") == SERVICE
    assert store.last_seq() == 0
