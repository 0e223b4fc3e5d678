"""Events and logs: lists, long polls, streams, and going on after a break."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import datetime
from typing import Any

import pytest

from tests.control.api.conftest import House

pytestmark = pytest.mark.virtual_time


def sent(text: str) -> list[dict[str, Any]]:
    """The events of a piece of a stream, each checked to carry its sequence number as its id."""
    found = []
    for block in text.split("\n\n"):
        if block.startswith("id: "):
            match = re.fullmatch(r"id: (\d+)\nevent: ([\w.-]+)\ndata: (.*)", block)
            assert match, block
            event = json.loads(match[3])
            assert (event["seq"], event["kind"]) == (int(match[1]), match[2])
            found.append(event)
    return found


async def test_pages_of_events_join_without_gap_or_repetition(house: House) -> None:
    for _ in range(3):
        await house.submit(seconds=0.5)
    await asyncio.sleep(10)
    async with house.client() as client:
        whole = (await client.get("/v1/events?limit=1000")).json()["events"]
        pages, after = [], 0
        while True:
            page = (await client.get(f"/v1/events?after={after}&limit=4")).json()
            if not page["events"]:
                assert page["next"] == after
                break
            pages += page["events"]
            after = page["next"]
        newest = (await client.get("/v1/events?limit=0")).json()
    assert pages == whole
    assert newest == {"events": [], "next": whole[-1]["seq"]}


async def test_a_stream_goes_on_where_it_broke_off(house: House) -> None:
    job = await house.submit(seconds=5)
    path = f"/v1/jobs/{job['id']}/events"
    async with house.stream(path, "red", "follow=true") as stream:
        first = sent(await stream.until("ADMITTED"))
    async with house.stream(path, "red", "follow=true", {"Last-Event-ID": str(first[-1]["seq"])}) as stream:
        rest = sent((await stream.rest()).decode())
    async with house.client("red") as client:
        whole = (await client.get(path)).json()["events"]
    assert first + rest == whole
    assert rest[-1]["new_state"] == "SUCCEEDED"


async def test_a_stream_of_everything_begins_now_and_shows_a_tenant_only_its_own(house: House) -> None:
    await house.submit("red", seconds=0.5)
    await asyncio.sleep(5)
    async with house.stream("/v1/events", "red", "follow=true") as stream:
        assert ": from" in (await stream.piece() or b"").decode()
        await house.submit("blue", seconds=0.5)
        mine = await house.submit("red", seconds=0.5)
        events = sent(await stream.until("SUCCEEDED"))
    assert {event["job_id"] for event in events} == {mine["id"]}


async def test_a_silent_stream_sends_heartbeats(house: House) -> None:
    async with house.stream("/v1/events", "blue", "follow=true") as stream:
        began = house.plane.clock.now()
        await stream.until(": still here")
        await stream.until(": still here")
        assert house.plane.clock.now() - began == pytest.approx(30, abs=1)
        async with house.client() as admin:
            assert "shoal_event_streams 1.0" in (await admin.get("/metrics")).text
    async with house.client() as admin:
        assert "shoal_event_streams 0.0" in (await admin.get("/metrics")).text


async def test_streams_end_when_the_server_leaves(house: House) -> None:
    job = await house.submit(seconds=1000)
    array = (await house.submit(name="sweep", seconds=1000, array="0-1"))["array_id"]
    await asyncio.sleep(2)
    async with (
        house.stream("/v1/events", "red", "follow=true") as events,
        house.stream(f"/v1/jobs/{job['id']}/logs", "red", "follow=true") as logs,
        house.client("red") as client,
    ):
        polls = [
            asyncio.create_task(client.get(f"{path}?wait_s=60"))
            for path in (f"/v1/jobs/{job['id']}", f"/v1/arrays/{array}")
        ]
        await asyncio.sleep(1)
        house.context.feed.close()
        left_at = house.plane.clock.now()
        await events.rest()
        await logs.rest()
        job, sweep = [(await poll).json() for poll in polls]
        assert house.plane.clock.now() < left_at + 1
        assert job["state"] == "RUNNING"
        assert sweep["id"] == array


async def test_a_long_poll_answers_at_the_event_or_when_its_time_is_over(house: House) -> None:
    async with house.client("red") as client:
        after = (await client.get("/v1/events?limit=0")).json()["next"]
        began = house.plane.clock.now()
        nothing = (await client.get(f"/v1/events?after={after}&wait_s=20")).json()
        assert nothing == {"events": [], "next": after}
        assert house.plane.clock.now() - began == pytest.approx(20, abs=0.1)
        poll = asyncio.create_task(client.get(f"/v1/events?after={after}&wait_s=20"))
        await asyncio.sleep(3)
        job = await house.submit("red", seconds=0.5)
        found = (await poll).json()["events"]
        assert found[0]["job_id"] == job["id"]
        assert house.plane.clock.now() - began < 25


async def test_a_log_is_read_in_pieces_and_says_when_it_is_over(house: House) -> None:
    job = await house.submit(seconds=2.5)
    async with house.client("red") as client:
        path = f"/v1/jobs/{job['id']}/logs"
        data, offset, ended = b"", 0, "no"
        while ended == "no":
            piece = await client.get(path, params={"offset": offset, "limit": 10, "wait_s": 30})
            data += piece.content
            assert len(piece.content) <= 10
            offset, ended = int(piece.headers["x-shoal-next-offset"]), piece.headers["x-shoal-ended"]
        assert data.decode() == "".join(f"attempt 1 second {second}\n" for second in range(3))
        assert ended == "job"
        assert piece.headers["x-shoal-attempt"] == "1"
        assert (await client.get(path, params={"offset": 3, "limit": 5})).content == data[3:8]
        last_line = data.splitlines(keepends=True)[-1]
        for lines, told in ((0, b""), (1, last_line), (3, data), (9, data)):
            last = await client.get(path, params={"tail": lines})
            assert last.content == told
            assert int(last.headers["x-shoal-next-offset"]) == len(data)
        assert (await client.get(path, params={"tail": 1, "follow": True})).content == last_line
        assert (await client.get(path, params={"tail": -1})).status_code == 422
        assert (await client.get(path, params={"rank": 1})).status_code == 404
        assert (await client.get(path, params={"attempt": 9})).status_code == 404


async def test_lines_of_a_log_have_times_and_are_told_since_one(house: House) -> None:
    job = await house.submit(seconds=4)
    await asyncio.sleep(10)
    async with house.client("red") as client:
        path = f"/v1/jobs/{job['id']}/logs"
        started = (await client.get(f"/v1/jobs/{job['id']}")).json()["attempts"][0]["running_at"]
        whole = (await client.get(path)).content
        text = (await client.get(path, params={"timestamps": True})).text
        lines = [line.partition(" ") for line in text.splitlines()]
        assert [line for _, _, line in lines] == whole.decode().splitlines()
        at = [datetime.fromisoformat(stamp).timestamp() for stamp, _, _ in lines]
        assert at == [pytest.approx(started + second, abs=1.01) for second in range(4)]
        assert at == sorted(set(at))
        pieces, offset = "", 0
        while offset < len(whole):
            piece = await client.get(path, params={"timestamps": True, "offset": offset, "limit": 10})
            assert int(piece.headers["x-shoal-offset"]) == offset
            pieces, offset = pieces + piece.text, int(piece.headers["x-shoal-next-offset"])
        assert pieces == text
        assert (await client.get(path, params={"timestamps": True, "follow": True})).text == text
        late = {"since": started + 1.5}
        rest = await client.get(path, params=late)
        assert rest.text.splitlines() == [line for _, _, line in lines[2:]]
        assert int(rest.headers["x-shoal-offset"]) == len(whole) - len(rest.content)
        assert (await client.get(path, params={**late, "follow": True})).content == rest.content
        assert (await client.get(path, params={**late, "tail": 1})).text == "attempt 1 second 3\n"
        assert (await client.get(path, params={**late, "tail": 4})).content == rest.content
        assert (await client.get(path, params={"since": started - 1})).content == whole
        assert (await client.get(path, params={"since": started + 9})).content == b""
        for wrong in ("nan", "inf", "-1", "soon"):
            assert (await client.get(path, params={"since": wrong})).status_code == 422
        assert (await client.get(path, params={"since": 0, "attempt": 9})).status_code == 404


async def test_following_a_log_goes_from_the_queue_through_retries_to_the_end(house: House) -> None:
    async with house.client("red") as client:
        manifest = {"name": "flaky", "command": ["run", "1.5", "3"], "restart": {"limits": {"user": 1}}}
        job = (await client.post("/v1/jobs", json=manifest)).json()["id"]
        async with house.stream(f"/v1/jobs/{job}/logs", "red", "follow=true") as stream:
            text = (await stream.rest()).decode()
        one = (await client.get(f"/v1/jobs/{job}/logs?attempt=1&follow=true")).text
    expected = [f"attempt {attempt} second {second}\n" for attempt in (1, 2) for second in (0, 1)]
    assert text == "".join(expected)
    assert one == "".join(expected[:2])


async def test_following_the_log_of_a_job_that_never_starts_ends_with_the_job(house: House) -> None:
    job = await house.submit(resources={"cpus": 500})
    async with house.stream(f"/v1/jobs/{job['id']}/logs", "red", "follow=true") as stream:
        await asyncio.sleep(100)
        async with house.client("red") as client:
            await client.post(f"/v1/jobs/{job['id']}/cancel")
        assert await stream.rest() == b""


async def test_following_the_log_of_a_suspended_job_ends(house: House) -> None:
    job = await house.submit(seconds=1000)
    async with house.stream(f"/v1/jobs/{job['id']}/logs", "red", "follow=true") as stream:
        await stream.until("second 3")
        async with house.client("red") as client:
            await client.post(f"/v1/jobs/{job['id']}/suspend")
        assert b"second 900" not in await stream.rest()


async def test_a_reader_of_removed_events_is_told_where_to_go_on(house: House) -> None:
    await house.submit()
    store = house.plane.store
    newest = store.last_seq()
    assert await store.remove_events(house.plane.clock.now() + 1, 2) == 2
    removed = store.removed_seq()
    assert 1 < removed < newest
    async with house.client() as client:
        for query in (f"after={removed - 1}", f"after={removed - 1}&follow=true"):
            gone = await client.get(f"/v1/events?{query}")
            assert gone.status_code == 410
            assert gone.json()["error"]["code"] == "gone"
            assert f"or after {removed} for those" in gone.json()["error"]["hint"]
        left = (await client.get("/v1/events?after=0")).json()["events"]
        rest = (await client.get(f"/v1/events?after={removed}")).json()["events"]
    assert left == rest[: len(left)]
    assert newest in [event["seq"] for event in left]


async def test_only_the_admin_collects_garbage_and_a_dry_run_removes_nothing(house: House) -> None:
    async with house.client("red") as client:
        assert (await client.post("/v1/gc")).status_code == 403
    async with house.client() as client:
        told = (await client.post("/v1/gc?dry_run=true")).json()
        # The tokens of this house were made in 1970.
        assert told == {
            "dry_run": True, "jobs": [], "runs": [], "artifacts": [], "bundles": [], "events": 2, "freed_bytes": 0,
            "left": [],
        }  # fmt: skip
        assert house.plane.store.removed_seq() == 0
        assert (await client.post("/v1/gc")).json() == {**told, "dry_run": False}
        assert (await client.post("/v1/gc?dry_run=true")).json()["events"] == 0
