"""Artifacts with a real server: taken at an attempt's end and while a job runs, fetched, sent, pinned, deleted."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from shoal.base.home import Home, running_server
from shoal.cli.app import app
from shoal.control.server import start_detached
from shoal.core import Conflict, Forbidden, Invalid, NotFound, Overloaded, ShoalError
from shoal.sdk import Client

WAIT_S = 100.0
SCRIPT = """
import os
from shoal import train
os.mkdir("logs")
for at in range(3):
    open(f"logs/{at}.txt", "w").write(str(at) * 1000)
open("model.bin", "wb").write(b"m" * 300_000)
os.mkfifo("pipe"); os.symlink("/etc/passwd", "link")
outside = os.path.join(os.environ["TMPDIR"] if "TMPDIR" in os.environ else "/tmp", f"outside-{os.getpid()}")
open(outside, "wb").write(b"o" * 1000)
print(train.artifact(outside, name="best/outside"))
checkpoint = train.checkpoint_dir() / "step-1.bin"
checkpoint.write_bytes(b"m" * 300_000)
print(train.artifact(checkpoint))
try:
    train.artifact("pipe")
except RuntimeError as refused:
    print("refused", refused)
"""


def until(there: Callable[[], Any]) -> Any:
    give_up_at = time.monotonic() + WAIT_S
    while not (found := there()):
        assert time.monotonic() < give_up_at, "it never came"
        time.sleep(0.05)
    return found


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    home = Home(tmp_path_factory.mktemp("artifacts") / "home")
    words = ["--home", str(home.path), "--port", "0", "--slots", "4", "--set", "results.size=40MiB",
             "--set", "results.files=500"]  # fmt: skip
    start_detached(words, home)
    try:
        yield home
    finally:
        CliRunner().invoke(app, ["down", "--stop-jobs", "--home", str(home.path)])
        status = home.serve_folder / "status.json"
        if status.exists():  # the gateway of services outlives the server
            with contextlib.suppress(ProcessLookupError):
                os.kill(json.loads(status.read_text())["pid"], signal.SIGTERM)


@pytest.fixture(scope="module")
def client(home: Home) -> Iterator[Client]:
    with Client(home=home.path, environ={}) as client:
        for name in ("red", "blue"):
            client.create_tenant(name, sandbox="none")
        yield client


@pytest.fixture(scope="module")
def job(client: Client) -> str:
    wishes = ["logs/*.txt", {"path": "model.bin", "name": "final/model.bin"}, "pipe", "link", "nothing.*"]
    made = client.submit(
        {"name": "train", "tenant": "red", "command": [sys.executable, "-c", SCRIPT], "artifacts": wishes}
    )
    assert client.wait(made.id, timeout_s=WAIT_S).state == "SUCCEEDED", b"".join(
        one.data for one in client.logs(made.id)
    )
    until(lambda: not client.artifacts.list(made.id).taking)
    return made.id


def kept(client: Client, job: str) -> dict[str, Any]:
    return {one.name: one for one in client.artifacts.find(job)}


def contents(home: Home, tenant: str) -> set[str]:
    return {path.name for path in (home.path / "results/contents" / tenant).rglob("*") if path.is_file()}


def shoal(home: Home, *words: str, code: int = 0) -> str:
    found = CliRunner().invoke(app, [*words, "--home", str(home.path)])
    assert found.exit_code == code, found.output
    return found.output


def test_files_are_kept_by_content_and_what_is_not_is_said(home: Home, client: Client, job: str) -> None:
    found = kept(client, job)
    assert set(found) == {"logs/0.txt", "logs/1.txt", "logs/2.txt", "final/model.bin", "best/outside", "step-1.bin"}
    assert found["final/model.bin"].digest == found["step-1.bin"].digest
    assert {one.by for one in found.values()} == {"attempt", "job"}
    digests = {one.digest.removeprefix("sha256:") for one in found.values()}
    assert contents(home, "red") == digests
    assert not list((home.path / "results/incoming").iterdir())
    events = [one for one in client.events(job) if one.kind == "results.refused"]
    said = [line for one in events for line in one.data["refused"]]
    assert said == [
        "pipe: it is no regular file", "link: it is a link, and links are not followed",
        "nothing.*: there is no such file",
    ]  # fmt: skip
    log = b"".join(one.data for one in client.logs(job)).decode()
    assert "pipe: it is no regular file" in log.partition("refused ")[2]


def test_the_commands_list_fetch_pin_and_delete(home: Home, client: Client, job: str, tmp_path: Path) -> None:
    listed = json.loads(shoal(home, "artifacts", "train", "--json"))
    assert len(listed["artifacts"]) == 6
    assert "logs/1.txt" in shoal(home, "artifacts", "train", "logs")
    shoal(home, "download", "train", "final/model.bin", "--to", str(tmp_path))
    assert (tmp_path / "model.bin").read_bytes() == b"m" * 300_000
    shoal(home, "download", job, "logs", "--to", str(tmp_path / "logs"))
    assert (tmp_path / "logs/2.txt").read_text() == "2" * 1000
    shoal(home, "artifacts", "train", "logs/0.txt", "--pin")
    assert "1 deleted" in shoal(home, "artifacts", "train", "logs/1.txt", "--delete")
    assert "0 deleted" in shoal(home, "artifacts", "train", "logs/0.txt", "--delete")
    before = contents(home, "red")
    shoal(home, "artifacts", "train", "step-1.bin", "--delete")
    assert contents(home, "red") == before  # another artifact has the same content
    shoal(home, "artifacts", "train", "logs/0.txt", "--unpin")
    assert set(kept(client, job)) == {"logs/0.txt", "logs/2.txt", "final/model.bin", "best/outside"}
    assert "which ones" in shoal(home, "artifacts", "--delete", code=2)
    assert "no artifact" in shoal(home, "deploy", "job:train/none.onnx", code=3)
    page = json.loads(shoal(home, "status", "results", "--json"))
    assert "final/model.bin" in json.dumps(page)


def test_another_tenant_sees_finds_and_shares_nothing(home: Home, client: Client, job: str, tmp_path: Path) -> None:
    token = client.create_token("blue").token
    one = kept(client, job)["final/model.bin"]
    with Client(running_server(home).url, token=token, environ={}) as blue:  # type: ignore[union-attr]
        assert blue.artifacts.list().artifacts == ()
        for act in (
            lambda: blue.artifacts.get(one.id), lambda: blue.artifacts.remove(one.id),
            lambda: blue.artifacts.pin(one.id), lambda: blue.artifacts.list(job), lambda: blue.artifacts.list("train"),
            lambda: list(blue.artifacts.download(job, to=tmp_path)),
        ):  # fmt: skip
            with pytest.raises(NotFound):
                act()
        with pytest.raises(NotFound):
            list(blue.artifacts.upload(__file__, job=job))
        with pytest.raises((Forbidden, NotFound)):
            list(blue.artifacts.upload(__file__, tenant="red"))
        same = tmp_path / "same.bin"
        same.write_bytes(b"m" * 300_000)
        steps = list(blue.artifacts.upload(same))
        assert steps[0].done_bytes == 300_000  # it was sent: what red has is not known to blue
        assert len(steps) == 2
        assert one.digest.removeprefix("sha256:") in contents(home, "blue") & contents(home, "red")
        [own] = blue.artifacts.list(uploads=True).artifacts
        blue.artifacts.remove(own.id)
    assert contents(home, "blue") == set()
    assert one.digest.removeprefix("sha256:") in contents(home, "red")


def test_a_cut_upload_and_a_cut_download_go_on_where_they_stood(home: Home, client: Client, tmp_path: Path) -> None:
    data = os.urandom(17 << 20)
    file = tmp_path / "big.bin"
    file.write_bytes(data)
    sending = client.artifacts.upload(file, tenant="red", name="in/big.bin")
    assert next(sending).done_bytes == 8 << 20
    sending.close()
    with Client(home=home.path, environ={}) as again:
        steps = [one.done_bytes for one in again.artifacts.upload(file, tenant="red", name="in/big.bin")]
        assert steps == [16 << 20, 17 << 20, 17 << 20]
        [one] = again.artifacts.list(tenant="red", uploads=True).artifacts
        target = tmp_path / "back/big.bin"
        fetching = again.artifacts.fetch(one, target)
        assert next(fetching).done_bytes == 8 << 20
        fetching.close()
        assert not target.exists()
        steps = [step.done_bytes for step in again.artifacts.fetch(one, target)]
        assert steps[0] == 16 << 20
        assert target.read_bytes() == data
        too_large = tmp_path / "large.bin"
        with too_large.open("wb") as sparse:
            sparse.truncate(30 << 20)
        with pytest.raises(Overloaded, match="left of the"):
            list(again.artifacts.upload(too_large, tenant="red"))


def test_a_model_deploys_by_its_artifact(home: Home, client: Client, job: str, tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    for content in (b"first", b"second"):
        model.write_bytes(content)
        list(client.artifacts.upload(model, name="out/model.onnx", job=job, tenant="red"))
        words = ["deploy", "job:train/out/model.onnx", "--name", f"of-{content.decode()}", "--replicas", "0"]
        made = json.loads(shoal(home, *words, "--tenant", "red", "--json"))
        assert made["models"][0]["name"] == f"of-{content.decode()}"
    bundles = [path for path in (home.path / "bundles").iterdir() if path.is_file()]
    until(lambda: (home.serve_folder / "status.json").exists())  # by which the fixture finds the gateway
    assert len(bundles) == 2  # each service has its own model, whatever the artifact is by now
    assert "an artifact is job:JOB/NAME" in shoal(home, "deploy", "job:train", code=2)


def test_what_a_job_may_not_have_does_not_fail_it(client: Client, home: Home) -> None:
    with Client(home=home.path, environ={}) as client:
        script = "open('huge', 'wb').truncate(1 << 40); open('small', 'w').write('s')"
        made = client.submit({
            "name": "greedy", "tenant": "blue", "command": [sys.executable, "-c", script],
            "artifacts": ["huge", "small"],
        })  # fmt: skip
        assert client.wait(made.id, timeout_s=WAIT_S).state == "SUCCEEDED"
        until(lambda: not client.artifacts.list(made.id).taking)
        assert set(kept(client, made.id)) == {"small"}
        [event] = [one for one in client.events(made.id) if one.kind == "results.refused"]
        assert "1099511627776 bytes, and the tenant has" in event.data["refused"][0]
        with pytest.raises(Invalid, match=r"artifacts|path"):
            client.submit({"name": "x", "command": ["true"], "artifacts": ["../../secret"]})
        with pytest.raises(Invalid, match="extensions"):
            client.submit({
                "name": "x", "command": ["true"], "artifacts": ["a"], "extensions": {"results": {"artifacts": ["b"]}}
            })  # fmt: skip


def test_the_bytes_of_an_artifact_by_ranges(home: Home, client: Client, job: str) -> None:
    with Client(home=home.path, environ={}) as client:
        one = kept(client, job)["logs/2.txt"]
    info = running_server(home)
    assert info is not None
    headers = {"authorization": f"Bearer {home.token_file.read_text().strip()}"}
    with httpx.Client(base_url=info.url, headers=headers) as http:
        path = f"/v1/artifacts/{one.id}/content"
        whole = http.get(path)
        assert (whole.status_code, whole.content, whole.headers["etag"]) == (200, b"2" * 1000, f'"{one.digest}"')
        some = http.get(path, headers={"range": "bytes=990-"})
        assert (some.status_code, some.content, some.headers["content-range"]) == (206, b"2" * 10, "bytes 990-999/1000")
        assert some.headers["x-shoal-sha256"] == hashlib.sha256(b"2" * 10).hexdigest()
        assert http.get(path, headers={"range": "bytes=0-0"}).content == b"2"
        for wrong in ("bytes=2000-", "bytes=5-2", "lines=1-2", "bytes=-5"):
            assert http.get(path, headers={"range": wrong}).status_code == 422
        assert http.get(path, params={"digest": "0" * 64}).status_code == 409
        put = "/v1/artifact-uploads/" + "0" * 64
        sent = {"x-shoal-sha256": hashlib.sha256(b"x").hexdigest()}
        asked = {"bytes": 5, "offset": 0, "tenant": "red"}
        assert http.put(put, params=asked, content=b"x", headers=sent).status_code == 404
        assert http.put(put, params=asked, content=b"y", headers=sent).status_code == 422
        begin = {"sha256": "0" * 64, "bytes": 2, "name": "x"}
        assert http.post("/v1/artifact-uploads", params={"tenant": "red"}, json=begin).json()["have"] == 0
        asked["bytes"] = 2
        assert http.put(put, params={**asked, "offset": 1}, content=b"x", headers=sent).status_code == 409
        for offset in (0, 1):
            got = http.put(put, params={**asked, "offset": offset}, content=b"x", headers=sent)
            assert got.json()["have"] == offset + 1
        refused = http.post("/v1/artifact-uploads", params={"tenant": "red"}, json=begin)
        assert refused.status_code == 422
        assert "not the file that was announced" in refused.text
        assert http.post("/v1/artifact-uploads", json={**begin, "name": "../x"}).status_code == 422


def test_a_client_without_artifacts_of_a_job_is_told(home: Home, job: str, tmp_path: Path) -> None:
    with Client(home=home.path, environ={}) as client:
        with pytest.raises(NotFound, match="no job"):
            client.artifacts.list("nobody")
        with pytest.raises(NotFound, match="no artifact"):
            list(client.artifacts.download("train", "nothing", to=tmp_path))
        one = kept(client, job)["logs/2.txt"]
        client.artifacts.pin(one.id)
        with pytest.raises(Conflict, match="pinned"):
            client.artifacts.remove(one.id)
        with pytest.raises(ShoalError, match="no such file"):
            list(client.artifacts.upload(tmp_path / "nothing"))
