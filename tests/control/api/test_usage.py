"""What the holder of one token may use: requests, streams, and the size of what it sends."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.control.api.usage import RateLimited, Usage
from shoal.control.server_settings import TokenLimits
from tests.control.api.conftest import House

virtual = pytest.mark.virtual_time


@dataclass
class Hand:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@given(
    st.lists(st.floats(0, 3, allow_subnormal=False), max_size=200), st.integers(1, 20), st.floats(0.1, 50.0)
)  # fmt: skip
def test_a_bucket_lets_through_its_burst_and_its_rate_and_no_more(pauses: list[float], burst: int, rate: float) -> None:
    clock = Hand()
    usage = Usage(TokenLimits(requests_per_s=rate, burst=burst, streams=1), clock=clock)
    for passed, pause in enumerate(pauses, 1):
        clock.now += pause
        try:
            usage.request("t")
        except RateLimited as refused:
            clock.now += refused.retry_after_s + 1e-6
            usage.request("t")  # it is right about when to come back
        assert passed <= burst + rate * clock.now + 1e-6


def test_tokens_do_not_share() -> None:
    usage = Usage(TokenLimits(requests_per_s=1.0, burst=1, streams=1), clock=Hand())
    usage.request("a")
    usage.request("b")
    with pytest.raises(RateLimited, match="1 times a second"):
        usage.request("a")
    with usage.waiting("a"), usage.waiting("b"), pytest.raises(RateLimited, match="1 streams"), usage.waiting("a"):
        pass
    with usage.waiting("a"):
        pass


@virtual
async def test_who_asks_too_often_is_told_when_to_come_back(house: House) -> None:
    house.context.usage = Usage(TokenLimits(requests_per_s=2.0, burst=5, streams=10))
    async with house.client("red") as client, house.client("blue") as other:
        told = [(await client.get("/v1/jobs")).status_code for _ in range(6)]
        assert told == [200] * 5 + [429]
        refused = await client.post("/v1/jobs", json={"name": "x", "command": ["run"]})
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert refused.json()["error"]["code"] == "rate-limited"
        assert (await other.get("/v1/jobs")).status_code == 200
        assert (await client.get("/healthz")).status_code == 200
        await asyncio.sleep(1)
        assert (await client.get("/v1/jobs")).status_code == 200


@virtual
async def test_expensive_questions_have_a_rate_of_their_own(house: House) -> None:
    house.context.usage = Usage(TokenLimits(questions_per_s=0.5, question_burst=3))
    job = await house.submit(seconds=1000)
    service = {"name": "s", "model": "m.onnx"}
    small, large = {"name": "x", "command": ["run"]}, {"name": "x", "command": ["run", "x" * 5000]}
    async with house.client("red") as client, house.client("blue") as other:
        assert (await client.get(f"/v1/jobs/{job['id']}/explain")).status_code == 200
        assert (await client.post("/v1/manifests/check", json=large)).status_code == 200
        assert (await client.get("/v1/services/none/explain")).status_code == 404
        refused = [
            await client.get(f"/v1/jobs/{job['id']}/explain"),
            await client.get("/v1/services/none/explain"),
            await client.post("/v1/manifests/check", json=large),
            await client.post("/v1/service-manifests/check", json={**service, "env": {"X": "x" * 5000}}),
        ]
        assert [(one.status_code, one.headers["retry-after"]) for one in refused] == [(429, "2")] * 4
        assert refused[0].json()["error"]["code"] == "rate-limited"
        assert (await client.post("/v1/manifests/check", json=small)).status_code == 200
        assert (await client.get(f"/v1/jobs/{job['id']}")).status_code == 200
        assert (await other.post("/v1/manifests/check", json=large)).status_code == 200
        await asyncio.sleep(2)
        assert (await client.get(f"/v1/jobs/{job['id']}/explain")).status_code == 200


@virtual
async def test_streams_and_waiting_requests_of_a_token_are_limited(house: House) -> None:
    house.context.usage = Usage(TokenLimits(requests_per_s=1000.0, burst=1000, streams=3))
    job = await house.submit(seconds=1000)
    path = f"/v1/jobs/{job['id']}"
    array = f"/v1/arrays/{(await house.submit(name='sweep', seconds=1000, array='0-1'))['array_id']}"
    async with house.client("red") as client, house.client("blue") as other:
        async with (
            house.stream("/v1/events", "red", "follow=true") as events,
            house.stream(f"{path}/logs", "red", "follow=true") as logs,
        ):
            await events.piece()
            await logs.piece()
            poll = asyncio.create_task(client.get(f"{path}?wait_s=5"))
            await asyncio.sleep(1)
            for asked in (
                "/v1/events?follow=true", f"{path}/logs?follow=true", f"{path}?wait_s=1",
                "/v1/events?wait_s=1&after=999999", f"{path}/logs?wait_s=1", f"{array}?wait_s=1",
            ):  # fmt: skip
                refused = await client.get(asked)
                assert (refused.status_code, refused.headers["retry-after"]) == (429, "5"), asked
            assert (await client.get(path)).status_code == 200
            assert (await client.get(array)).status_code == 200
            assert (await other.get("/v1/events?wait_s=1&after=999999")).status_code == 200
            assert (await poll).status_code == 200
            assert (await client.get(f"{path}?wait_s=1")).status_code == 200
        await asyncio.sleep(0.1)
        assert (await client.get(f"{path}/logs?wait_s=1")).status_code == 200
        assert house.context.usage._waiting == {}
