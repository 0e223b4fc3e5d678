"""What the store keeps of jobs, and what it refuses."""

import asyncio
import math
from dataclasses import replace

import pytest

from shoal.contract.lifecycle import Desired, ErrorCode, JobOrder, JobState, Outcome, Stop
from shoal.contract.records import JobFilter, MetricPoint, ReadPosition
from shoal.core import Conflict, Invalid, PriorityClass, Resources

S = JobState


async def test_a_job_comes_back_as_it_was_given(store, make):
    job = make.job(
        "j1",
        desired=Desired.SUSPEND,
        attempt=4,
        queued_at=1.5,
        started_at=2.5,
        ended_at=3.5,
        not_before=4.5,
        deadline_at=5.5,
        expected_s=6.5,
        retries={"user": 1, "infrastructure": 2},
        waited_s=0.1 + 0.2,
        ran_s=1e300,
        error_code=ErrorCode.OUT_OF_MEMORY,
        message="größer",
        reason={"code": "quota", "text": "waits", "facts": {"free": 5, "by": [1, 2.5, None]}},
        wait_cause={},
        min_ranks=2,
        size=3,
        read_position=ReadPosition(4, {"log": 1 << 40}),
        progress={"step": 7, "metrics": {"loss": 0.25}},
        idempotency_key="k",
        resources=Resources({"a100": 1, "t4": 2}, 500, 1 << 40),
        priority_class=PriorityClass.BEST_EFFORT,
        priority=-(1 << 40),
        manifest='{"name":"' + "x" * 50_000 + '"}',
    )
    assert await store.submit(job, [make.event(job_id="j1")]) == job
    assert store.job("j1") == job
    assert store.job("j2") is None


async def test_a_change_moves_row_attempt_and_events_together(store, make):
    job = await store.submit(make.job("j1"), [make.event()])
    attempt = make.attempt("j1")
    placed = make.change(job, S.ADMITTED, S.PLACED, attempt=attempt)
    placed = replace(placed, after=placed.after.evolve(attempt=1, reason={"code": "fits"}))
    assert await store.apply(placed) is True
    assert store.job("j1") == placed.after
    assert store.attempts("j1") == [attempt]
    assert store.current_attempts(["j1", "j2"]) == {"j1": attempt}
    steps = [(event.old_state, event.new_state) for event in store.events(job_id="j1") if event.kind == "job.state"]
    assert steps == [("QUEUED", "ADMITTED"), ("ADMITTED", "PLACED")]

    ended = replace(
        attempt,
        running_at=1.0,
        ended_at=2.0,
        stop=Stop.PREEMPT,
        stop_at=1.5,
        stop_cause="by j9",
        outcome=Outcome.PREEMPTED,
        error_code=ErrorCode.RANK_LOST,
        message="gone",
        ranks=({"rank": 0, "exit_code": None, "signal": 9},),
    )
    assert await store.apply(make.change(placed.after, S.QUEUED, attempt=ended))
    assert store.attempts("j1") == [ended]


async def test_a_stale_change_writes_nothing(store, make):
    job = await store.submit(make.job("j1"), [])
    change = make.change(job, S.ADMITTED, attempt=make.attempt("j1"))
    assert await store.apply(change) is True
    before = store.last_seq()
    late = make.change(job, S.CANCELLED, attempt=make.attempt("j1", 2))
    assert await store.apply(late) is False
    assert await store.apply(make.change(make.job("unknown"), S.ADMITTED)) is False
    assert store.job("j1") == change.after
    assert len(store.attempts("j1")) == 1
    assert store.last_seq() == before


async def test_a_stale_change_leaves_its_neighbours_alone(store, make):
    jobs = [await store.submit(make.job(f"j{n}"), []) for n in range(6)]
    await store.apply(make.change(jobs[3], S.CANCELLED))
    first = make.change(jobs[0], S.ADMITTED)
    changes = [first, *(make.change(job, S.ADMITTED) for job in jobs[1:]), make.change(first.after, S.PLACED)]
    assert await store.apply_all(changes) == [True, True, True, False, True, True, True]
    assert [store.job(job.id).state for job in jobs] == [
        S.PLACED, S.ADMITTED, S.ADMITTED, S.CANCELLED, S.ADMITTED, S.ADMITTED,
    ]  # fmt: skip
    assert await store.apply_all([]) == []


