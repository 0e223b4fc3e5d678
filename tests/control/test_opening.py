"""What is asked of a server before its routes are loaded."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from shoal.control.opening import Opening

PLANE: Any = SimpleNamespace(ready=True)


async def ask(app: Any, path: str, method: str = "GET") -> tuple[int, bytes]:
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app({"type": "http", "method": method, "path": path}, None, send)
    return sent[0]["status"], b"".join(one.get("body", b"") for one in sent[1:])


async def routes(scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 201, "headers": []})
    await send({"type": "http.response.body", "body": scope["path"].encode()})


@pytest.mark.parametrize(("path", "text"), [("/healthz", b"ok\n"), ("/readyz", b"ready\n")])
async def test_probes_are_answered_at_once(path: str, text: bytes) -> None:
    opening = Opening(PLANE)
    assert await ask(opening, path) == (200, text)
    opening.open(routes)
    assert await ask(opening, path) == (201, path.encode())  # what the routes say of themselves


@pytest.mark.parametrize(("method", "path"), [("POST", "/v1/jobs"), ("POST", "/readyz"), ("GET", "/healthz/")])
async def test_all_else_waits_and_is_answered_by_the_routes(method: str, path: str) -> None:
    opening = Opening(PLANE)
    asked = [asyncio.create_task(ask(opening, path, method)) for _ in range(3)]
    asked[0].cancel()  # its caller left: the others still wait
    await asyncio.sleep(0)
    assert not any(one.done() for one in asked[1:])
    opening.open(routes)
    assert await asyncio.gather(*asked[1:]) == [(201, path.encode())] * 2


async def test_a_plane_that_is_not_ready_is_not_called_so() -> None:
    opening = Opening(SimpleNamespace(ready=False))  # type: ignore[arg-type]
    waits = asyncio.create_task(ask(opening, "/readyz"))
    assert await ask(opening, "/healthz") == (200, b"ok\n")
    assert not waits.done()
    opening.open(routes)
    assert await waits == (201, b"/readyz")
