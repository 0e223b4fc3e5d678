"""Job arrays in both databases: stored at once, counted, listed in place of their tasks, removed with the last one."""

import pytest

from shoal.contract.lifecycle import JobState
from shoal.contract.records import ArrayRecord, Ends, JobFilter
from shoal.core import Conflict

ARRAY = ArrayRecord("j-a", "ada", "sweep", "0-2%2", 3, 20.0)


def tasks(make):
    return [
        make.job(
            f"j-a-{n}", tenant="ada", array_id="j-a", submitted_at=20.0 + n / 10, fingerprint="f",
            idempotency_key=None if n else "k",
        )
        for n in range(3)
    ]  # fmt: skip


def noted(make, jobs):
    return [make.event("job.submitted", job_id=job.id) for job in jobs]


async def over(store, make, job, state):
    path = (JobState.ADMITTED, JobState.PLACED, JobState.STARTING, JobState.RUNNING, state)
    assert await store.apply(make.change(job, *path, ended_at=30.0))


async def test_an_array_is_stored_whole_and_once(store, make):
    jobs = tasks(make)
    assert await store.submit_array(ARRAY, jobs, noted(make, jobs)) == jobs[0]
    assert await store.submit_array(ARRAY, jobs, noted(make, jobs)) == jobs[0]
    other = [job.evolve(fingerprint="g") for job in jobs]
    with pytest.raises(Conflict, match="used for another job"):
        await store.submit_array(ARRAY, other, noted(make, other))
    assert store.array("j-a") == ARRAY
    assert store.find_arrays("sweep", "ada") == store.find_arrays("j-a", None) == [ARRAY]
    assert store.find_arrays("sweep", "bob") == []
    assert store.array_tasks("j-a") == ["j-a-0", "j-a-1", "j-a-2"]
    assert len(store.events()) == 3
    assert [job.array_index for job in store.unfinished_jobs()] == [0, 1, 2]


async def test_how_far_it_is_and_what_goes_with_its_last_task(store, make):
    jobs = tasks(make)
    await store.submit_array(ARRAY, jobs, noted(make, jobs))
    assert store.ends("j-a") == Ends(3, failed=False)
    assert store.ends("j-none") is None
    await over(store, make, jobs[0], JobState.SUCCEEDED)
    assert (store.ends("j-a"), store.ends("j-a-0")) == (Ends(2, failed=False), Ends(0, failed=False))
    await over(store, make, jobs[1], JobState.FAILED)
    assert (store.ends("j-a"), store.ends("j-a-1")) == (Ends(1, failed=True), Ends(0, failed=True))
    assert store.array_tasks("j-a", finished=False) == ["j-a-2"]
    assert store.array_counts(["j-a", "j-b"]) == {
        "j-a": {JobState.QUEUED: 1, JobState.SUCCEEDED: 1, JobState.FAILED: 1}
    }
    await store.remove_jobs(["j-a-0", "j-a-1"], make.event())
    assert store.array("j-a") == ARRAY
    await over(store, make, jobs[2], JobState.SUCCEEDED)
    await store.remove_jobs(["j-a-2"], make.event())
    assert store.array("j-a") is None


async def test_a_listing_has_arrays_in_place_of_their_tasks(store, make):
    for name, at, owner in (("j-1", 10.0, None), ("j-2", 30.0, None), ("j-3", 40.0, "s-1")):
        await store.submit(make.job(name, tenant="ada", submitted_at=at, owner_id=owner), [make.event(job_id=name)])
    jobs = tasks(make)
    await store.submit_array(ARRAY, jobs, noted(make, jobs))

    def listed(**asked):
        found, arrays = store.folded(JobFilter(**asked))
        return [job.id for job in found], [array.id for array in arrays]

    assert listed() == (["j-2", "j-1"], ["j-a"])
    assert listed(owned=True) == (["j-3", "j-2", "j-1"], ["j-a"])
    assert listed(limit=1) == (["j-2"], [])
    assert listed(limit=2) == (["j-2"], ["j-a"])
    assert listed(limit=1, before_id="j-2") == ([], ["j-a"])
    assert listed(before_id="j-a") == (["j-1"], [])
    assert listed(before_id="j-none") == ([], [])
    assert listed(since=15.0) == (["j-2"], ["j-a"])
    assert listed(tenant="bob") == ([], [])
