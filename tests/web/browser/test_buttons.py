"""Every button that changes something, pressed in a browser on a real server: what it says first, and what it does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from shoal import Client
from shoal.contract.lifecycle import JobState
from tests.web.browser.conftest import Running, Window, eventually, fetched

pytestmark = pytest.mark.slow

MODEL = """\
class Same:
    def __call__(self, arrays):
        return {"y": arrays["x"]}
"""
SERVICE = """\
kind: service
name: same
models:
  - name: same
    source: same:Same
    inputs: [{name: x, datatype: FP32, shape: [-1, 1]}]
    outputs: [{name: y, datatype: FP32, shape: [-1, 1]}]
slo: {p99: 250ms}
resources: {cpus: 0.1, memory: 256MiB}
"""


@pytest.fixture
def page(server: Running, window: Window) -> Any:
    """Of an admin. Nothing that is asked for is refused."""
    window.sign_in(server)
    return window.page


def press(page: Any, name: str, says: str, then: str) -> None:
    """The button opens a question, which says what will happen; `then` is the answer."""
    page.get_by_role("button", name=name, exact=True).first.click()
    asked = page.get_by_role("dialog")
    asked.get_by_text(says).first.wait_for()
    asked.get_by_role("button", name=then, exact=True).click()
    asked.wait_for(state="detached")


def said(page: Any, text: str) -> None:
    page.locator(".toast", has_text=text).first.wait_for()


def state(page: Any, text: str) -> None:
    page.locator("header.page-header .state", has_text=re.compile(f"^{text}$")).wait_for()


def test_a_question_that_is_not_answered_changes_nothing(server: Running, page: Any) -> None:
    page.goto(f"{server.url}/ui/nodes")
    page.get_by_role("button", name="Drain").click()
    page.get_by_role("dialog").get_by_role("button", name="Back").click()
    page.get_by_role("button", name="Drain").click()
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")
    with server.client() as client:
        assert all(node.schedulable for node in client.nodes())


def test_a_node_is_drained_and_used_again(server: Running, page: Any) -> None:
    page.goto(f"{server.url}/ui/nodes")
    page.get_by_role("button", name="Drain").click()
    page.get_by_label("Why (shown to those who wait)").fill("a fan is loud")
    page.get_by_text("It takes no new work.").wait_for()
    page.get_by_role("button", name="Drain it").click()
    page.get_by_text("takes no new work").first.wait_for()
    page.get_by_text("a fan is loud").first.wait_for()
    with server.client() as client:
        assert [node.schedulable for node in client.nodes()] == [False]
    press(page, "Use again", "Waiting jobs may be placed on it at once", "Use it")
    page.get_by_role("button", name="Drain", exact=True).wait_for()
    with server.client() as client:
        assert [node.schedulable for node in client.nodes()] == [True]


def test_a_tenant_its_limit_and_its_tokens(server: Running, window: Window, page: Any) -> None:
    page.goto(f"{server.url}/ui/tenants")
    page.get_by_role("button", name="New tenant").click()
    page.get_by_label("Name").fill("pressed")
    page.get_by_role("button", name="Make it").click()
    page.get_by_role("link", name="pressed").first.click()
    page.get_by_role("button", name="Change limits").click()
    page.get_by_role("textbox", name="Accelerators").fill("1")
    page.get_by_role("button", name="Set the limit").click()
    page.get_by_text("0 of 1").wait_for()

    page.get_by_role("button", name="New viewer").click()
    page.get_by_text("reads everything of the tenant and changes nothing").wait_for()
    page.get_by_label("Label (whose it is)").fill("a wall screen")
    page.get_by_role("button", name="Make it").click()
    secret = page.locator("code.secret").inner_text()
    page.get_by_role("button", name="I have it").click()
    page.locator("code.secret").wait_for(state="detached")
    with server.client(secret) as client:
        assert client.status().ready
    page.get_by_role("button", name="New member").click()
    page.get_by_label("Label (whose it is)").fill("ann")
    page.get_by_role("button", name="Make it").click()
    page.get_by_role("button", name="I have it").click()
    press(page, "Revoke a wall screen", "is refused from now on", "Revoke it")
    page.get_by_text("revoked").first.wait_for()
    with server.client() as client:
        assert {one.label for one in client.tokens("pressed") if one.revoked_at is None} == {"ann"}

    # A wrong value is refused in the server's words, and the question stays.
    window.expected.append("422")
    page.get_by_role("button", name="Change limits").click()
    page.get_by_role("textbox", name="Accelerators").fill("-3")
    page.get_by_role("button", name="Set the limit").click()
    page.get_by_role("dialog").get_by_role("alert").wait_for()
    page.get_by_role("button", name="Back").click()
    page.get_by_text("0 of 1").wait_for()


def test_a_plane_is_made_suspended_resumed_and_deleted(server: Running, page: Any) -> None:
    page.goto(f"{server.url}/ui/planes")
    page.get_by_role("button", name="New plane").click()
    page.get_by_label("Name (lower").fill("side")
    page.get_by_label("Tenant").select_option("default")
    page.get_by_role("button", name="Make it").click()
    secret = page.locator("code.secret").inner_text()
    page.get_by_text(f"export SHOAL_URL={server.url}/planes/side").wait_for()
    assert fetched_as(server, "/planes/side/v1/status", secret) == 200
    page.get_by_role("button", name="I have it").click()
    with Client(f"{server.url}/planes/side", secret) as plane:
        plane.submit({"name": "goes-on", "command": ["sleep", "600"]})
    page.get_by_role("row", name=re.compile("side.*1 0 yes")).wait_for()
    press(page, "Suspend side", "What runs goes on", "Suspend side")
    page.get_by_role("row", name=re.compile("side Suspended default 1")).wait_for()
    press(page, "Resume side", "This changes the server at once", "Resume side")
    page.get_by_text("Active", exact=True).wait_for()
    press(page, "Delete side", "1 job that it has in the shared pool is ended", "Delete it")
    page.get_by_text("No planes").wait_for()
    with server.client() as client:
        assert client.planes.list().planes == ()


def fetched_as(server: Running, path: str, token: str) -> int:
    return httpx.get(f"{server.url}{path}", headers={"authorization": f"Bearer {token}"}).status_code


def test_a_service_is_deployed_scaled_and_stopped(server: Running, page: Any, open_folder: Path) -> None:
    (open_folder / "same.py").write_text(MODEL)
    page.goto(f"{server.url}/ui/services")
    page.get_by_role("link", name="Deploy a service").click()
    page.get_by_label("Manifest in YAML").fill(SERVICE + f"env: {{PYTHONPATH: {open_folder}}}\n")
    page.get_by_text("accepted").wait_for()
    page.get_by_role("button", name="Deploy", exact=True).click()
    state(page, "Ready")
    page.get_by_role("button", name="Scale").click()
    page.get_by_label("Replicas").fill("2")
    page.get_by_role("dialog").get_by_role("button", name="Scale").click()
    page.get_by_text("2 of 2 replicas ready").wait_for()
    press(page, "Stop", "requests to it fail from then on", "Stop it")
    page.get_by_role("heading", name="Services").wait_for()
    with server.client() as client:
        eventually(lambda: {one.state for one in client.services.list().services} <= {"STOPPED"})


def test_a_job_is_suspended_resumed_run_again_and_cancelled(server: Running, page: Any) -> None:
    with server.client() as client:
        job = client.submit({"name": "turns", "command": ["sleep", "600"]})
    page.goto(f"{server.url}/ui/jobs/{job.id}")
    state(page, "Running")
    press(page, "Suspend", "may write a checkpoint", "Suspend it")
    state(page, "Suspended")
    press(page, "Resume", "start from their last checkpoint", "Resume it")
    state(page, "Running")
    page.get_by_role("link", name="Run again").click()
    page.get_by_text("accepted").wait_for()
    page.get_by_role("button", name="Submit", exact=True).click()
    page.wait_for_url(lambda url: "/jobs/" in url and job.id not in url)
    press(page, "Cancel", "cannot be resumed", "Cancel it")
    state(page, "Cancelled")
    page.goto(f"{server.url}/ui/jobs/{job.id}")
    press(page, "Cancel", "cannot be resumed", "Cancel it")
    state(page, "Cancelled")


def test_an_artifact_is_fetched_pinned_and_removed(server: Running, page: Any) -> None:
    with server.client() as client:
        script = "import pathlib; pathlib.Path('model.bin').write_bytes(b'weights')"
        job = client.submit({"name": "keeps", "command": ["python3", "-c", script], "artifacts": ["model.bin"]})
        eventually(lambda: bool(client.artifacts.find(job.id)))
    page.goto(f"{server.url}/ui/jobs/{job.id}/files")
    with page.expect_download() as download:
        page.get_by_label("Download the artifact model.bin").click()
    assert Path(download.value.path()).read_bytes() == b"weights"
    page.get_by_role("button", name="Pin model.bin", exact=True).click()
    page.get_by_role("button", name="Unpin model.bin", exact=True).wait_for()
    assert page.get_by_role("button", name="Remove model.bin").count() == 0
    page.get_by_role("button", name="Unpin model.bin", exact=True).click()
    press(page, "Remove model.bin", "removed for good", "Remove it")
    said(page, "model.bin is removed")
    page.get_by_role("heading", name="Artifacts").wait_for(state="detached")
    with server.client() as client:
        assert not client.artifacts.find(job.id)


def test_many_jobs_and_an_array_at_once(server: Running, page: Any) -> None:
    one = {"command": ["sleep", "600"], "resources": {"cpus": 0.01}}
    with server.client() as client:
        for number in range(3):
            client.submit({"name": f"many-{number}", **one})
        client.submit({"name": "many-array", "array": "0-3", **one})

        def all_are(wanted: JobState) -> None:
            eventually(lambda: [job.state for job in client.jobs(name="many-*").jobs] == [wanted] * 7)

        all_are(JobState.RUNNING)
        for name, says, wanted in (
            ("Suspend", "tasks of 1 array", JobState.SUSPENDED),
            ("Resume", "wait in the queue again", JobState.RUNNING),
            ("Cancel", "All unfinished tasks of 1 array", JobState.CANCELLED),
        ):
            page.goto(f"{server.url}/ui/jobs")
            for row in ("many-0", "many-1", "many-2", "many-array"):
                page.get_by_label(f"Choose {row}").check()
            page.get_by_text("4 rows chosen").wait_for()
            page.get_by_role("toolbar").get_by_role("button", name=name).click()
            asked = page.get_by_role("dialog")
            asked.get_by_text(says).first.wait_for()
            asked.get_by_role("button", name=f"{name} 7 jobs").click()
            asked.wait_for(state="detached")
            all_are(wanted)


def test_a_viewer_has_no_button_that_changes_anything(server: Running, window: Window) -> None:
    token = server.token("team", viewer=True)
    with server.client() as client:
        job = client.submit({"name": "of-the-team", "command": ["sleep", "600"]}, tenant="team")
    window.sign_in(server, token)
    page = window.page
    words = r"^(Cancel|Suspend|Resume|Scale|Stop|Drain|Delete|Revoke|New|Change|Submit|Deploy|Make|Run)"
    for path in (f"jobs/{job.id}", "services", "nodes", "tenants", "submit", "server", "events"):
        page.goto(f"{server.url}/ui/{path}")
        page.get_by_role("heading", level=1).wait_for()
        assert page.get_by_role("button", name=re.compile(words)).count() == 0, path
        assert page.get_by_role("link", name=re.compile(r"^(New job|Run again|Deploy)")).count() == 0, path
    headers = {"x-shoal-web": "1"}
    window.expected.append("403")
    assert fetched(window, f"/v1/jobs/{job.id}/cancel", method="POST", headers=headers)[0] == 403
    with server.client() as client:
        client.cancel(job.id)
