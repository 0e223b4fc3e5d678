"""What tenants were due and received: of a moment, and over time."""

from __future__ import annotations

import asyncio

import pytest

from shoal.web.shares import SHOWN, Share, ShareHistory, mean, shares_of
from tests.web.conftest import WebHouse


def test_a_mean_counts_those_who_were_away() -> None:
    found = mean([{"red": Share(1.0, 1.0)}, {"red": Share(0.5, 0.25), "blue": Share(0.5, 0.75)}])
    assert found == {"red": Share(0.75, 0.625), "blue": Share(0.25, 0.375)}


def test_only_the_greatest_are_shown_together_and_each_alone() -> None:
    history = ShareHistory()
    for at in range(3):
        history.sample(float(at), {f"t{n}": Share(n / 100, n / 100) for n in range(20)})
    assert set(history.samples(None)) == {f"t{n}" for n in range(20 - SHOWN, 20)}
    assert [one.at for one in history.samples("t1")["t1"]] == [0.0, 1.0, 2.0]
    assert history.samples("nobody") == {}
    assert ShareHistory().samples(None) == {}


@pytest.mark.virtual_time
async def test_shares_are_of_those_who_hold_or_wait_and_each_tenant_sees_its_own(house: WebHouse) -> None:
    for tenant in ("red", "red", "blue"):
        await house.submit(tenant, seconds=1000.0, resources={"accelerators": 1})
    while sum(one.received for one in shares_of(house.plane.snapshot()).values()) < 1.0:
        await asyncio.sleep(0.05)
    async with house.client("red") as red, house.client("admin") as admin:
        now = shares_of(house.plane.snapshot())
        assert now == {"red": Share(0.5, 0.5), "blue": Share(0.5, 0.5)}
        house.web.shares.sample(house.plane.clock.now() + 1.0, now)
        assert set((await admin.get("/v1/web/shares")).json()["tenants"]) >= {"red", "blue"}
        assert set((await red.get("/v1/web/shares")).json()["tenants"]) == {"red"}
        assert (await red.get("/v1/web/shares?tenant=blue")).status_code == 404
