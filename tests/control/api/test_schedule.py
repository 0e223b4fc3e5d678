"""The live state for `shoal schedule`, with and without a policy."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.control.api.conftest import House

pytestmark = pytest.mark.virtual_time


async def test_the_live_state_is_the_admins_and_needs_no_policy(house: House) -> None:
    job = await house.submit(seconds=30.0, resources={"accelerators": 1})
    await house.submit(seconds=30.0)
    await asyncio.sleep(2)
    async with house.client("red") as client:
        assert (await client.get("/v1/schedule/snapshot")).status_code == 403
    async with house.client() as client:
        response = await client.get("/v1/schedule/snapshot")
    assert response.headers["content-type"].startswith("application/x-ndjson")
    lines = [json.loads(line) for line in response.text.splitlines()]
    assert lines[0]["shoal"] == "schedule"
    assert [line["job"] for line in lines if "job" in line] == [job["id"]]
    assert next(line for line in lines if "job" in line)["placed"]
