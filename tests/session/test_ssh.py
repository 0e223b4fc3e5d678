"""OpenSSH's own programs into a job. They need its server, and nss_wrapper: Debian's openssh-server, libnss-wrapper."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.core import Sandbox
from shoal.engine.sandbox import capabilities
from shoal.session import sshd

from .conftest import Running


def missing() -> str:
    try:
        sshd.find(sshd.SERVERS, "sshd")
        sshd.find(sshd.LIBRARIES, "nss_wrapper")
    except sshd.Missing as problem:
        return str(problem)
    return "" if shutil.which("ssh") and shutil.which("scp") else "OpenSSH's client is not installed"


pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.mark.slow
@pytest.mark.parametrize("level", [Sandbox.NONE, Sandbox.USER, Sandbox.BUBBLEWRAP])
def test_ssh_scp_and_rsync_reach_a_job(server: Running, tmp_path: Path, level: Sandbox) -> None:
    if level is not Sandbox.NONE:
        if missing := [
            one for one in capabilities(server.home.path) if one.name == level.capability and not one.available
        ]:
            pytest.skip(missing[0].detail)
        server.client.create_tenant(f"ssh-{level}", sandbox=level)
    tenant = "default" if level is Sandbox.NONE else f"ssh-{level}"
    job = server.start("sleep", "600", tenant=tenant, env={"GREETING": "good day"})
    env = {**os.environ, "HOME": str(tmp_path), "SHOAL_HOME": str(server.home.path)}
    told = _run([sys.executable, "-m", "shoal.cli", "ssh", "--config", job], env)
    config = tmp_path / ".shoal" / "ssh" / "config"
    assert str(config) in told
    assert (config.parent / "id_ed25519").stat().st_mode & 0o077 == 0
    said = _run(
        ["ssh", "-F", str(config), f"{job}.shoal", "echo $GREETING; id -u; pwd; cat > piped; exit 0"], env, b"in"
    )
    greeting, uid, folder = said.splitlines()
    assert greeting == "good day"
    assert (uid == str(os.geteuid())) == (level is Sandbox.NONE)
    assert folder == str(server.home.path / str(server.client.job(job).run_dir))
    data = tmp_path / "data"
    data.write_bytes(os.urandom(300_000))
    _run(["scp", "-q", "-F", str(config), str(data), f"{job}.shoal:there"], env)
    _run(["scp", "-q", "-F", str(config), f"{job}.shoal:there", str(tmp_path / "back")], env)
    assert (tmp_path / "back").read_bytes() == data.read_bytes()
    failed = subprocess.run(["ssh", "-F", str(config), f"{job}.shoal", "exit 42"], env=env, stdin=subprocess.DEVNULL)
    assert failed.returncode == 42
    if shutil.which("rsync"):
        _run(["rsync", "-e", f"ssh -F {config}", str(data), f"{job}.shoal:synced"], env)
        assert server.run(job, "cmp", "there", "synced")[0] == 0
    server.client.cancel(job)


def _run(line: list[str], env: dict[str, str], stdin: bytes = b"") -> str:
    done = subprocess.run(line, env=env, input=stdin, capture_output=True, timeout=120)
    assert done.returncode == 0, (line, done.stderr)
    return done.stdout.decode()


def test_the_configuration_lets_one_key_in_and_passes_only_plain_values() -> None:
    text = sshd.configuration("/d", "/d/key", {"A": "plain", "B": 'q"uote', "C": "new\nline", "LD_PRELOAD": "x"}, "/w")
    assert "AuthenticationMethods publickey" in text
    assert 'SetEnv A="plain"' in text
    for hidden in ("uote", "line", "LD_PRELOAD"):
        assert hidden not in text
