"""Any sequence of writes leaves what a simple model says, whether they come alone or crowd into one group."""

import asyncio

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shoal.contract.lifecycle import TRANSITIONS, JobState
from shoal.contract.records import JobFilter
from shoal.core import Conflict
from shoal.store import open_store

names = st.integers(0, 4).map("j{}".format)
submits = st.tuples(st.just("submit"), names, st.sampled_from([None, "k1", "k2"]), st.sampled_from(["f1", "f2"]))
# How stale the version is that a change is guarded by, and which of the legal steps it takes.
changes = st.tuples(st.just("change"), names, st.integers(0, 1), st.integers(0, 6))
progress = st.tuples(st.just("progress"), names, st.integers(0, 9))
writes = st.lists(st.one_of(submits, changes, changes, progress), max_size=30)


class Model:
    """Jobs by id, and the events in order."""

    def __init__(self):
        self.jobs, self.keys, self.events = {}, {}, []

    def submit(self, job):
        key = (job.tenant, job.idempotency_key)
        if job.idempotency_key is not None and key in self.keys:
            earlier = self.jobs[self.keys[key]]
            return earlier if earlier.fingerprint == job.fingerprint else Conflict
        if job.id in self.jobs:
            return Conflict
        self.jobs[job.id] = job
        if job.idempotency_key is not None:
            self.keys[key] = job.id
        self.events.append((job.id, None, "QUEUED"))
        return job

    def apply(self, change):
        stored = self.jobs.get(change.before.id)
        if stored is None or stored.version != change.before.version:
            return False
        self.jobs[stored.id] = change.after.evolve(progress=stored.progress)
        self.events.append((stored.id, change.before.state, change.after.state))
        return True

    def progress(self, job_id, value):
        if job_id in self.jobs:
            self.jobs[job_id] = self.jobs[job_id].evolve(progress=value)


def guess(make, model, job_id, staleness, choice):
    """A legal change of the job as it stands, or of one that is a version behind it."""
    job = model.jobs.get(job_id) or make.job(job_id)
    steps = sorted(TRANSITIONS[job.state])
    if not steps:
        return make.change(job.evolve(version=job.version - staleness), message="noted")
    return make.change(job.evolve(version=job.version - staleness), steps[choice % len(steps)])


@pytest.fixture(params=[True, False], ids=["inline", "threaded"])
def fresh(request, url):
    """Opens a store with nothing in it."""

    def open_fresh():
        if url.startswith("sqlite"):
            return open_store("sqlite://", inline=request.param)
        store = open_store(url, inline=request.param)
        with psycopg.connect(url) as connection:
            connection.execute("TRUNCATE job, attempt, event, metric")
        return store

    return open_fresh


@pytest.mark.few(count=2)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sequence=writes)
def test_one_after_another(fresh, make, sequence):
    asyncio.run(play(fresh(), make, sequence))


async def play(store, make, sequence):
    model = Model()
    for what, job_id, *rest in sequence:
        if what == "submit":
            job = make.job(job_id, idempotency_key=rest[0], fingerprint=rest[1])
            event = make.event("job.state", job_id=job_id, new_state=JobState.QUEUED)
            (given_back,) = await asyncio.gather(store.submit(job, [event]), return_exceptions=True)
            expected = model.submit(job)
            assert given_back == expected or type(given_back) is expected
        elif what == "change":
            change = guess(make, model, job_id, *rest)
            assert await store.apply(change) is model.apply(change)
        else:
            await store.update_progress(job_id, {"step": rest[0]})
            model.progress(job_id, {"step": rest[0]})
    check(store, model)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rounds=st.lists(st.lists(st.tuples(names, st.integers(0, 1), st.integers(0, 6)), max_size=8), max_size=5))
@pytest.mark.slow
def test_crowds_of_changes(fresh, make, rounds):
    asyncio.run(crowd(fresh(), make, rounds))


async def crowd(store, make, rounds):
    """Each round's changes start from the same state; for every version the first one wins, the rest are stale."""
    model = Model()
    for n in range(4):
        job = model.submit(make.job(f"j{n}"))
        await store.submit(job, [make.event("job.state", job_id=job.id, new_state=JobState.QUEUED)])
    for choices in rounds:
        crowded = [guess(make, model, *choice) for choice in choices]
        assert list(await asyncio.gather(*map(store.apply, crowded))) == [model.apply(change) for change in crowded]
    check(store, model)


def check(store, model):
    assert {job.id: job for job in store.jobs(JobFilter())} == model.jobs
    steps = [(event.job_id, event.old_state, event.new_state) for event in store.events() if event.kind == "job.state"]
    assert steps == [step for step in model.events if step[1] != step[2]]
    assert [event.seq for event in store.events()] == list(range(1, store.last_seq() + 1))
    assert [job.id for job in store.unfinished_jobs()] == sorted(
        job.id for job in model.jobs.values() if not job.state.terminal
    )
    store.close()