async def test_two_steps_of_one_job_in_one_group(store, make):
    job = await store.submit(make.job("j1"), [])
    first = make.change(job, S.ADMITTED, attempt=make.attempt("j1"))
    second = make.change(first.after, S.PLACED, attempt=make.attempt("j1", message="second"))
    assert await store.apply_all([first, second]) == [True, True]
    assert store.job("j1") == second.after
    assert [attempt.message for attempt in store.attempts("j1")] == ["second"]


async def test_a_step_and_the_end_of_one_job_in_one_group(store, make):
    job = await store.submit(make.job("j1"), [])
    step = make.change(job, S.ADMITTED)
    end = make.change(step.after, S.CANCELLED, ended_at=7.0)
    again = make.change(step.after, S.CANCELLED, ended_at=8.0)
    assert await store.apply_all([step, end, again]) == [True, True, False]
    assert store.job("j1") == end.after


async def test_illegal_changes_are_refused_before_anything_is_written(store, make):
    job = await store.submit(make.job("j1"), [])
    seq = store.last_seq()
    legal = make.change(job, S.ADMITTED)
    illegal = {
        "a job cannot go from QUEUED to RUNNING": make.change(job, S.RUNNING),
        "the events lead to QUEUED, the row to ADMITTED": replace(legal, events=()),
        "but the job is in ADMITTED then": replace(legal, events=legal.events * 2),
        "which is no state": replace(legal, events=(legal.events[0]._replace(new_state="LOST"),)),
        "version 1 does not follow 1": replace(legal, after=legal.after.evolve(version=1)),
        "keeps its tenant for life": replace(legal, after=legal.after.evolve(tenant="blue")),
        "over, and not before": replace(legal, after=legal.after.evolve(ended_at=5.0)),
        "when it is over": make.change(job, S.CANCELLED, ended_at=None),
        "the attempt is of job j2": replace(legal, attempt=make.attempt("j2")),
    }
    for message, change in illegal.items():
        with pytest.raises(Conflict, match=message):
            await store.apply_all([legal, change])
    assert store.job("j1") == job
    assert store.last_seq() == seq


async def test_the_same_key_is_the_same_job(store, make):
    job = await store.submit(make.job("j1", idempotency_key="k"), [make.event()])
    again = await store.submit(make.job("j2", idempotency_key="k"), [make.event()])
    assert again == job
    with pytest.raises(Conflict, match="was used for another job"):
        await store.submit(make.job("j3", idempotency_key="k", fingerprint="other"), [make.event()])
    assert store.job_by_key("red", "k") == job
    assert store.job_by_key("blue", "k") is None
    other_tenant = make.job("j4", idempotency_key="k", tenant="blue")
    assert await store.submit(other_tenant, [make.event()]) == other_tenant
    with pytest.raises(Conflict, match="the database refused the write"):
        await store.submit(make.job("j4"), [make.event()])
    assert len(store.jobs(JobFilter())) == 2
    assert store.last_seq() == 2


async def test_a_repeated_submission_returns_the_job_as_it_is_now(store, make):
    job = await store.submit(make.job("j1", idempotency_key="k"), [])
    change = make.change(job, S.ADMITTED)
    await store.apply(change)
    assert await store.submit(make.job("j2", idempotency_key="k"), []) == change.after


async def test_fifty_at_once_with_one_key_are_one_job(store, make):
    stored = await asyncio.gather(
        *(store.submit(make.job(f"j{n}", idempotency_key="k"), [make.event()]) for n in range(50))
    )
    assert len({job.id for job in stored}) == 1
    assert store.jobs(JobFilter()) == [stored[0]]
    assert store.last_seq() == 1


async def test_one_bad_write_does_not_fail_its_neighbours(store, make):
    taken = await store.submit(make.job("taken", idempotency_key="k"), [])
    writes = [
        *(store.submit(make.job(f"j{n}"), [make.event()]) for n in range(10)),
        store.submit(make.job("taken"), [make.event()]),
        store.submit(make.job("other", idempotency_key="k", fingerprint="other"), [make.event()]),
        store.put_secret("nobody", "name", b"x", make.event()),
        store.apply(make.change(make.job("unknown"), S.ADMITTED)),
        store.apply(make.change(taken, S.ADMITTED)),
        store.record([make.event("last")]),
    ]
    results = await asyncio.gather(*writes, return_exceptions=True)
    assert [job.id for job in results[:10]] == [f"j{n}" for n in range(10)]
    assert [type(result) for result in results[10:13]] == [Conflict, Conflict, Conflict]
    assert results[13:] == [False, True, None]
    assert len(store.jobs(JobFilter())) == 11
    assert [event.seq for event in store.events()] == list(range(1, 13))


