"""Sessions of tenants whose jobs run in a sandbox: nothing more is had than the job has."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

import pytest

from shoal.core import NotFound, Sandbox
from shoal.engine.sandbox import capabilities
from shoal.session.client.ports import reach

from .conftest import Running
from .talk import eventually

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a sandbox needs a server that runs as root")

LOOK = """
id -u; id -G; umask; grep -E 'NoNewPrivs|CapEff|CapPrm|CapInh|CapAmb' /proc/self/status
for kind in ipc mnt net pid uts user; do readlink /proc/self/ns/$kind; done
ls {home} | sort; cat {home}/admin.token 2>&1 | head -c 100
"""
SERVE = """
import socket
s = socket.create_server(("127.0.0.1", 18431)); print("up", flush=True)
while True:
    c, _ = s.accept(); c.sendall(b"inside"); c.close()
"""


@pytest.fixture(scope="module", params=[Sandbox.USER, Sandbox.BUBBLEWRAP])
def tenant(request: pytest.FixtureRequest, server: Running) -> str:
    level: Sandbox = request.param
    missing = [one for one in capabilities(server.home.path) if one.name == level.capability and not one.available]
    if missing:
        pytest.skip(missing[0].detail)
    name = f"red-{level}"
    server.client.create_tenant(name, sandbox=level)
    return name


def test_a_command_sees_and_may_what_the_job_does(server: Running, tenant: str) -> None:
    look = LOOK.format(home=server.home.path)
    job = server.start("sh", "-c", f"{look}\necho end; exec sleep 600", tenant=tenant)
    eventually(lambda: server.log(job).endswith(b"end\n"))
    of_job = server.log(job).decode().removesuffix("end\n")
    code, out, _ = server.run(job, "sh", "-c", look)
    assert code == 0
    assert out.decode() == of_job
    assert out.splitlines()[0] != b"0"
    assert b"NoNewPrivs:\t1" in out
    server.client.cancel(job)


def test_a_command_cannot_touch_what_the_job_cannot(server: Running, tenant: str, tmp_path: Path) -> None:
    job = server.start("sleep", "600", tenant=tenant)
    victim = tmp_path / "victim"
    victim.write_text("x")
    victim.chmod(0o600)
    for line in (
        f"cat {victim}", f"cat {server.home.path}/admin.token", "kill -9 1", f"kill -9 {os.getpid()}", "chroot / true",
        "mount -t tmpfs x /mnt", "cat /proc/1/environ", f"ls {server.home.path}/gangs/{job}.1.run/beside-0",
    ):  # fmt: skip
        code, out, _ = server.run(job, "sh", "-c", line)
        assert code != 0, (line, out)
    server.client.cancel(job)


def test_a_port_in_a_network_of_the_jobs_own(server: Running) -> None:
    if shutil.which("bwrap") is None:
        pytest.skip("bwrap is not installed")
    server.client.create_tenant("apart", sandbox=Sandbox.BUBBLEWRAP)
    job = server.start("python3", "-uc", SERVE, tenant="apart", network=False)
    eventually(lambda: b"up" in server.log(job))
    with socket.socket() as outside:
        assert outside.connect_ex(("127.0.0.1", 18431)) != 0
    made = reach(server.client.locate(), job, 0, 18431)
    assert made.receive(100) == b"inside"
    made.close()
    with socket.create_server(("127.0.0.1", 0)) as host:
        with pytest.raises(NotFound):
            reach(server.client.locate(), job, 0, host.getsockname()[1])
        with pytest.raises(NotFound):
            reach(server.client.locate(), job, 0, int(server.client.locate().url.rpartition(":")[2]))
    code, out, _ = server.run(
        job, "python3", "-c", "import socket; print(socket.create_connection(('127.0.0.1', 18431)).recv(9))"
    )
    assert (code, out) == (0, b"b'inside'\n")
    server.client.cancel(job)
