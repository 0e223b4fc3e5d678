"""The page as its readers have it: sign in, follow a job, sign out; a server that dies; hostile text."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.web.browser.conftest import Running, Window, cookies_of, eventually, fetched

HOSTILE = "<img src=x onerror=window.hacked=1>"


def manifest(name: str, code: str) -> dict[str, object]:
    return {"name": name, "command": ["python3", "-u", "-c", code]}


def test_a_reader_signs_in_sees_a_job_run_and_signs_out(server: Running, window: Window, open_folder: Path) -> None:
    """Also that what a tenant can write is shown, and never run."""
    token = server.token("team", label=HOSTILE)
    gate = open_folder / "gate"
    waits = f"import os, time\nprint({HOSTILE!r})\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.05)"
    window.sign_in(server, token)
    page = window.page
    assert "code=" not in page.url
    (cookie,) = cookies_of(window)
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["secure"]) == (True, "Strict", False)
    assert page.evaluate("document.cookie + JSON.stringify({...localStorage, ...sessionStorage})").find("shoal_") < 0
    window.sees(HOSTILE)  # the label of the token
    with server.client(token) as client:
        job = client.submit(manifest("followed", waits))
        window.sees("followed")
        page.get_by_role("button", name="Running").get_by_text("1").wait_for()
        gate.touch()
        page.get_by_role("button", name="Succeeded").get_by_text("1").wait_for()
        page.goto(f"{server.url}/ui/jobs/{job.id}/log")
        window.sees(HOSTILE)
    assert page.evaluate("window.hacked") is None
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("Token").wait_for()
    assert cookies_of(window) == []
    assert fetched(window, "/v1/jobs")[0] == 401
    window.expected.append("401")


@pytest.mark.slow
def test_a_token_signs_in_and_a_wrong_one_does_not(server: Running, window: Window) -> None:
    token = server.token("team", viewer=True)
    page = window.page
    window.expected.append("403")
    page.goto(f"{server.url}/")
    page.get_by_label("Token").fill("shoal_team_wrong")
    page.get_by_role("button", name="Sign in").click()
    window.sees("this token is not known here")
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Sign in").click()
    window.sees("viewer of team")
    page.reload()
    window.sees("viewer of team")
    assert fetched(window, "/v1/jobs", method="POST", body="{}", headers={"x-shoal-web": "1"})[0] == 403


@pytest.mark.slow
def test_a_used_link_says_so(server: Running, window: Window) -> None:
    with server.client() as client:
        url = client.web.link().url
    window.expected.append("422")
    window.page.goto(url)
    window.sees("admin")
    window.page.get_by_role("button", name="Sign out").click()
    window.page.get_by_label("Token").wait_for()
    window.page.goto("about:blank")
    window.page.goto(url)
    window.sees("This link was used before")


@pytest.mark.slow
def test_the_page_recovers_from_a_killed_server(server: Running, window: Window) -> None:
    window.sign_in(server)
    window.expected += ["ERR_CONNECTION", "ERR_INCOMPLETE", "ERR_EMPTY", "Failed to load", "network"]
    server.kill()
    window.sees("Not up to date since")
    server.up()
    window.page.get_by_text("Not up to date since").wait_for(state="detached")
    with server.client() as client:
        client.submit(manifest("after-the-fall", "pass"))
    window.sees("after-the-fall")


@pytest.mark.slow
def test_a_revoked_token_shows_the_sign_in(server: Running, window: Window) -> None:
    token = server.token("revoked")
    window.sign_in(server, token)
    window.expected.append("401")
    with server.client() as client:
        (known,) = [one for one in client.tokens("revoked") if one.revoked_at is None]
        client.revoke_token(known.id)
    window.page.get_by_label("Token").wait_for()


@pytest.mark.slow
def test_two_tabs_share_one_stream(server: Running, window: Window) -> None:
    window.sign_in(server)
    pages = [window.page, *(window.page.context.new_page() for _ in range(8))]
    for page in pages[1:]:
        page.goto(f"{server.url}/ui/jobs")
        page.get_by_role("heading", name="Jobs").first.wait_for()
    with server.client() as client:
        client.submit(manifest("seen-by-all", "pass"))
    for page in pages:
        page.bring_to_front()
        page.get_by_text("seen-by-all").first.wait_for()

    def streams() -> float:
        token = (server.home / "admin.token").read_text().strip()
        told = httpx.get(f"{server.url}/metrics", headers={"authorization": f"Bearer {token}"}).text
        (line,) = [one for one in told.splitlines() if one.startswith("shoal_web_streams ")]
        return float(line.split()[1])

    eventually(lambda: streams() == 1)
