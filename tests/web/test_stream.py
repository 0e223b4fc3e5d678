"""What open pages are told: each event once, by tenant, in order, and nothing that costs the server much."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.contract.records import Event
from shoal.core import Overloaded
from shoal.engine.simulated import VirtualLoop
from shoal.web.settings import WebSection
from shoal.web.stream import MOST, NAMED, QUEUED, REMEMBERED, Hub, Tab, batch_every_s
from tests.web.conftest import PAGE, WebHouse

pytestmark = pytest.mark.virtual_time

PATH = "/v1/web/stream"


def told(text: str) -> Iterator[tuple[str, int | None, Any]]:
    """Name, id and data of each server-sent event."""
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith((":", "retry")))
        if fields:
            yield fields["event"], int(fields["id"]) if "id" in fields else None, json.loads(fields["data"])


def event(seq: int, tenant: str | None = "red", kind: str = "job.state") -> Event:
    return Event(seq, 1.0, kind, "server", "", tenant, f"j-{seq}", None, None, "RUNNING", {})


def a_hub(most_of_one: int = MOST) -> Hub:
    hub = Hub(lambda: 0.0, "1", most_of_one=most_of_one)
    hub.begin(10)
    return hub


async def read_all(tab: Tab) -> str:
    tab.end()
    return "".join([piece.decode() async for piece in tab.read()])


async def test_a_page_is_told_what_its_tenant_may_see(house: WebHouse) -> None:
    async with house.stream(PATH, "red") as red, house.stream(PATH, "admin") as admin:
        assert next(told(await red.until("\n\n")))[0] == "hello"
        await house.submit("blue", name="theirs", seconds=1)
        mine = await house.submit("red", name="mine", seconds=1)
        seen = list(told(await red.until(mine["id"])))
        every = list(told(await admin.until(mine["id"])))
    names = {one["tenant"] for _, _, data in seen if "events" in data for one in data["events"]}
    assert names == {"red"}
    assert {one["tenant"] for _, _, data in every if "events" in data for one in data["events"]} >= {"red", "blue"}
    assert "theirs" not in json.dumps(seen)


async def test_nobody_watches_another_tenant_or_without_a_sign_in(house: WebHouse) -> None:
    browser = await house.signed_in()
    assert (await browser.get(f"{PATH}?tenant=blue")).status_code == 404
    assert (await house.browser().get(PATH)).status_code == 401
    assert (await browser.get(f"{PATH}?after=-1")).status_code == 422


async def test_a_cut_stream_goes_on_where_it_was(house: WebHouse) -> None:
    async with house.stream(PATH, "red") as stream:
        hello = next(told(await stream.until("\n\n")))
    job = await house.submit("red", seconds=1)
    await asyncio.sleep(10)
    async with house.stream(PATH, "red", headers={"Last-Event-ID": str(hello[1])}) as stream:
        seen = list(told(await stream.until("changes")))
    (changes,) = [data for name, _, data in seen if name == "changes"]
    async with house.client("red") as client:
        whole = (await client.get(f"/v1/events?after={hello[1]}")).json()["events"]
    assert [one["seq"] for one in changes["events"]] == [one["seq"] for one in whole]
    assert changes["events"][0]["job_id"] == job["id"]
    assert changes["dropped"] == 0


async def test_after_a_restart_a_page_that_missed_something_is_told_so(house: WebHouse) -> None:
    await house.submit("red", seconds=1)
    await asyncio.sleep(10)
    newest = house.plane.store.last_seq()
    await house.restart()
    async with house.stream(PATH, "red", headers={"Last-Event-ID": "1"}) as stream:
        assert "event: reset" in await stream.until("reset")
    async with house.stream(PATH, "red", headers={"Last-Event-ID": str(newest + 1000)}) as stream:
        assert "event: reset" in await stream.until("reset")


async def test_silence_is_broken_and_the_end_of_a_sign_in_is_told(house: WebHouse) -> None:
    await house.restart(WebSection(lifetime="2m", idle="2m"))
    browser = await house.signed_in()
    async with house.page(browser) as stream:
        assert "still here" in await stream.until("still here")
        rest = (await stream.rest()).decode()
        assert list(told(rest))[-1] == ("bye", None, {"why": "expired"})
    browser = await house.signed_in()
    async with house.page(browser) as stream:
        await stream.until("hello")
        await browser.delete("/v1/web/session", headers=PAGE)
        assert list(told((await stream.rest()).decode()))[-1] == ("bye", None, {"why": "signed-out"})
    assert len(house.web.hub) == 0


async def test_a_revoked_token_ends_its_streams(house: WebHouse) -> None:
    async with house.stream(PATH, "red") as stream:
        await stream.until("hello")
        async with house.client("admin") as client:
            await client.delete("/v1/tokens/tok-red")
        assert list(told((await stream.rest()).decode()))[-1] == ("bye", None, {"why": "revoked"})


async def test_a_leaving_server_ends_its_streams_at_once(house: WebHouse) -> None:
    async with house.stream(PATH, "red") as stream:
        await stream.until("hello")
        house.context.feed.close()
        assert b"bye" not in await stream.rest()


async def test_one_token_keeps_so_many_pages_live(house: WebHouse) -> None:
    await house.restart(WebSection(streams=1))
    async with house.stream(PATH, "red") as stream:
        await stream.until("hello")
        async with house.client("red") as client:
            refused = await client.get(PATH)
        assert refused.status_code == 429
        assert "retry-after" in refused.headers
        async with house.stream(PATH, "blue") as other:
            await other.until("hello")
    async with house.stream(PATH, "red") as stream:
        await stream.until("hello")


async def test_a_slow_page_is_told_to_load_everything_anew() -> None:
    hub = a_hub()
    slow = hub.open(None, "t", None, None)
    for n in range(QUEUED * 2):
        hub.add([event(11 + n)])
        await asyncio.sleep(2)
    text = await read_all(slow)
    assert len(list(told(text))) <= QUEUED
    assert next(told(text))[0] == "reset"


async def test_a_large_batch_names_the_newest_and_counts_all() -> None:
    hub = a_hub()
    tab = hub.open("red", "t", None, None)
    hub.add([event(11 + n, kind="job.submitted" if n % 2 else "job.state") for n in range(1000)])
    await asyncio.sleep(2)
    *_, (name, seq, data) = told(await read_all(tab))
    assert (name, seq, data["dropped"]) == ("changes", 1010, 1000 - NAMED)
    assert data["kinds"] == {"job.submitted": 500, "job.state": 500}
    assert [one["seq"] for one in data["events"]] == list(range(1010 - NAMED + 1, 1011))


async def test_more_than_is_remembered_means_to_load_everything_anew() -> None:
    hub = a_hub()
    tab = hub.open("blue", "t", None, None)
    hub.add(event(11 + n) for n in range(REMEMBERED + 1))
    await asyncio.sleep(2)
    assert [name for name, _, _ in told(await read_all(tab))] == ["hello", "reset"]


async def test_pages_are_bounded() -> None:
    hub = a_hub(most_of_one=2)
    tabs = [hub.open(None, "t", None, None) for _ in range(2)]
    with pytest.raises(Overloaded):
        hub.open(None, "t", None, None)
    hub.leave(tabs[0])
    hub.leave(tabs[0])
    hub.open(None, "t", None, None)


@given(st.integers(0, 10_000), st.integers(0, 10_000))
def test_batches_are_rarer_the_more_pages_there_are(few: int, more: int) -> None:
    few, more = sorted((few, more))
    assert 0.1 <= batch_every_s(few) <= batch_every_s(more) <= 1.0


STEP = st.one_of(
    st.tuples(st.just("add"), st.lists(st.sampled_from(["red", "blue", None]), min_size=1, max_size=5)),
    st.tuples(st.just("wait"), st.floats(0, 2)),
    st.tuples(st.just("cut"), st.integers(0, 2)),
)


@settings(max_examples=200)
@given(st.lists(STEP, max_size=30))
def test_no_page_misses_or_sees_what_it_should_not(steps: list[tuple[str, Any]]) -> None:
    """Pages of two tenants and of the admin are cut at any time, and go on with the last id they have read."""

    async def play() -> None:
        hub, seq = a_hub(), 10
        who: list[str | None] = ["red", "blue", None]
        expected: list[list[int]] = [[], [], []]
        seen: list[list[int]] = [[], [], []]
        last: list[int | None] = [10, 10, 10]
        tabs = [hub.open(tenant, f"t{n}", None, None) for n, tenant in enumerate(who)]

        async def cut(n: int) -> None:
            for name, place, data in told(await read_all(tabs[n])):
                last[n] = place
                assert name in ("hello", "changes")
                seen[n] += [one["seq"] for one in data.get("events", ()) if one["seq"] > max(seen[n], default=10)]
            hub.leave(tabs[n])
            tabs[n] = hub.open(who[n], f"t{n}", None, last[n])

        for what, value in steps:
            if what == "add":
                made = [event(seq + 1 + n, tenant) for n, tenant in enumerate(value)]
                seq += len(made)
                hub.add(made)
                for n, tenant in enumerate(who):
                    expected[n] += [one.seq for one in made if tenant in (None, one.tenant)]
            elif what == "wait":
                await asyncio.sleep(value)
            else:
                await cut(value)
        await asyncio.sleep(2)
        for n in range(3):
            await cut(n)
            hub.leave(tabs[n])
        assert seen == expected

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(play())