@pytest.mark.parametrize(
    "bad", [{"priority": 1 << 70}, {"tenant": "half \ud800"}, {"ranks": None}, {"ranks": object()}]
)
async def test_a_value_no_database_keeps_fails_alone(store, make, bad):
    good = [store.submit(make.job(f"j{n}"), [make.event()]) for n in range(5)]
    results = await asyncio.gather(*good, store.submit(make.job("bad", **bad), []), return_exceptions=True)
    assert type(results[-1]) in (Invalid, Conflict)
    assert [job.id for job in results[:-1]] == [f"j{n}" for n in range(5)]
    assert store.last_seq() == 5


async def test_an_event_no_database_keeps_fails_its_write_alone(store, make):
    job = await store.submit(make.job("j0"), [])
    bad_change = make.change(job, S.ADMITTED)
    bad_change = replace(bad_change, events=(*bad_change.events, make.event(attempt=1 << 70)))
    results = await asyncio.gather(
        store.submit(make.job("j1"), [make.event("one")]),
        store.submit(make.job("j2"), [make.event(tenant="half \ud800")]),
        store.apply(bad_change),
        store.record([make.event("two"), make.event("three")]),
        return_exceptions=True,
    )
    assert [type(result) for result in results[1:3]] == [Invalid, Invalid]
    assert store.job("j0") == job
    assert store.job("j1") == results[0]
    assert store.job("j2") is None
    assert [(event.seq, event.kind) for event in store.events()] == [(1, "one"), (2, "two"), (3, "three")]


async def test_progress_has_no_version_and_no_change_touches_it(store, make):
    job = await store.submit(make.job("j1"), [])
    read = ReadPosition(2, {"metrics": 120, "file:a.jsonl": 7})
    await store.update_progress("j1", {"step": 5}, read)
    await store.update_progress("unknown", {"step": 5}, read)
    assert store.job("j1") == job.evolve(progress={"step": 5}, read_position=read)
    change = make.change(job, S.ADMITTED)
    await store.apply(change)
    await store.apply(make.change(change.after, S.PLACED, progress={"step": 9}, read_position=None))
    assert (store.job("j1").progress, store.job("j1").read_position) == ({"step": 5}, read)
    assert store.last_seq() == 2


async def test_text_of_any_origin_is_kept_and_unwritable_data_is_refused(store, make):
    job = await store.submit(make.job("j1"), [])
    change = make.change(job, S.ADMITTED, message="nul \0 and half a pair \ud800")
    assert await store.apply(change)
    assert store.job("j1").message == "nul \ufffd and half a pair ?"
    with pytest.raises(Invalid, match="cannot be written as JSON") as caught:
        await store.record([make.event(data={"bad": object()})])
    assert caught.value.where == "event data"


