"""What tenants were due and received: of a moment, and over time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, insert, select

from shoal.base.history import JOINED, OLDER, RECENT
from shoal.store import Store, open_store
from shoal.web.shares import SHOWN, Share, ShareHistory, mean, shares_of
from shoal.web.tables import TABLES, shares
from tests.web.conftest import WebHouse


def test_a_mean_counts_those_who_were_away() -> None:
    found = mean([{"red": Share(1.0, 1.0)}, {"red": Share(0.5, 0.25), "blue": Share(0.5, 0.75)}])
    assert found == {"red": Share(0.75, 0.625), "blue": Share(0.25, 0.375)}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path / 'shoal.db'}", tables=[TABLES])
    store.acquire("test")
    yield store
    store.close()


def test_only_the_greatest_are_shown_together_and_each_alone(store: Store) -> None:
    history = ShareHistory(store)
    for at in range(3):
        history.sample(float(at), {f"t{n}": Share(n / 100, n / 100) for n in range(20)})
    assert set(history.samples(None)) == {f"t{n}" for n in range(20 - SHOWN, 20)}
    assert [one.at for one in history.samples("t1")["t1"]] == [0.0, 1.0, 2.0]
    assert history.samples("nobody") == {}
    assert ShareHistory(store).samples(None) == {}


async def test_a_restart_keeps_what_was_sampled_bounded(store: Store) -> None:
    history, most = ShareHistory(store), RECENT + JOINED + OLDER
    for at in range(RECENT + 3 * JOINED):
        history.sample(10.0 * at, {"red": Share(0.5, at % 2)} if at % 7 else {})
        if at % 50 == 0:
            await history.write()
    await history.write()
    await history.write()
    again = ShareHistory(store)
    again.load()
    assert again.samples("red") == history.samples("red")
    assert len(store.rows(select(shares))) == len(history.samples("red")["red"]) < most
    for one in (history, again):  # they go on alike
        for at in range(RECENT + 3 * JOINED, RECENT + 5 * JOINED):
            one.sample(10.0 * at, {"red": Share(1.0, 1.0)})
    assert again.samples("red") == history.samples("red")


async def test_what_is_not_understood_in_the_table_is_left_out(store: Store) -> None:
    history = ShareHistory(store)
    history.sample(1.0, {"red": Share(0.5, 0.5)})
    await history.write()
    rows = [{"subject": "all", "at": at, "joined": 0, "value": text}
            for at, text in ((2.0, "{"), (3.0, "[]"), (4.0, '{"red": 1}'))]  # fmt: skip

    def spoil(connection: Connection) -> bool:
        connection.execute(insert(shares), rows)
        return True

    await store.transact(spoil)
    history.load()
    assert [one.at for one in history.samples("red")["red"]] == [1.0]
    history.sample(5.0, {"red": Share(1.0, 1.0)})
    await history.write()


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
