"""A real server with the built page, and a real browser: Debian's chromium, driven by Playwright.

Each test has a browser context of its own. It fails where the page raised an error, or the browser refused something
by the content security policy.
"""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from shoal import Client
from shoal.base.home import Home, read_server
from shoal.cli.app import app
from shoal.web.site import Site
from tests.servers import kill_for_good

playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")

CHROMIUM = Path("/usr/bin/chromium")
WITHIN_MS = 30_000


@dataclass
class Running:
    """A server in a process of its own."""

    home: Path
    port: int = 0
    sets: list[str] = field(default_factory=list)

    def up(self) -> None:
        words = ["up", "--port", str(self.port), "--slots", "2", "--detach", "--home", str(self.home)]
        for one in self.sets:
            words += ["--set", one]
        given = CliRunner().invoke(app, words)
        assert given.exit_code == 0, given.output
        self.port = int(self.url.rpartition(":")[2])

    def kill(self) -> None:
        """As `kill -9` does, and waits for its end."""
        kill_for_good(Home(self.home))

    def down(self) -> None:
        CliRunner().invoke(app, ["down", "--home", str(self.home)])

    @property
    def url(self) -> str:
        info = read_server(Home(self.home))
        assert info is not None
        return info.url

    def client(self, token: str | None = None) -> Client:
        return Client(self.url, token or (self.home / "admin.token").read_text().strip())

    def token(self, tenant: str, label: str = "", *, viewer: bool = False) -> str:
        """A token of a tenant, which is made if need be."""
        with self.client() as client:
            if tenant not in {one.name for one in client.tenants()}:
                client.create_tenant(tenant)
            made = client.create_token(tenant, label=label, role="viewer" if viewer else "member")
        return str(made.token)


def eventually(true: Callable[[], bool], within_s: float = 60.0) -> None:
    end = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.05)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    if not Site().built:
        pytest.skip("the web page is not built: `.ci/web` builds it, with Node.js")
    running = Running(tmp_path_factory.mktemp("home"))
    running.up()
    yield running
    running.down()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """Not for longer than its module: while the driver is there, this thread has a running event loop."""
    if not CHROMIUM.exists():
        pytest.skip("there is no chromium: `.ci/chromium` gets it")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=str(CHROMIUM),
            args=["--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP *.rebound.example 127.0.0.1"],
        )
        yield browser
        browser.close()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """One that jobs of every user can look into."""
    with tempfile.TemporaryDirectory(prefix="shoal-web-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@dataclass
class Window:
    """One page of a browser, and what went wrong in it."""

    page: Any
    expected: list[str] = field(default_factory=list)
    """Patterns of messages that belong to the test."""
    _wrong: list[str] = field(default_factory=list)

    def watch(self) -> None:
        self.page.on("pageerror", lambda error: self._wrong.append(f"error: {error}"))
        self.page.on("console", lambda told: self._wrong.append(told.text) if told.type == "error" else None)

    @property
    def wrong(self) -> list[str]:
        known = re.compile("|".join(["^$", *self.expected]))
        return [one for one in self._wrong if not known.search(one)]

    def sign_in(self, server: Running, token: str | None = None) -> None:
        """By a one-time link."""
        with server.client(token) as client:
            self.page.goto(client.web.link().url)
        self.page.get_by_role("heading", name="Jobs").first.wait_for()

    def sees(self, text: str, **options: Any) -> Any:
        found = self.page.get_by_text(text, **options).first
        found.wait_for()
        return found


@pytest.fixture
def window(chromium: Any) -> Iterator[Window]:
    context = chromium.new_context()
    context.set_default_timeout(WITHIN_MS)
    found = Window(context.new_page())
    found.watch()
    yield found
    context.close()
    assert found.wrong == []


def cookies_of(window: Window) -> list[dict[str, Any]]:
    return [one for one in window.page.context.cookies() if one["name"].startswith("shoal_session")]


def fetched(window: Window, path: str, **options: Any) -> Any:
    """Status and text of what a script of the page gets."""
    status, text = window.page.evaluate(
        """async ([path, options]) => {
            const got = await fetch(path, options);
            return [got.status, await got.text()];
        }""",
        [path, options],
    )
    try:
        return status, json.loads(text)
    except ValueError:
        return status, text
