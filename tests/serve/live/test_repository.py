"""Services in both databases: one guarded write makes, moves and fills them, and what comes out is what went in."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from shoal.contract.records import JobFilter
from shoal.core import Conflict, Reason
from shoal.serve.lifecycle import ServiceState as S
from shoal.serve.live.records import DeploymentRecord, ServiceChange, ServiceFilter, ServiceRecord
from shoal.serve.live.repository import ServiceRepository
from shoal.serve.live.tables import TABLES
from tests.store.conftest import make, opened, postgresql, url
from tests.store.test_migrations import VERSION_TABLE, described, empty, execute

__all__ = ["make", "opened", "postgresql", "url"]
"""Fixtures of the store's tests."""

SERVICE = ServiceRecord(
    "s-1",
    "red",
    "ocr",
    S.DEPLOYING,
    1,
    '{"name":"ocr"}',
    2,
    100.0,
    100.0,
    fingerprint="f",
    reason=Reason("x", "why", {"n": 1}),
)


@pytest.fixture
def store(opened):
    return opened(tables=[TABLES])


@pytest.fixture
def services(store):
    return ServiceRepository(store)


def made(service=SERVICE, key=None, **fields):
    service = replace(service, **fields)
    deployment = DeploymentRecord(service.id, 1, 1, service.tenant, 100.0, service.manifest, "f", key)
    return ServiceChange(None, service, (), deployment)


def moved(make, before, new=None, jobs=(), **fields):
    after = replace(before, version=before.version + 1, state=new or before.state, **fields)
    events = ()
    if new is not None:
        events = (make.event("service.state", old_state=before.state, new_state=new, owner_id=before.id),)
    return ServiceChange(before, after, events, jobs=jobs)


async def test_a_service_is_kept_whole(services, store, make):
    assert await services.apply(made(key="k"))
    assert services.service("s-1") == SERVICE
    assert services.live_services() == [SERVICE]
    assert services.services(ServiceFilter()) == [SERVICE]
    assert services.deployment_by_key("red", "k") == made(key="k").deployment
    assert services.deployment_by_key("blue", "k") is None
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
    assert await services.apply(full)
    assert services.service("s-1") == full.after
    assert services.service("s-2") is None


async def test_a_change_of_an_older_version_changes_nothing(services, store, make):
    await services.apply(made())
    first, late = (
        moved(make, SERVICE, S.READY),
        moved(make, SERVICE, S.FAILED, jobs=(make.job("s-1-0", owner_id="s-1"),)),
    )
    assert await asyncio.gather(services.apply(first), services.apply(late)) == [True, False]
    assert services.service("s-1") == first.after
    assert store.job("s-1-0") is None
    assert [event.new_state for event in store.events()] == [S.READY]


async def test_replicas_come_with_the_step_that_counts_them_or_not_at_all(services, store, make):
    await services.apply(made())
    replica = make.job("s-1-0", owner_id="s-1")
    submitted = make.event("job.submitted", job_id=replica.id)
    change = moved(make, SERVICE, jobs=(replica,), launched=1)
    assert await services.apply(replace(change, events=(submitted,)))
    assert store.job("s-1-0") == replica
    assert [event.owner_id for event in store.events(owner_id="s-1")] == ["s-1"]
    doubled = moved(make, change.after, jobs=(replica,), launched=2)
    with pytest.raises(Conflict, match="the database refused the write"):
        await services.apply(doubled)
    assert services.service("s-1") == change.after


async def test_replicas_are_listed_only_when_asked_for_and_found_by_name(services, store, make):
    await services.apply(made())
    replica = make.job("s-1-0", name="ocr-0-1", owner_id="s-1")
    await services.apply(moved(make, SERVICE, jobs=(replica,)))
    job = await store.submit(make.job("j-1"), [])
    assert store.jobs(JobFilter()) == [job]
    assert store.jobs(JobFilter(owned=True)) == [replica, job]
    assert store.find_jobs("ocr-0-1", "red") == [replica]
    assert {one.id for one in store.unfinished_jobs()} == {"j-1", "s-1-0"}


async def test_what_happens_to_a_replica_is_part_of_its_services_story(services, store, make):
    from shoal.contract.lifecycle import JobState

    await services.apply(made())
    replica = make.job("s-1-0", owner_id="s-1")
    await store.submit(replica, [make.event("job.submitted", job_id="s-1-0")])
    await store.apply(make.change(replica, JobState.ADMITTED))
    await store.submit(make.job("j-1"), [make.event("job.submitted", job_id="j-1")])
    assert [event.kind for event in store.events(owner_id="s-1")] == ["job.submitted", "job.state"]
    assert len(store.events()) == 3


async def test_a_name_is_one_live_service_of_a_tenant(services, store, make):
    await services.apply(made())
    with pytest.raises(Conflict):
        await services.apply(made(id="s-2"))
    assert await services.apply(made(id="s-3", tenant="blue"))
    stopping = moved(make, SERVICE, S.STOPPING)
    await services.apply(stopping)
    await services.apply(moved(make, stopping.after, S.STOPPED, ended_at=7.0))
    assert await services.apply(made(id="s-2", created_at=101.0))
    assert [one.id for one in services.live_services()] == ["s-3", "s-2"]
    assert [one.id for one in services.services(ServiceFilter(tenant="red"))] == ["s-2", "s-1"]
    assert [one.id for one in services.services(ServiceFilter(states=frozenset({S.STOPPED})))] == ["s-1"]
    assert [one.id for one in services.services(ServiceFilter(limit=1, before_id="s-2"))] == ["s-3"]


async def test_a_key_is_one_deployment_of_a_tenant(services, store, make):
    await services.apply(made(key="k"))
    with pytest.raises(Conflict):
        await services.apply(made(id="s-2", name="other", key="k"))
    assert services.service("s-2") is None
    assert await services.apply(made(id="s-3", tenant="blue", key="k"))


async def test_an_illegal_step_is_refused_before_anything_is_written(services, store, make):
    await services.apply(made())
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
            await services.apply(change)
    assert services.service("s-1") == SERVICE
    assert store.last_seq() == 0


async def test_events_are_kept_while_their_service_lives(services, store, make):
    await services.apply(made())
    ready, stopping = moved(make, SERVICE, S.READY), moved(make, SERVICE, S.STOPPING)
    await services.apply(ready)
    await store.record([make.event(), make.event(owner_id="somebody"), make.event()])
    assert (store.count_events(200.0), await store.remove_events(200.0, 10)) == (2, 2)
    assert [event.owner_id for event in store.events()] == ["s-1", None]
    stopping = moved(make, ready.after, S.STOPPING)
    await services.apply(stopping)
    await services.apply(moved(make, stopping.after, S.STOPPED, ended_at=7.0))
    await store.record([make.event()])
    assert store.count_events(200.0) == 4


def test_the_tables_are_what_the_migrations_make(url, opened):
    opened(tables=[TABLES])
    created = described(url, TABLES)
    empty(url, TABLES)
    execute(url, VERSION_TABLE.replace("alembic_version", "alembic_version_serve"))
    opened(tables=[TABLES])
    assert described(url, TABLES) == created


async def test_services_that_are_not_opened_stay_as_they_are(services, store, make, opened):
    await services.apply(made())
    assert opened().last_seq() == 0
    assert ServiceRepository(opened(tables=[TABLES])).live_services() == [SERVICE]
