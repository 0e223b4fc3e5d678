"""`shoal top` on a terminal, by its keys and its mouse, on a real server."""

from __future__ import annotations

import asyncio
import os
import pty
import sys
import threading
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Static

from shoal import Client
from shoal.base.home import Home, read_server
from shoal.cli.screen import JobScreen, Question, TopApp, plain
from shoal.sdk.models import JobView
from tests.cli.conftest import Shell, eventually


def client_of(shell: Shell) -> Client:
    info = read_server(Home(shell.home))
    assert info is not None
    return Client(info.url, (shell.home / "admin.token").read_text().strip())


@asynccontextmanager
async def opened(client: Client) -> AsyncIterator[Pilot[None]]:
    async with TopApp(client, 0.25).run_test(size=(140, 40)) as pilot:
        yield pilot


async def until(pilot: Pilot[None], true: Callable[[], bool], within_s: float = 60.0) -> None:
    async with asyncio.timeout(within_s):
        while not true():
            await pilot.pause(0.05)


def cells(pilot: Pilot[None], view: str) -> list[list[str]]:
    table: Any = pilot.app.screen_stack[0].query_one(f"#table-{view}", DataTable)
    return [[str(cell) for cell in table.get_row_at(row)] for row in range(table.row_count)]


def text(pilot: Pilot[None], name: str) -> str:
    return str(pilot.app.screen.query_one(name, Static).render())


async def test_a_job_is_found_opened_followed_and_cancelled(shell: Shell, manifest: Callable[..., str]) -> None:
    name = f"seen-{uuid.uuid4().hex[:8]}"
    code = "import time\nprint('\\033[31mred\\033[0m \\033]0;title\\007line')\nwhile True: time.sleep(0.1)"
    shell.json("submit", manifest(code, name=name))
    with client_of(shell) as client:
        async with opened(client) as pilot:
            await until(pilot, lambda: any(row[:2] == [name, "RUNNING"] for row in cells(pilot, "jobs")))
            await pilot.press("slash", *name)
            await until(pilot, lambda: [row[0] for row in cells(pilot, "jobs")] == [name])
            await pilot.press("enter", "enter")
            await until(pilot, lambda: isinstance(pilot.app.screen, JobScreen))
            await until(pilot, lambda: "line" in text(pilot, "#lines") and name in text(pilot, "#facts"))
            assert "\x1b" not in text(pilot, "#lines")

            # Asked, and not answered: nothing happens. Asked again, and said yes by the mouse.
            await pilot.press("c")
            await until(pilot, lambda: isinstance(pilot.app.screen, Question))
            await pilot.press("n")
            await until(pilot, lambda: isinstance(pilot.app.screen, JobScreen))
            assert client.job(name).state == "RUNNING"
            await pilot.press("c")
            await until(pilot, lambda: isinstance(pilot.app.screen, Question))
            await pilot.click("#yes")
            await until(pilot, lambda: "CANCELLED" in text(pilot, "#facts"))
            await pilot.press("escape")
            await until(pilot, lambda: cells(pilot, "jobs") == [])


async def test_an_answer_that_comes_after_its_screen_was_left_is_dropped(
    shell: Shell, manifest: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = shell.json("submit", manifest("pass", name=f"left-{uuid.uuid4().hex[:8]}"))["id"]
    asked, answer = threading.Event(), threading.Event()
    with client_of(shell) as client:
        seen = client.job(job)

        def late(job_id: str) -> JobView:
            asked.set()
            answer.wait()
            return seen

        async with opened(client) as pilot:
            monkeypatch.setattr(client, "job", late)
            screen = JobScreen(client, job, 0.05)
            await pilot.app.push_screen(screen)
            await until(pilot, asked.is_set)
            for widget in screen.query("#facts"):
                await widget.remove()  # the first that goes when a screen is left
            pilot.app.pop_screen()
            answer.set()
            await until(pilot, lambda: not any(worker.node is screen for worker in pilot.app.workers))


async def test_every_view_shows_what_there_is(shell: Shell) -> None:
    with client_of(shell) as client:
        async with opened(client) as pilot:
            await until(pilot, lambda: len(cells(pilot, "tenants")) > 0)
            for key, view in enumerate(("jobs", "services", "nodes", "tenants", "events"), 1):
                await pilot.press(str(key))
                await until(pilot, lambda view=view: pilot.app.focused is pilot.app.query_one(f"#table-{view}"))
            assert ["default"] in [row[:1] for row in cells(pilot, "tenants")]
            assert cells(pilot, "nodes")[0][1] == "open"
            assert cells(pilot, "events")
            assert "devices busy" in text(pilot, "#head")


async def test_a_server_that_answers_no_more_is_said_and_the_view_stays(shell: Shell) -> None:
    info = read_server(Home(shell.home))
    assert info is not None
    with client_of(shell) as admin:
        made = admin.create_token("default", label="for a while", role="viewer")
        with Client(info.url, made.token) as client:
            async with opened(client) as pilot:
                await until(pilot, lambda: len(cells(pilot, "nodes")) > 0)
                admin.revoke_token(made.id)
                await until(pilot, lambda: "not up to date" in text(pilot, "#head"))
                assert cells(pilot, "nodes")


def test_nothing_of_a_name_moves_the_cursor() -> None:
    assert plain("a\x1b[2Jb\r\n[bold]c").plain == "a�[2Jb��[bold]c"


@pytest.mark.slow
def test_it_starts_on_a_terminal_and_not_in_a_pipe(shell: Shell, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "shoal.cli", "top", "--home", str(shell.home)]
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execv(words[0], words)
    seen = bytearray()

    def read() -> bool:
        seen.extend(os.read(terminal, 1 << 16))
        return b"devices busy" in seen and b"Tenants" in seen

    eventually(read)
    os.write(terminal, b"q")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(terminal)
    assert "devices busy" in shell("top", "--once").stdout
