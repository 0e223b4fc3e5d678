"""Members of a tenant who may open only what is theirs send artifacts: none meets another's upload."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from shoal.contract.principal import Callers, Principal, User
from shoal.contract.records import NewEvent, TokenRecord
from shoal.control.door import Door
from shoal.control.extensions.loaded import Chosen
from shoal.control.plane import ControlPlane
from shoal.control.tokens import new_token
from shoal.core import token_digest
from shoal.engine.simulated import SimulatedEngine
from shoal.extension import Extension, NoSection
from shoal.results.live.extension import Results
from shoal.results.section import ResultsSection
from shoal.store import open_store
from tests.control.api.conftest import behave
from tests.control.simulation import World, nodes

DATA = b"what only ann has" * 100
DIGEST = hashlib.sha256(DATA).hexdigest()


class Members(Extension):
    """Each token but the lead's is that of a member."""

    name = "members"

    def __init__(self, server: Any, settings: NoSection) -> None: ...

    def answers(self) -> Mapping[type, object]:
        return {Callers: self}

    async def holder(self, who: Principal) -> Principal:
        if who.token_id == "tok-lead":
            return who
        return replace(who, user=User(who.token_id, len(who.token_id)), own_only=True)


@dataclass
class Team:
    door: Door
    tokens: dict[str, str]

    def client(self, who: str) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(self.door.app, raise_app_exceptions=True)
        headers = {"authorization": f"Bearer {self.tokens[who]}"}
        return httpx.AsyncClient(transport=transport, base_url="http://shoal", headers=headers)

    async def begin(self, who: str, name: str = "it") -> dict[str, Any]:
        asked = {"sha256": DIGEST, "bytes": len(DATA), "name": name}
        async with self.client(who) as client:
            answer = await client.post("/v1/artifact-uploads", json=asked)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def send(self, who: str, data: bytes, offset: int) -> int:
        async with self.client(who) as client:
            answer = await client.put(
                f"/v1/artifact-uploads/{DIGEST}", params={"bytes": len(DATA), "offset": offset}, content=data,
                headers={"x-shoal-sha256": hashlib.sha256(data).hexdigest()},
            )  # fmt: skip
        return answer.status_code

    async def listed(self, who: str) -> list[str]:
        async with self.client(who) as client:
            found = (await client.get("/v1/artifacts")).json()["artifacts"]
        return sorted(one["name"] for one in found)


@pytest.fixture
async def team(tmp_path: Path) -> AsyncIterator[Team]:
    made = World.make(tmp_path, nodes(1, 1), behave)
    store = open_store(f"sqlite:///{tmp_path / 'shoal.db'}", clock=made.clock, tables=[Results.tables])
    store.acquire("test")
    plane = ControlPlane(
        store, SimulatedEngine(made.cluster), tmp_path, clock=made.clock,
        extensions=[Chosen(Members, NoSection()), Chosen(Results, ResultsSection())],
    )  # fmt: skip
    await plane.open()
    await plane.put_tenant("red", actor="admin")
    tokens = {who: new_token("red") for who in ("ann", "bob", "lead")}
    for who, token in tokens.items():
        record = TokenRecord(f"tok-{who}", "red", token_digest(token), who, 0.0)
        await store.put_token(record, NewEvent(0.0, "token.created", "admin", tenant="red"))
    door = Door(plane)
    await door.open()
    yield Team(door, tokens)
    door.close()
    await plane.close()
    store.close()


@pytest.mark.virtual_time
async def test_a_digest_that_a_colleague_knows_opens_no_upload_of_another(team: Team) -> None:
    half = len(DATA) // 2
    assert (await team.begin("ann"))["have"] == 0
    assert await team.send("ann", DATA[:half], 0) == 200
    assert await team.send("bob", b"x" * 10, half) == 404, "bob has begun none"
    assert (await team.begin("bob"))["have"] == 0, "and is not told how far ann's is"
    assert await team.send("bob", b"x" * 10, half) == 409
    assert await team.send("ann", DATA[half:], half) == 200
    begun = await team.begin("bob", "bob's")
    assert (begun["have"], begun["artifact"]) == (0, None), "what ann sent is not bob's to keep"
    assert (await team.begin("ann", "ann's"))["artifact"]["digest"] == f"sha256:{DIGEST}"
    assert (await team.begin("bob", "bob's"))["artifact"] is None, "nor is what is kept"
    assert await team.listed("bob") == []
    assert await team.send("bob", DATA, 0) == 200
    assert (await team.begin("bob", "bob's"))["artifact"]["name"] == "bob's"
    assert (await team.listed("ann"), await team.listed("bob")) == (["ann's"], ["bob's"])
    assert (await team.begin("lead", "lead's"))["artifact"]["name"] == "lead's", "a lead has all of the tenant's"