@pytest.mark.parametrize("order", JobOrder)
async def test_every_order_continues_where_a_page_ended(store, make, order):
    for n in range(12):
        started = None if n % 4 == 0 else float(n % 3)
        job = make.job(
            f"id-{n:02}", name="abc"[n % 3], submitted_at=float(n // 5), started_at=started,
            ended_at=None if n % 2 else started, ran_s=float(n % 4), waited_s=float(n % 5),
        )  # fmt: skip
        await store.submit(job, [])
        if n % 3 == 1:
            await store.apply(make.change(job, S.CANCELLED))
    keys = {
        JobOrder.SUBMITTED: lambda job: 0,
        JobOrder.STARTED: lambda job: -(job.started_at or 0.0),
        JobOrder.ENDED: lambda job: -(job.ended_at or 0.0),
        JobOrder.RAN: lambda job: -job.ran_s,
        JobOrder.WAITED: lambda job: -job.waited_s,
        JobOrder.NAME: lambda job: job.name,
        JobOrder.STATE: lambda job: job.state.value,
    }
    newest = sorted(store.jobs(JobFilter()), key=lambda job: (job.submitted_at, job.id), reverse=True)
    expected = [job.id for job in sorted(newest, key=keys[order])]
    for limit in (1, 5, 12):
        pages, before = [], None
        while page := store.jobs(JobFilter(limit=limit, before_id=before, order=order)):
            pages += [job.id for job in page]
            before = page[-1].id
        assert pages == expected
    assert store.jobs(JobFilter(before_id="unknown", order=order)) == []


async def test_listing_by_pattern_of_name_and_by_time(store, make):
    for n, name in enumerate(["train-1", "train-2", "train-10", "tr%in-3", "other"]):
        await store.submit(make.job(f"id-{n}", name=name, submitted_at=float(n)), [])

    def named(pattern: str, since: float = 0.0) -> list[str]:
        return [job.name for job in store.jobs(JobFilter(name=pattern, since=since))]

    assert named("train-*") == ["train-10", "train-2", "train-1"]
    assert named("train-?") == ["train-2", "train-1"]
    assert named("*-1*") == ["train-10", "train-1"]
    assert named("tr%in-*") == ["tr%in-3"]
    assert named("tr_in-*") == []
    assert named("*", since=3.0) == ["other", "tr%in-3"]


async def test_listing_continues_and_filters(store, make):
    for n in range(9):
        tenant, name = ("red", "a") if n % 3 else ("blue", "b")
        await store.submit(make.job(f"id-{n}", tenant=tenant, name=name, submitted_at=float(n // 2)), [])
    everything = [job.id for job in store.jobs(JobFilter())]
    assert everything == [f"id-{n}" for n in reversed(range(9))]
    pages, before = [], None
    while page := store.jobs(JobFilter(limit=2, before_id=before)):
        pages += [job.id for job in page]
        before = page[-1].id
    assert pages == everything
    assert [job.id for job in store.jobs(JobFilter(tenant="blue"))] == ["id-6", "id-3", "id-0"]
    assert [job.id for job in store.jobs(JobFilter(name="b", tenant="red"))] == []
    assert store.jobs(JobFilter(before_id="unknown")) == []

    await store.apply(make.change(store.job("id-3"), S.CANCELLED))
    await store.apply(make.change(store.job("id-4"), S.SUSPENDED))
    assert [job.id for job in store.jobs(JobFilter(states=frozenset({S.CANCELLED, S.SUSPENDED})))] == ["id-4", "id-3"]
    assert store.jobs(JobFilter(states=frozenset())) == []
    assert [job.id for job in store.unfinished_jobs()] == [f"id-{n}" for n in range(9) if n != 3]
    assert store.job_counts() == {
        ("blue", S.QUEUED): 2, ("blue", S.CANCELLED): 1, ("red", S.QUEUED): 5, ("red", S.SUSPENDED): 1,
    }  # fmt: skip


async def test_finding_by_prefix_or_name(store, make):
    for n, name in enumerate(["ab1", "ab2", "abc", "b"]):
        await store.submit(make.job(name, name="train" if n else "ab", submitted_at=float(n)), [])
    await store.submit(make.job("ab9", tenant="blue"), [])
    assert [job.id for job in store.find_jobs("ab", "red")] == ["abc", "ab2", "ab1"]
    assert [job.id for job in store.find_jobs("train", "red")] == ["b", "abc", "ab2"]
    assert [job.id for job in store.find_jobs("abc", None)] == ["abc"]
    assert [job.id for job in store.find_jobs("ab", None)] == ["ab9", "abc", "ab2", "ab1"]
    assert store.find_jobs("a%", None) == []
    assert store.find_jobs("zz", "red") == []


async def test_metrics_come_newest_last(store):
    points = [MetricPoint("j1", 1, float(n), n, "loss" if n % 2 else "acc", n / 3) for n in range(10)]
    await store.add_metrics(points[:6])
    await store.add_metrics([*points[6:], MetricPoint("j2", 1, 0.0, None, "loss", math.inf)])
    await store.add_metrics([])
    assert store.metrics("j1") == points
    assert store.metrics("j1", limit=3) == points[-3:]
    assert store.metrics("j1", name="loss", limit=2) == [points[7], points[9]]
    assert store.metrics("j2")[0].value == math.inf
    await store.add_metrics([MetricPoint("j3", 1, 0.0, None, "loss", math.nan)])
    assert math.isnan(store.metrics("j3")[0].value)


async def test_recovery_reads_attempts_of_many_jobs(store, make):
    jobs = [make.job(f"j{n:04}", attempt=2) for n in range(1200)]
    await asyncio.gather(*(store.submit(job, []) for job in jobs))
    await store.apply_all([make.change(job, S.ADMITTED, attempt=make.attempt(job.id, 2)) for job in jobs])
    current = store.current_attempts([job.id for job in jobs])
    assert len(current) == len(store.unfinished_jobs()) == 1200
    assert {attempt.number for attempt in current.values()} == {2}
