"""Tenants of one plane, and planes of one tenant, with real processes: none reaches another's."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.base.home import Home, stop_server
from shoal.base.processes import kill_until_none
from shoal.control.server import start_detached
from shoal.core import Sandbox
from shoal.engine.local.processes import marked
from shoal.engine.sandbox import capabilities
from shoal.sdk import Client

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a sandbox needs a server that runs as root")

VICTIM = "print(os.getpid(), os.getuid(), os.getcwd(), flush=True); time.sleep(600)"
ATTACKS = """
import os, sys, time
pid, folder = int(sys.argv[1]), sys.argv[2]
attacks = {
    "environment": lambda: b"MYSECRET" in open(f"/proc/{pid}/environ", "rb").read(),
    "root": lambda: os.listdir(f"/proc/{pid}/root"),
    "working directory": lambda: os.listdir(f"/proc/{pid}/cwd/"),
    "folder": lambda: os.listdir(folder),
    "signal": lambda: os.kill(pid, 0) is None,
}
for name, attack in attacks.items():
    try:
        print(name, "succeeded" if attack() else "failed")
    except OSError:
        print(name, "failed")
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path / "home")
    start_detached(["--home", str(home.path), "--port", "0", "--slots", "8"], home)
    yield home
    stop_server(home, timeout_s=20)
    kill_until_none(lambda: [each.process for each in marked(home.path)], timeout_s=20)


def said(client: Client, job: str, lines: int) -> list[str]:
    end = time.monotonic() + 30
    while len(found := b"".join(piece.data for piece in client.logs(job)).decode().splitlines()) < lines:
        assert time.monotonic() < end, (found, client.job(job))
        time.sleep(0.05)
    return found


@pytest.mark.few
@pytest.mark.parametrize("level", [Sandbox.USER, Sandbox.BUBBLEWRAP])
def test_no_tenant_of_a_plane_and_no_plane_of_a_tenant_reaches_anothers_processes(home: Home, level: Sandbox) -> None:
    missing = [one for one in capabilities(home.path) if one.name == level.capability and not one.available]
    if missing:
        pytest.skip(missing[0].detail)

    def submit(plane: Client, tenant: str, source: str, *words: str, **more: object) -> str:
        command = ["python3", "-c", f"import os, time\n{source}", *words]
        resources = {"accelerators": "cpu:1", "cpus": 0.1, "memory": "64MiB"}
        job = {"name": "job", "command": command, "tenant": tenant, "resources": resources}
        return plane.submit({**job, **more}).id

    with Client(home=home.path, environ={}) as shared:
        shared.create_tenant("vision", sandbox=level)
        made = [shared.planes.create(name, tenant="vision") for name in ("a", "b")]
        first, second = (Client(url=each.url, token=each.token, environ={}) for each in made)
        with first, second:
            for plane, tenant in ((first, "team"), (first, "other"), (second, "team")):
                plane.create_tenant(tenant)
            victim = submit(first, "team", VICTIM, env={"MYSECRET": "of the team"})
            pid, uid, folder = said(first, victim, 1)[0].split()
            users = {uid}
            for plane, tenant in ((first, "other"), (second, "team")):
                job = submit(plane, tenant, f"print(os.getuid())\n{ATTACKS}", pid, folder)
                user, *told = said(plane, job, 6)
                users.add(user)
                if level is Sandbox.USER:
                    assert [line.rpartition(" ")[2] for line in told] == ["failed"] * 5, told
                else:  # the number is that of another process there: its own
                    assert "folder failed" in told
            assert len(users) == 3
            if level is Sandbox.USER:  # the attacks are such that they succeed within a tenant
                own = said(first, submit(first, "team", ATTACKS, pid, folder), 5)
                assert {"environment succeeded", "working directory succeeded", "signal succeeded"} <= set(own)
