"""Tenants that two admins create or change at the same moment."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.control.api.conftest import House

pytestmark = pytest.mark.virtual_time


@pytest.fixture
def slow(house: House, monkeypatch: pytest.MonkeyPatch) -> House:
    """A house whose disk takes a second for each tenant."""
    store = house.context.plane.store
    put = store.put_tenant

    async def put_slowly(*args: Any) -> None:
        await asyncio.sleep(1)
        await put(*args)

    monkeypatch.setattr(store, "put_tenant", put_slowly)
    return house


async def test_neither_of_two_changes_at_once_is_lost(slow: House) -> None:
    async with slow.client("admin") as client:
        changes: list[dict[str, object]] = [
            {"weight": 2.5}, {"quota": {"accelerators": 4}}, {"quota": {"running_jobs": 7}},
        ]  # fmt: skip
        told = await asyncio.gather(*(client.patch("/v1/tenants/red", json=change) for change in changes))
        assert [one.status_code for one in told] == [200, 200, 200]
        red = (await client.get("/v1/tenants/red")).json()
        assert (red["weight"], red["quota"]["accelerators"], red["quota"]["running_jobs"]) == (2.5, 4, 7)
        stored = next(one for one in slow.context.plane.store.tenants() if one.name == "red")
        assert (stored.weight, stored.quota.accelerators, stored.quota.running_jobs) == (2.5, 4, 7)


async def test_of_two_that_create_a_tenant_one_is_refused(slow: House) -> None:
    async with slow.client("admin") as client:
        asked = [{"name": "new", "weight": weight} for weight in (1.5, 3.0)]
        told = await asyncio.gather(*(client.post("/v1/tenants", json=one) for one in asked))
        assert [one.status_code for one in told] == [201, 409]
        assert (await client.get("/v1/tenants/new")).json()["weight"] == 1.5
