"""What is rented, over HTTP and by the commands' own models: tenants see their own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx

from shoal.contract.events import EventKind
from shoal.contract.lifecycle import JobState
from shoal.contract.records import NewEvent, TokenRecord
from shoal.control.door import Door
from shoal.control.server import put_admin_token
from shoal.control.tokens import new_token, new_token_id, token_digest
from shoal.market.models import LedgerView, MarketView, RentedJobView
from tests.market.live.test_market import SPOT, World
from tests.market.live.test_market import play as play_world

Get = Callable[[str, str], Awaitable[tuple[int, Any]]]


def play(folder: Path, scene: Callable[[World, Get], Awaitable[None]]) -> None:
    async def whole(world: World) -> None:
        tokens = {"admin": new_token(None)}
        await put_admin_token(world.store, tokens["admin"], "test", world.clock.now())
        await world.plane.put_tenant("other", actor="admin")
        for tenant in ("default", "other"):
            tokens[tenant] = new_token(tenant)
            record = TokenRecord(new_token_id(), tenant, token_digest(tokens[tenant]), "test", world.clock.now())
            await world.store.put_token(record, NewEvent(world.clock.now(), EventKind.TOKEN_CREATED, "test"))
        door = Door(world.plane)
        await door.open()
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=door.app), base_url="http://shoal") as client:

            async def get(who: str, path: str) -> tuple[int, Any]:
                answer = await client.get(path, headers={"authorization": f"Bearer {tokens[who]}"})
                return answer.status_code, answer.json()

            await scene(world, get)
        door.close()

    play_world(folder, whole)


def test_what_is_rented_and_what_it_costs_is_told_to_whom_it_belongs(tmp_path: Path) -> None:
    async def scene(world: World, get: Get) -> None:
        job = await world.submit()
        await world.until(job, JobState.RUNNING)
        status = MarketView.model_validate((await get("admin", "/v1/market"))[1])
        (rental,) = status.rentals
        assert (rental.job, rental.offer, rental.state, rental.exact) == (job, SPOT, "RUNNING", False)
        (account,) = status.accounts
        assert (account.tenant, account.cap_usd, account.rentals) == ("default", 50.0, 1)
        assert 0.5 <= account.held_usd <= 0.51  # a lease of twenty minutes
        why = RentedJobView.model_validate((await get("default", f"/v1/market/jobs/{job}"))[1])
        assert (why.offer, [one.price for one in why.what_if]) == (SPOT, [1.2, 1.5, 2.0])
        assert [one.rental for one in why.rentals] == [rental.rental]
        ledger = LedgerView.model_validate((await get("default", "/v1/market/ledger"))[1])
        assert [one.rental for one in ledger.rentals] == [rental.rental]

    play(tmp_path, scene)


def test_other_tenants_see_nothing_of_it(tmp_path: Path) -> None:
    async def scene(world: World, get: Get) -> None:
        job = await world.submit()
        await world.until(job, JobState.RUNNING)
        _, status = await get("other", "/v1/market")
        assert (status["rentals"], status["accounts"]) == ([], [])
        _, ledger = await get("other", "/v1/market/ledger")
        assert (ledger["rentals"], ledger["accounts"]) == ([], [])
        assert (await get("other", f"/v1/market/jobs/{job}"))[0] == 404
        assert (await get("other", "/v1/market/ledger?tenant=default"))[0] == 404
        assert (await get("admin", "/v1/market/jobs/j-none"))[0] == 404

    play(tmp_path, scene)
