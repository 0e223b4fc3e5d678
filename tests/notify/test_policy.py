"""What events tell, which deliveries are tried, and which news share a message."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shoal.contract.events import EventKind
from shoal.contract.lifecycle import JobState
from shoal.contract.records import Ends, Event, JobRecord
from shoal.core import Budget, PriorityClass, Resources
from shoal.notify.policy.batches import FLOOD, LARGEST, MOST_OPEN, batches
from shoal.notify.policy.retry import LONGEST_S, Bounds, Open, back_off_s, choose
from shoal.notify.policy.telling import may_tell, of_budget, of_late, of_miss, of_wait, told, wants
from shoal.notify.policy.words import body, slack, subject, text
from shoal.notify.records import (
    EVERYONE,
    Delivery,
    Kind,
    News,
    State,
    Subscription,
    Target,
    Topic,
)

# --- what is tried ---

opens = st.lists(
    st.builds(
        Open, st.uuids().map(str), st.sampled_from("abcdefgh"), st.sampled_from(["t1", "t2"]), st.floats(0, 2000)
    ),
    max_size=40,
)


@given(opens, opens, st.floats(0, 2000), st.builds(Bounds, st.integers(1, 10), st.integers(1, 5)))
def test_each_receiver_and_each_tenant_is_bounded(
    waiting: list[Open], all_busy: list[Open], now: float, bounds: Bounds
) -> None:
    busy = list({one.channel: one for one in all_busy}.values())[: bounds.all]
    chosen = choose(waiting, busy, now, bounds)
    channels = [one.channel for one in (*busy, *chosen)]
    assert len(channels) == len(set(channels))
    assert len(channels) <= bounds.all
    for tenant in ("t1", "t2"):
        new = sum(one.tenant == tenant for one in chosen)
        assert not new or new + sum(one.tenant == tenant for one in busy) <= bounds.of_tenant
    assert all(one.next_at <= now for one in chosen)
    left = [one for one in waiting if one not in chosen and one.next_at <= now]
    for one in left:  # what is due and was not chosen had a reason
        of_tenant = sum(each.tenant == one.tenant for each in (*busy, *chosen))
        assert one.channel in channels or of_tenant >= bounds.of_tenant or len(channels) >= bounds.all


def test_those_that_are_chosen_count_for_their_tenant_too() -> None:
    waiting = [Open(f"d{n}", f"c{n}", "t1", float(n)) for n in range(6)] + [Open("e", "f", "t2", 9.0)]
    chosen = choose(waiting, [Open("b", "x", "t1", 0.0)], 10.0, Bounds(all=10, of_tenant=4))
    assert [one.id for one in chosen] == ["d0", "d1", "d2", "e"]


@given(st.integers(1, 200), st.text(max_size=10), st.floats(0.1, 600), st.floats(0, 1e6))
def test_back_off_grows_to_an_hour(attempts: int, key: str, first: float, asked: float) -> None:
    wait = back_off_s(attempts, key, first, asked)
    assert first * 0.75 <= wait <= LONGEST_S
    assert wait == back_off_s(attempts, key, first, asked)
    assert wait >= min(asked, LONGEST_S)
    assert back_off_s(attempts + 2, key, first) >= back_off_s(attempts, key, first)


@given(st.floats(0, 2e9), st.floats(1, 1e9))
def test_what_a_clock_far_ahead_put_off_is_tried_once_it_is_right(now: float, ahead: float) -> None:
    late = Open("d", "c", "t", now + LONGEST_S + ahead)
    assert choose([late], [], now, Bounds()) == [late]


@given(st.lists(st.uuids().map(str), max_size=500, unique=True), st.integers(0, 6), st.booleans())
def test_news_are_carried_in_order_and_once(waiting: list[str], open_now: int, digest: bool) -> None:
    made = batches(waiting, open_now, digest=digest)
    flat = [one for batch in made for one in batch]
    assert flat == waiting[: len(flat)]
    assert len(made) <= max(0, MOST_OPEN - open_now)
    assert all(1 <= len(batch) <= LARGEST for batch in made)
    if not digest and len(waiting) <= FLOOD:
        assert all(len(batch) == 1 for batch in made)
    assert made or not waiting or open_now >= MOST_OPEN


def test_so_many_come_one_by_one_and_one_more_is_a_flood() -> None:
    few = [str(n) for n in range(FLOOD)]
    assert batches(few, 0, digest=False) == [[one] for one in few[:MOST_OPEN]]
    assert batches([*few, "x"], 0, digest=False)[0] == [*few, "x"][:LARGEST]


# --- what is told ---


def job(**more: Any) -> JobRecord:
    return JobRecord(
        **{
            "id": "j-1", "tenant": "team", "name": "train-1", "state": JobState.RUNNING, "version": 3, "manifest": "{}",
            "resources": Resources(), "ranks": 1, "priority_class": PriorityClass.BEST_EFFORT, "priority": 0,
            "submitted_at": 1.0, "updated_at": 1.0, "attempt": 1, **more,
        }
    )  # fmt: skip


def event(kind: str, old: str | None = None, new: str | None = None, **more: Any) -> Event:
    given = {"seq": 7, "at": 5.0, "actor": "x", "cause": "why", "tenant": "team", "job_id": "j-1", "attempt": 1,
             "data": {}, **more}  # fmt: skip
    return Event(kind=kind, old_state=old, new_state=new, **given)


def topics(found: list[News]) -> list[Topic]:
    return [one.topic for one in found]


def test_a_job_is_told_of_from_its_start_to_its_end() -> None:
    ran = event(EventKind.JOB_STATE, "STARTING", "RUNNING")
    lost = event(EventKind.JOB_STATE, "RUNNING", "QUEUED")
    done = event(EventKind.JOB_STATE, "RUNNING", "SUCCEEDED")
    bad = event(EventKind.JOB_STATE, "RUNNING", "FAILED")
    assert all(map(may_tell, (ran, lost, done, bad)))
    assert topics(told(ran, job(), None)) == [Topic.STARTED]
    assert topics(told(lost, job(), None)) == [Topic.REQUEUED]
    assert [one.title for one in told(done, job(), None)] == ["job train-1 succeeded"]
    failed = told(bad, job(message="exit code 3"), None)
    assert topics(failed) == [Topic.FAILED]
    assert failed[0].title == "job train-1 failed: exit code 3"


def test_what_is_told_is_whole() -> None:
    """Each of its fields, by the way that it came: `about` keeps the same from being told twice."""
    for kind, old, new, topic, title, about in (
        (EventKind.JOB_STATE, "STARTING", "RUNNING", Topic.STARTED, "job train-1 runs", "job/j-1/started"),
        (EventKind.JOB_STATE, "RUNNING", "QUEUED", Topic.REQUEUED, "job train-1 waits again: why", "event/7"),
        (EventKind.JOB_MAX_RUNTIME_REQUESTED, None, None, Topic.TIME_LIMIT,
         "job train-1 has run for its max_runtime and is asked to end", "event/7"),
        (EventKind.JOB_DEADLINE_REQUESTED, None, None, Topic.TIME_LIMIT,
         "job train-1 has met its deadline and is asked to end", "event/7"),
        (EventKind.JOB_NODE_LOST_REQUESTED, None, None, Topic.NODE,
         "job train-1 lost a node that it ran on", "event/7"),
    ):  # fmt: skip
        (one,) = told(event(kind, old, new), job(), None)
        assert one == News(topic, "team", 5.0, about, title, "j-1", {
            "id": "j-1", "name": "train-1", "state": "RUNNING", "attempt": 1, "message": "",
        })  # fmt: skip
    (one,) = told(event(EventKind.JOB_STATE, "RUNNING", "CANCELLED"), job(message="x"), None)
    assert (one.title, one.facts["state"], one.about) == ("job train-1 was cancelled", "CANCELLED", "job/j-1/ended")
    task = job(id="j-9-3", array_id="j-9", name="train-3", state=JobState.SUCCEEDED)
    done = event(EventKind.JOB_STATE, "RUNNING", "SUCCEEDED", job_id="j-9-3")
    (one,) = told(done, task, Ends(0, False))
    assert (one.topic, one.title) == (Topic.ENDED, "job array train is over: all of its tasks succeeded")
    assert one.facts == {"id": "j-9", "name": "train", "state": "SUCCEEDED"}
    assert told(done, task, Ends(0, True))[0].facts["state"] == "FAILED"
    bad = event("service.state", "READY", "FAILED", owner_id="svc-1", cause="", data={"name": "ocr"})
    assert told(bad, None, None) == [
        News(Topic.SERVICE, "team", 5.0, "event/7", "service ocr failed",
             facts={"service": "ocr", "state": "FAILED", "cause": ""})
    ]  # fmt: skip


def test_a_job_that_waits_is_told_of_once_for_each_attempt_and_an_array_once() -> None:
    waiting = job(state=JobState.QUEUED, attempt=2, queued_at=3.0)
    facts = {"id": "j-1", "name": "train-1", "state": "QUEUED", "queued_at": 3.0}
    assert of_wait(waiting, 1800.0, 9.0, "no room") == News(
        Topic.WAITS, "team", 9.0, "job/j-1/waits/1800/2", "job train-1 waits for more than 30m: no room", "j-1", facts
    )
    assert of_late(waiting, 5.0, 7205.0, "") == News(
        Topic.LATE, "team", 7205.0, "job/j-1/late/2", "job train-1 waits 2h longer than its first forecast promised",
        "j-1", facts,
    )  # fmt: skip
    task = job(id="j-9-3", array_id="j-9", name="train-3", state=JobState.QUEUED, attempt=2)
    assert of_late(task, 5.0, 65.0, "").about == "job/j-9/late/0"


def test_most_events_tell_nothing() -> None:
    assert not may_tell(event(EventKind.JOB_SUBMITTED))
    assert not may_tell(event(EventKind.JOB_STATE, "QUEUED", "ADMITTED"))
    assert not may_tell(event(EventKind.JOB_STATE, "ADMITTED", "QUEUED"))
    assert not may_tell(event(EventKind.JOB_STATE, "RUNNING", "SUCCEEDED", owner_id="svc-1"))  # a replica
    assert told(event(EventKind.JOB_STATE, "RUNNING", "SUCCEEDED"), None, None) == []  # removed since


def test_an_array_is_told_of_as_one_unless_its_tasks_are_asked_for() -> None:
    task = job(id="j-9-3", array_id="j-9", name="train-3")
    done = event(EventKind.JOB_STATE, "RUNNING", "SUCCEEDED", job_id="j-9-3")
    assert told(done, task, Ends(5, False)) == []
    (one,) = told(done, task, Ends(0, True))
    assert (one.topic, one.job_id, one.about) == (Topic.FAILED, "j-9", "job/j-9/ended")
    assert one.title == "job array train is over; not all of its tasks succeeded"
    (each,) = told(done, task, Ends(5, False), tasks=True)
    assert (each.topic, each.job_id) == (Topic.ENDED, "j-9-3")


def test_services_and_nodes() -> None:
    bad = event("service.state", "READY", "DEGRADED", owner_id="svc-1", data={"name": "ocr"})
    well = event("service.state", "DEGRADED", "READY", owner_id="svc-1", data={"name": "ocr"})
    assert [one.title for one in told(bad, None, None)] == ["service ocr is degraded: why"]
    assert [one.title for one in told(well, None, None)] == ["service ocr is well again"]
    assert told(event("service.state", "DEPLOYING", "READY"), None, None) == []
    (gone,) = told(event(EventKind.NODE_LEFT, cause="node n1 is gone", tenant=None, job_id=None), None, None)
    assert (gone.topic, gone.tenant, gone.title) == (Topic.NODE, EVERYONE, "node n1 is gone")


def test_a_budget_is_told_of_at_80_per_cent_and_at_all_of_it_once_for_each_limit() -> None:
    assert of_budget(Budget("team", "dollars", 79.9, 100.0, "dollars"), 1.0) == []
    (most,) = of_budget(Budget("team", "dollars", 80.0, 100.0, "dollars"), 1.0)
    again = of_budget(Budget("team", "dollars", 120.0, 100.0, "dollars"), 9.0)
    assert again[0].about == most.about
    assert len(again) == 2
    (raised,) = of_budget(Budget("team", "dollars", 120.0, 150.0, "dollars"), 9.0)
    assert raised.about != most.about
    assert of_budget(Budget("team", "dollars", 1.0, 0.0, "dollars"), 1.0) == []


def test_an_objective_is_told_of_when_it_is_missed_and_when_it_is_met_again() -> None:
    missed = of_miss("team", "ocr", 5.0, 9.0, "p99 is 300 ms, 200 ms are promised")
    still = of_miss("team", "ocr", 5.0, 99.0, "p99 is 900 ms, 200 ms are promised")
    met = of_miss("team", "ocr", 5.0, 300.0, "")
    assert missed.title == "service ocr misses its objective: p99 is 300 ms, 200 ms are promised"
    assert met.title == "service ocr meets its objective again"
    assert missed.about == still.about != met.about
    assert of_miss("team", "ocr", 400.0, 400.0, "again").about != missed.about


def subscription(**more: Any) -> Subscription:
    given = {
        "id": "n-1", "tenant": "team", "name": "hook", "target": Target(Kind.WEBHOOK, "https://x.org/"),
        "topics": frozenset({Topic.ENDED}), "created_at": 0.0, "created_by": "admin", "from_seq": 5, **more,
    }  # fmt: skip
    return Subscription(**given)


def test_who_is_told() -> None:
    (bad,) = told(event(EventKind.JOB_STATE, "RUNNING", "FAILED"), job(), None)
    assert wants(subscription(), bad, 7)  # a failure is an end
    assert not wants(subscription(), bad, 5)  # before it was made
    assert not wants(subscription(tenant="other"), bad, 7)
    assert wants(subscription(tenant=EVERYONE), bad, 7)
    assert not wants(subscription(topics=frozenset({Topic.STARTED})), bad, 7)
    assert wants(subscription(jobs="train-*"), bad, 7)
    assert not wants(subscription(jobs="eval-*"), bad, 7)
    (gone,) = told(event(EventKind.NODE_LEFT, tenant=None, job_id=None), None, None)
    assert not wants(subscription(topics=frozenset({Topic.NODE})), gone, 7)  # the nodes are the admin's
    assert wants(subscription(tenant=EVERYONE, topics=frozenset({Topic.NODE})), gone, 7)


# --- in words ---

news = st.builds(
    News, st.sampled_from(Topic), st.just("team"), st.floats(0, 2e9), st.text(max_size=5), st.text(max_size=500),
    st.none() | st.just("j-1"), st.dictionaries(st.text(max_size=3), st.text(max_size=5), max_size=2),
)  # fmt: skip


@given(st.lists(news, min_size=1, max_size=120))
def test_no_title_breaks_a_message(found: list[News]) -> None:
    made = Delivery("0" * 32, "c", "team", 1.0, State.WAITING, 0, 0.0, None, "", tuple(found))
    assert subject(found).isprintable()
    assert len(subject(found)) < 250
    assert len(text(made).splitlines()) == len(found) + 2
    assert len(json.loads(body(made))["data"]["news"]) == len(found)
    said = json.loads(slack(made))
    assert len(said["blocks"]) <= 50
    assert not any(sign in block["text"]["text"] for block in said["blocks"] for sign in "<>")


def test_a_webhook_and_slack_are_told_all_of_it() -> None:
    one = News(Topic.FAILED, "team", 5.0, "a", "job <x> & <y> failed", "j-1", {"state": "FAILED"})
    made = Delivery("d-1", "c", "team", 1.0, State.WAITING, 0, 0.0, None, "", (one,))
    assert json.loads(body(made)) == {
        "type": "shoal.news", "timestamp": "1970-01-01T00:00:01+00:00",
        "data": {"key": "d-1", "news": [{
            "topic": "failed", "tenant": "team", "at": "1970-01-01T00:00:05+00:00", "title": one.title, "job": "j-1",
            "facts": {"state": "FAILED"},
        }]},
    }  # fmt: skip
    line = "1970-01-01T00:00:05+00:00  team  job &lt;x&gt; &amp; &lt;y&gt; failed  (j-1)"
    assert json.loads(slack(made)) == {
        "text": "Shoal: job &lt;x&gt; &amp; &lt;y&gt; failed",
        "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": line}}],
    }
    many = replace(made, news=(one,) * 50)
    assert json.loads(slack(many))["blocks"][-1] == {
        "type": "section",
        "text": {"type": "mrkdwn", "text": "and 5 more"},
    }
    assert subject([replace(one, title="x" * 500)]) == f"Shoal: {'x' * 177}..."
    assert subject([one, one, replace(one, topic=Topic.LATE)]) == "Shoal: 3 news: 2 failed, 1 late"
