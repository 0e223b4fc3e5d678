"""The server's application with the web page on it, in virtual time, and a browser that keeps cookies."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from shoal.contract.records import NewEvent, TokenRecord
from shoal.control.door import Door
from shoal.control.extensions.loaded import Chosen
from shoal.control.plane import ControlPlane
from shoal.control.tokens import new_token
from shoal.core import token_digest
from shoal.engine.simulated import SimulatedEngine
from shoal.store import open_store
from shoal.web.extension import Web
from shoal.web.settings import WebSection
from tests.control.api.conftest import House, Stream, behave
from tests.control.simulation import World, nodes

HOST = "127.0.0.1:7070"
PAGE = {"origin": f"http://{HOST}", "x-shoal-web": "1"}
"""What the page sends with each request that changes something."""


@dataclass
class WebWorld(World):
    section: WebSection = field(default_factory=WebSection)

    async def start(self) -> ControlPlane:
        self.store = open_store(
            f"sqlite:///{self.folder / 'shoal.db'}", clock=self.clock, inline=True, sync=False, tables=[Web.tables]
        )
        self.store.acquire("simulation")
        self.engine = SimulatedEngine(self.cluster)
        numbers = random.Random(self.store.epoch)
        self.plane = ControlPlane(
            self.store, self.engine, self.folder, clock=self.clock,
            new_id=lambda letter: f"{letter}-{numbers.getrandbits(40):010x}",
            extensions=[Chosen(Web, self.section)],
        )  # fmt: skip
        await self.plane.open()
        return self.plane


@dataclass
class WebHouse(House):
    door: Door = None  # type: ignore[assignment]

    @property
    def web(self) -> Web:
        found = self.plane.extensions.get(Web)
        assert found is not None
        return found

    def browser(self, **options: Any) -> httpx.AsyncClient:
        """Without a token; it keeps the cookies that it is given."""
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=True)
        return httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}", **options)

    @asynccontextmanager
    async def page(self, browser: httpx.AsyncClient) -> AsyncIterator[Stream]:
        """The stream of a page that is open in this browser."""
        cookie = f"{self.web.cookie}={browser.cookies[self.web.cookie]}"
        async with self.stream("/v1/web/stream", None, headers={"cookie": cookie, "host": HOST}) as stream:
            yield stream

    async def signed_in(self, who: str = "red") -> httpx.AsyncClient:
        browser = self.browser()
        answer = await browser.post("/v1/web/session", json={"token": self.tokens[who]}, headers=PAGE)
        assert answer.status_code == 200, answer.text
        return browser

    async def restart(self, section: WebSection | None = None) -> None:
        """Another server on the same home, with other settings of the page if given."""
        assert isinstance(self.world, WebWorld)
        self.world.section = section or self.world.section
        self.door.close()
        await self.world.kill()
        plane = await self.world.start()
        self.door = Door(plane)
        await self.door.open()
        self.context, self.app = self.door.context, self.door.app


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[WebHouse]:
    made = World.make(tmp_path, nodes(1, 2), behave)
    world = WebWorld(tmp_path, made.cluster, made.clock)
    plane = await world.start()
    tokens: dict[str, str] = {}
    for who, tenant, viewer in (
        ("admin", None, False),
        ("red", "red", False),
        ("blue", "blue", False),
        ("eye", "red", True),
    ):
        if tenant:
            await plane.put_tenant(tenant, actor="admin")
        tokens[who] = new_token(tenant)
        record = TokenRecord(f"tok-{who}", tenant, token_digest(tokens[who]), f"of {who}", 0.0, read_only=viewer)
        await plane.store.put_token(record, NewEvent(0.0, "token.created", "admin", tenant=tenant))
    door = Door(plane)
    await door.open()
    found = WebHouse(world, door.context, door.app, tokens, door)
    yield found
    found.door.close()
    await world.kill()
