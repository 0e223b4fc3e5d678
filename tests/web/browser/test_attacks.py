"""Foreign pages in the browser of somebody who is signed in: real pages of a real other server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.web.browser.conftest import Running, Window, fetched

pytestmark = pytest.mark.slow

JOB = '{"name": "evil", "command": ["true"]}'


@pytest.fixture
def foreign() -> Iterator[str]:
    """The address of a page of others, at another port of the same host: browsers send it the same cookies."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>evil</title>")

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    server.server_close()


def jobs(server: Running) -> set[str]:
    with server.client() as client:
        return {one.name for one in client.jobs().jobs}


def test_a_foreign_page_neither_reads_nor_changes(server: Running, window: Window, foreign: str) -> None:
    window.sign_in(server)
    page = window.page
    window.expected.append("")
    page.goto(foreign)
    attempts: list[dict[str, Any]] = [
        {"method": "POST", "body": JOB, "mode": "no-cors"},
        {"method": "POST", "body": JOB, "mode": "no-cors", "headers": {"content-type": "text/plain"}},
        {"method": "POST", "body": JOB, "headers": {"x-shoal-web": "1"}},
        {"method": "GET"},
    ]
    script = """async ([url, options]) => {
        try {
            const got = await fetch(url, {...options, credentials: "include"});
            return got.type + await got.text();
        } catch (error) {
            return "refused";
        }
    }"""
    for one in attempts:
        assert page.evaluate(script, [f"{server.url}/v1/jobs", one]) in ("refused", "opaque")
    with page.expect_navigation():
        page.evaluate(
            """([url, body]) => {
                const form = document.createElement("form"), field = document.createElement("input");
                form.method = "POST"; form.action = url; form.enctype = "text/plain";
                field.name = body.slice(0, -1) + ', "x": "'; field.value = '"}';
                form.append(field); document.body.append(form); form.submit();
            }""",
            [f"{server.url}/v1/jobs", JOB],
        )
    assert "evil" not in jobs(server)


def test_the_page_stands_in_no_frame(server: Running, window: Window, foreign: str) -> None:
    window.sign_in(server)
    window.expected.append("")
    window.page.goto(foreign)
    window.page.evaluate(
        """url => new Promise(done => {
            const frame = document.createElement("iframe");
            frame.src = url; frame.onload = done;
            document.body.append(frame);
        })""",
        f"{server.url}/ui/",
    )
    (frame,) = window.page.frames[1:]
    assert frame.get_by_text("Jobs").count() == 0


def test_a_rebound_name_shows_nothing(server: Running, window: Window) -> None:
    """The foreign page's own name means this server by now; its scripts are of the same origin then."""
    window.sign_in(server)
    window.expected.append("")
    port = server.url.rpartition(":")[2]
    page = window.page
    answer = page.goto(f"http://www.rebound.example:{port}/ui/")
    assert answer.status == 421
    assert fetched(window, "/v1/jobs")[0] in (401, 403)
    assert fetched(window, "/v1/jobs", method="POST", body=JOB, headers={"x-shoal-web": "1"})[0] in (401, 403)
    signed = {"method": "POST", "body": '{"token": "x"}', "headers": {"content-type": "application/json"}}
    assert fetched(window, "/v1/web/session", **signed)[0] == 403
    assert "evil" not in jobs(server)
