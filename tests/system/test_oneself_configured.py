"""Users whose jobs begin with a session of PAM, and one whose home root may not enter."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from shoal.base.home import Home, stop_server
from shoal.base.processes import kill_until_none
from shoal.contract.lifecycle import JobState
from shoal.core import Sandbox
from shoal.engine.local.processes import marked
from shoal.engine.sandbox import capabilities
from shoal.sdk import Client
from shoal.session.client.connection import upgrade
from shoal.session.client.notebooks import output_of
from tests.system.test_oneself import Machine, _load, until

LIMITED, REFUSED = "man", "games"
PAM = f"session requisite pam_succeed_if.so quiet user != {REFUSED}\nsession required pam_limits.so conf={{limits}}\n"
LIMITS = f"{LIMITED} soft nofile 333\n{LIMITED} hard nofile 444\n{LIMITED} - memlock 5555\n{LIMITED} - core 0\n"
PREPARE = """
set -e
cp -r /etc/pam.d "$1/pam.d"
mount --bind "$1/pam.d" /etc/pam.d
cp "$1/pam" /etc/pam.d/shoal
cp "$1/pam" /etc/pam.d/su
sed -i '1i auth sufficient pam_permit.so\\naccount sufficient pam_permit.so' /etc/pam.d/su
"$2" "$3" "$4" "$1/ready"
"$1/su.sh" > "$1/by-su"
shift 4
exec "$@"
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only a server that runs as root starts jobs as others"),
    pytest.mark.skipif(shutil.which("fusermount3") is None or not os.access("/dev/fuse", os.W_OK), reason="needs FUSE"),
    pytest.mark.skipif(not Path("/lib/x86_64-linux-gnu/security/pam_limits.so").exists(), reason="needs PAM"),
]


