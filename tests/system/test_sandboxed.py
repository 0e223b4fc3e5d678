"""A job in a sandbox outlives its server: the next one finds it, reads what it says and ends it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.base.home import Home, stop_server
from shoal.base.processes import kill_until_none
from shoal.contract.lifecycle import JobState
from shoal.contract.principal import TokenRole
from shoal.control.server import start_detached
from shoal.core import Conflict, Sandbox
from shoal.engine.local.processes import marked
from shoal.engine.sandbox import capabilities
from shoal.sdk import Client
from tests.servers import kill_for_good

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a sandbox needs a server that runs as root")

SCRIPT = """
id -u
echo before
while [ ! -e go ]; do sleep 0.05; done
echo after
echo kept > $SHOAL_CHECKPOINT_DIR/model
"""


def start(home: Home) -> None:
    start_detached(["--home", str(home.path), "--port", "0", "--slots", "2"], home)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """Named by a link into a folder that no tenant may enter."""
    home, link = Home(tmp_path / "closed" / "home"), tmp_path / "link"
    home.path.mkdir(parents=True)
    home.path.parent.chmod(0o700)
    link.symlink_to(home.path)
    start(Home(link))
    yield home
    stop_server(home, timeout_s=20)
    kill_until_none(lambda: [each.process for each in marked(home.path)], timeout_s=20)


@pytest.mark.few
@pytest.mark.parametrize("level", [Sandbox.USER, Sandbox.BUBBLEWRAP])
def test_the_next_server_goes_on_with_a_job_in_a_sandbox(home: Home, level: Sandbox) -> None:
    missing = [one for one in capabilities(home.path) if one.name == level.capability and not one.available]
    if missing:
        pytest.skip(missing[0].detail)
    with Client(home=home.path, environ={}) as client:
        client.create_tenant("red", sandbox=level)
        job = client.submit({"name": "job", "command": ["sh", "-c", SCRIPT], "tenant": "red"}).id
        endless = client.submit({"name": "endless", "command": ["sleep", "1000"], "tenant": "red"}).id
        until(lambda: b"before" in log(client, job) and client.job(endless).state is JobState.RUNNING)
        uid = int(log(client, job).split()[0])
        assert uid > 1 << 30
    kill_for_good(home)
    start(home)
    with Client(home=home.path, environ={}) as client:
        assert {client.job(one).state for one in (job, endless)} == {JobState.RUNNING}
        (home.path / "runs" / job / "1" / "go").touch()
        until(lambda: client.job(job).state.terminal)
        ended = client.job(job)
        assert (ended.state, ended.attempt) == (JobState.SUCCEEDED, 1), ended.message
        assert log(client, job).split() == [str(uid).encode(), b"before", b"after"]
        model = home.path / "checkpoints" / job / "model"
        assert (model.read_text(), model.stat().st_uid) == ("kept\n", uid)
        client.cancel(endless)
        until(lambda: client.job(endless).state is JobState.CANCELLED)


def test_a_new_tenant_has_a_user_of_its_own_unless_none_is_asked_for(home: Home, tmp_path: Path) -> None:
    if not capabilities(home.path)[0].available:
        pytest.skip(capabilities(home.path)[0].detail)
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    with Client(home=home.path, environ={}) as client:
        assert client.create_tenant("red").sandbox is Sandbox.USER
        assert client.create_tenant("trusted", sandbox="none").sandbox is Sandbox.NONE
        assert client.tenant("default").sandbox is Sandbox.NONE
        with pytest.raises(Conflict, match="would run commands as root"):
            client.create_token("default")
        assert client.create_token("default", role=TokenRole.VIEWER).token
        assert client.create_token("trusted").token
        plane = client.planes.create("p", tenant="trusted")
        with Client(plane.url, plane.token, environ={}) as inside:
            assert inside.create_tenant("team").sandbox is Sandbox.NONE
    told = {}
    for tenant in ("red", "trusted"):
        line = [Path(sys.executable).parent / "shoal", "run", "--home", home.path, "--tenant", tenant, "--", "id", "-u"]
        told[tenant] = subprocess.run(line, cwd=private, capture_output=True, text=True, check=False)
    assert told["red"].returncode != 0
    assert f"cannot enter {private}" in told["red"].stdout
    assert (told["trusted"].returncode, "\n0\n" in "\n" + told["trusted"].stdout) == (0, True), told["trusted"]


def log(client: Client, job: str) -> bytes:
    return b"".join(piece.data for piece in client.logs(job))


def until(true: object) -> None:
    end = time.monotonic() + 30
    while not true():  # type: ignore[operator]
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.05)
