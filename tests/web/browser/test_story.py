"""One day with the page, as its reader has it: from the sign-in to the end of a job, over the death of the server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.web.browser.conftest import Running, Window

LOST = ["ERR_CONNECTION", "ERR_INCOMPLETE", "ERR_EMPTY", "Failed to load", "network"]
"""What the browser says of a server that is gone."""


def submit(page: Any, tenant: str, text: str) -> None:
    """As a reader does it: New job, the manifest, the tenant, Submit."""
    page.get_by_role("link", name="New job").click()
    page.get_by_label("Manifest in YAML").fill(text)
    page.get_by_label("Tenant").select_option(tenant)
    page.get_by_text("accepted").wait_for()
    page.get_by_role("button", name="Submit", exact=True).click()


def state(page: Any, text: str) -> None:
    page.locator("header.page-header .state", has_text=re.compile(f"^{text}$")).wait_for()


def test_the_whole_story(server: Running, window: Window, open_folder: Path) -> None:
    window.expected += LOST
    page = window.page
    with server.client() as client:
        client.create_tenant("story", quota={"accelerators": 1})
        client.create_token("story", label="of the story")
    more = open_folder / "more"
    script = (
        "import os, time\n"
        "        print('the first line')\n"
        f"        while not os.path.exists({str(more)!r}): time.sleep(0.05)\n"
        "        print('a line after the fall')\n"
        "        time.sleep(600)\n"
    )
    words = "command:\n  - python3\n  - -u\n  - -c\n  - |\n"
    first = f"name: holds\n{words}        {script}resources: {{accelerators: 1}}\n"
    then = "name: waits\ncommand: [sleep, '600']\nresources: {accelerators: 1}\n"

    # Sign in, submit, and follow the log.
    window.sign_in(server)
    submit(page, "story", first)
    state(page, "Running")
    page.get_by_role("link", name="Log", exact=True).click()
    window.sees("the first line")
    held = page.url

    # The next one waits. The page says why, and what would change it: that is done, and it runs.
    submit(page, "story", then)
    page.get_by_role("heading", name="Why does it wait?").wait_for()
    page.get_by_role("heading", name="Quota").wait_for()
    page.get_by_role("button", name="Raise accelerators to 2").click()
    window.sees("It holds for all jobs of story")
    page.get_by_role("button", name="Raise it").click()
    state(page, "Running")

    # The server dies while a log is read. The page says so, and goes on where it was; so does the job.
    page.goto(held)
    window.sees("the first line")
    server.kill()
    window.sees("Not up to date since")
    more.touch()
    server.up()
    page.get_by_text("Not up to date since").wait_for(state="detached")
    window.sees("a line after the fall")
    state(page, "Running")

    # It is cancelled, after the page has said what that means.
    page.get_by_role("button", name="Cancel").click()
    window.sees("1 running job is asked to end")
    page.get_by_role("button", name="Cancel it").click()
    state(page, "Cancelled")
    with server.client() as client:
        for job in client.jobs(tenant="story", state=["RUNNING"]).jobs:
            client.cancel(job.id)