@dataclass
class Configured(Machine):
    """In a mount namespace of its own, with another `/etc/pam.d` and another home of a user."""

    def start(self) -> None:
        (self.folder / "limits").write_text(LIMITS)
        (self.folder / "pam").write_text(PAM.format(limits=self.folder / "limits"))
        by_su = self.folder / "su.sh"
        by_su.write_text(f"#!/bin/sh\nexec su -s /bin/sh -c 'ulimit -Sn; ulimit -Hn; ulimit -l; ulimit -c' {LIMITED}\n")
        by_su.chmod(0o755)
        line = [sys.executable, "-m", "shoal.cli", "up", "--detach", "--home", str(self.home.path), "--port", "0"]
        line += ["--slots", "4", "--set", f"socket={self.folder}/shoal.sock"]
        squash = [sys.executable, "tests/users/squashed.py", LIMITED]
        words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", PREPARE, "sh", str(self.folder)]
        done = subprocess.run([*words, *squash, *line], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr + done.stdout


@pytest.fixture(scope="module")
def machine() -> Iterator[Configured]:
    with (
        tempfile.TemporaryDirectory(prefix="shoal-run-") as folder,
        tempfile.TemporaryDirectory(prefix="shoal-home-", dir="/var/tmp") as kept,
    ):
        Path(folder).chmod(0o755)
        machine = Configured(Home(Path(kept) / "home"), Path(folder))
        machine.start()
        try:
            with machine.admin() as client:
                client.create_tenant("red", sandbox=Sandbox.USER)
                for name in (LIMITED, REFUSED):
                    client.users.add(name, tenant="red")
                _load(client)
            yield machine
        finally:
            stop_server(machine.home, timeout_s=20)
            kill_until_none(lambda: [each.process for each in marked(machine.home.path)], timeout_s=20)
            pid, mirrored = (machine.folder / "ready").read_text().split()
            os.kill(int(pid), signal.SIGKILL)
            shutil.rmtree(mirrored)


HAS = "ulimit -Sn; ulimit -Hn; ulimit -l; ulimit -c"


@pytest.mark.parametrize("level", [Sandbox.USER, Sandbox.BUBBLEWRAP])
def test_a_job_and_what_is_started_beside_it_have_the_limits_of_pam(machine: Configured, level: Sandbox) -> None:
    need(machine, level)
    wanted = (machine.folder / "by-su").read_text().split()
    assert wanted == ["333", "444", "5555", "0"]
    with machine.admin() as client:
        client.change_tenant("red", sandbox=level)
    try:
        assert machine.said(LIMITED, machine.submit(LIMITED, HAS)) == wanted
        job = machine.submit(LIMITED, "exec sleep 300")
        with machine.admin() as client:
            until(lambda: client.job(job).state is JobState.RUNNING)
        assert machine.call(LIMITED, partial(_beside, job)) == (0, wanted)
        machine.call(LIMITED, lambda client: client.cancel(job))
    finally:
        with machine.admin() as client:
            client.change_tenant("red", sandbox=Sandbox.USER)


def _beside(job: str, client: Client) -> tuple[int, list[str]]:
    session = client.session.execute(job, ["sh", "-c", HAS]).id
    path = f"/v1/jobs/{job}/sessions/{session}/attach"
    code, said = output_of(lambda: upgrade(client.locate(), path, "shoal-session", {"wait_s": 20}))
    return code, said.decode().split()


def test_whom_pam_opens_no_session_for_is_told_so(machine: Configured) -> None:
    refused = machine.ended(machine.submit(REFUSED, "true"))
    assert refused.state is JobState.FAILED
    assert f"PAM opens no session of shoal for {REFUSED}: " in refused.message


def test_a_tenants_own_jobs_have_no_session(machine: Configured) -> None:
    with machine.admin() as client:
        job = client.submit({"name": "plain", "command": ["sh", "-c", HAS], "tenant": "red"}).id
        assert machine.ended(job).state is JobState.SUCCEEDED
        assert b"444" not in b"".join(piece.data for piece in client.logs(job))


def test_a_home_that_root_may_not_enter_is_entered_by_its_user(machine: Configured) -> None:
    home = pwd.getpwnam(LIMITED).pw_dir
    job = machine.submit(LIMITED, "pwd; echo $HOME; echo kept > kept; cat kept", directory="~")
    assert machine.said(LIMITED, job) == [home, home, "kept"]
    _, mirrored = (machine.folder / "ready").read_text().split()
    assert (Path(mirrored) / "kept").stat().st_uid == pwd.getpwnam(LIMITED).pw_uid


def test_a_sandbox_that_root_builds_says_why_it_cannot_show_such_a_home(machine: Configured) -> None:
    need(machine, Sandbox.BUBBLEWRAP)
    with machine.admin() as client:
        client.change_tenant("red", sandbox=Sandbox.BUBBLEWRAP)
    try:
        refused = machine.ended(machine.submit(LIMITED, "true", home="read"))
        assert f"root may not enter {pwd.getpwnam(LIMITED).pw_dir}, as on NFS that squashes root" in refused.message
        assert machine.said(LIMITED, machine.submit(LIMITED, "echo without")) == ["without"]
    finally:
        with machine.admin() as client:
            client.change_tenant("red", sandbox=Sandbox.USER)


DEVICES = """
ls /dev; for one in null zero full urandom; do test -c /dev/$one || echo no $one; done
echo x > /dev/null; head -c 3 /dev/zero | wc -c; touch /dev/new 2>/dev/null && echo made
python3 -c 'import os; a, b = os.openpty(); print(os.ttyname(b))'
"""


def test_a_users_job_has_devices_of_its_own(machine: Configured) -> None:
    said = machine.said(LIMITED, machine.submit(LIMITED, DEVICES))
    assert said[-2:] == ["3", "/dev/pts/0"]
    assert not {"sda", "vda", "mem", "kmsg", "console", "fuse", "loop0", "net", "made"} & set(said), said
    assert {"null", "zero", "full", "random", "urandom", "tty", "pts", "ptmx", "shm", "stdout", "fd"} <= set(said)


def need(machine: Configured, level: Sandbox) -> None:
    missing = [one for one in capabilities(machine.home.path) if one.name == level.capability and not one.available]
    if missing:
        pytest.skip(missing[0].detail)
