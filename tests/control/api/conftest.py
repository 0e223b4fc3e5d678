"""The API over the real control plane, in virtual time: requests go straight into the application."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from shoal.contract.records import NewEvent, TokenRecord
from shoal.control.api.app import create_app
from shoal.control.api.context import Context, Limits
from shoal.control.api.feed import Feed
from shoal.control.plane import ControlPlane
from shoal.control.tokens import TokenCache, new_token
from shoal.core import token_digest
from shoal.engine import Gang
from shoal.engine.simulated import Line, Script
from tests.control.simulation import World, nodes
from tests.serve.live.simulation import SimulatedGateway


def behave(gang: Gang) -> Script:
    """`[run, SECONDS, CODE]`: a line at the start and one a second, then the code."""
    _, *rest = gang.argv
    run_s, code = (float(rest[0]) if rest else 1.0), (int(rest[1]) if len(rest) > 1 else 0)
    attempt = gang.name.split(".")[1]
    lines = tuple(Line(float(s), f"attempt {attempt} second {s}") for s in range(int(run_s) + 1) if s < run_s)
    return Script(run_s=run_s, code=code, lines=lines)


@dataclass
class House:
    """One server's application with an admin and two tenants, `red` and `blue`."""

    world: World
    context: Context
    app: FastAPI
    tokens: Mapping[str, str]

    @property
    def plane(self) -> ControlPlane:
        return self.context.plane

    def client(self, who: str | None = "admin") -> httpx.AsyncClient:
        headers = {"authorization": f"Bearer {self.tokens[who]}"} if who else {}
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        return httpx.AsyncClient(transport=transport, base_url="http://shoal", headers=headers)

    async def submit(self, who: str = "red", name: str = "job", seconds: float = 1.0, **fields: Any) -> dict[str, Any]:
        manifest = {"name": name, "command": ["run", str(seconds)], **fields}
        async with self.client(who) as client:
            response = await client.post("/v1/jobs", json=manifest)
        assert response.status_code == 201, response.text
        found: dict[str, Any] = response.json()
        return found

    @asynccontextmanager
    async def stream(
        self, path: str, who: str | None = "admin", query: str = "", headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[Stream]:
        """A response that is read while it is written; leaving hangs up."""
        given = {**({"authorization": f"Bearer {self.tokens[who]}"} if who else {}), **(headers or {})}
        scope = {
            "type": "http", "asgi": {"version": "3.0", "spec_version": "2.4"}, "http_version": "1.1", "method": "GET",
            "path": path, "raw_path": path.encode(), "query_string": query.encode(), "root_path": "", "scheme": "http",
            "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
            "client": ("test", 1), "server": ("test", 80), "state": {},
        }  # fmt: skip
        stream = Stream()
        task = asyncio.create_task(self.app(scope, stream.receive, stream.send))
        try:
            yield stream
        finally:
            stream.hung_up.set()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


class Stream:
    def __init__(self) -> None:
        self.status = 0
        self.hung_up = asyncio.Event()
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def receive(self) -> dict[str, Any]:
        await self.hung_up.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            return
        if message.get("body"):
            await self._pieces.put(message["body"])
        if not message.get("more_body"):
            await self._pieces.put(None)

    async def piece(self) -> bytes | None:
        """The next piece of the body; None at its end."""
        return await self._pieces.get()

    async def rest(self) -> bytes:
        found = b""
        while (piece := await self.piece()) is not None:
            found += piece
        return found

    async def until(self, text: str) -> str:
        """What came up to and including the piece with this text."""
        found = ""
        while text not in found:
            piece = await self.piece()
            assert piece is not None, f"the stream ended without {text!r}: {found}"
            found += piece.decode()
        return found


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    gateway = SimulatedGateway()

    def behaviour(gang: Gang) -> Script:
        if "--name" not in gang.argv:
            return behave(gang)
        gateway.replica_started(gang)
        return Script(run_s=inf, term_s=0.1)

    world = World.make(tmp_path, nodes(1, 2), behaviour)
    world.gateway, gateway.world = gateway, world
    async with furnished(world) as made:
        yield made


@asynccontextmanager
async def furnished(world: World) -> AsyncIterator[House]:
    """The application over a world that is not started yet; killed at the end."""
    plane = await world.start()
    tokens: dict[str, str] = {}
    for who in ("admin", "red", "blue"):
        tenant = None if who == "admin" else who
        if tenant:
            await plane.put_tenant(tenant, actor="admin")
        tokens[who] = new_token(tenant)
        record = TokenRecord(f"tok-{who}", tenant, token_digest(tokens[who]), "", 0.0)
        await plane.store.put_token(record, NewEvent(0.0, "token.created", "admin", tenant=tenant))
    context = Context(plane, Feed(), TokenCache(), limits=Limits(body_bytes=10_000))
    unfollow = context.follow()
    yield House(world, context, create_app(context), tokens)
    unfollow()
    await world.kill()
