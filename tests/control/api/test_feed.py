"""What is committed wakes requests, whenever they began to watch."""

from __future__ import annotations

from shoal.contract.records import Event
from shoal.control.api.feed import Feed


def _event(job_id: str) -> Event:
    return Event(1, 0.0, "job.state", "test", "a cause", "default", job_id, 1, "RUNNING", "SUCCEEDED", {})


async def test_a_request_that_begins_before_memory_follows_a_commit_is_woken() -> None:
    """The commit is told first, and memory follows in the next turn of the loop; a request may look in between."""
    feed = Feed()
    feed.committed([_event("j")])
    with feed.watch(job_id="j") as watch:
        watch.clear()
        assert await watch.wait(5)


async def test_a_commit_of_another_job_wakes_nothing() -> None:
    feed = Feed()
    with feed.watch(job_id="j") as watch:
        feed.committed([_event("k")])
        assert not await watch.wait(0.01)
