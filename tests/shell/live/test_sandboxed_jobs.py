"""Jobs in a sandbox that name sites: each has an agent of its own, with its user's rights and its tenant's token."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from shoal.base.home import Home, stop_server
from shoal.base.processes import kill_until_none
from shoal.control.server import start_detached
from shoal.core import Sandbox
from shoal.engine.local.processes import marked
from shoal.engine.sandbox import capabilities
from shoal.sdk import Client
from shoal.shell.agent.client import stop
from tests.shell.conftest import SSH, World, make_world
from tests.shell.test_faults import processes, wait_until
from tests.shell.test_shared import SHOAL, Shared

SSH_TENANTS = "ssh-"
"""How the names of tenants begin that the site by `ssh` names."""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="a sandbox needs a server that runs as root"),
]

LEVELS = (Sandbox.USER, Sandbox.BUBBLEWRAP)
SCRIPT = """
sort $M/a.txt | grep -c alpha
mine="$TMPDIR"/shoal-shell-0/shell
if [ -n "$AWAY" ]; then until grep -q '"where": "'$AWAY'"' "$mine"/runs/*.jsonl; do sleep 0.1; done; fi
if [ -n "$AGENT" ]; then test -O "$mine"/agent.sock; else test ! -e "$mine"; fi || echo "not this agent"
echo "given on: $(env | grep -c -e SHOAL_SHELL_GIVEN -e secret)"
"""
SAID = "3000\ngiven on: 0\n"


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """In a folder that every user may read."""
    with TemporaryDirectory(prefix="shoal-sites-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield from make_world(Path(name))


@pytest.fixture(scope="module")
def shared(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    shared = Shared(tmp_path_factory.mktemp("proxy"), world.base / "srv")
    yield shared
    shared.process.terminate()
    shared.process.wait()
    shutil.rmtree(shared.readable)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(tmp_path_factory.mktemp("server") / "home")


@pytest.fixture(scope="module")
def client(home: Home, world: World, shared: Shared, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Of a server that has a permanent proxy for some tenants, and logs in by `ssh` for others, to the same folder."""
    home.path.mkdir()
    (shared.folder / "wrong").write_text("no token of this proxy\n")
    tokens = {level.value: str(shared.folder / "alice") for level in LEVELS}
    tokens |= {f"wrong-{level.value}": str(shared.folder / "wrong") for level in LEVELS}
    tenants = [f"{kind}{level.value}" for level in LEVELS for kind in ("", "wrong-", "none-", SSH_TENANTS)]
    by_ssh = [one for one in tenants if one.startswith(SSH_TENANTS)]
    mounts = {str(world.mnt): str(world.base / "srv")}
    site = {
        "host": "u@localhost", "mounts": mounts, "port": shared.port, "certificate": str(shared.folder / "cert.pem"),
        "token_file": str(shared.folder / "bob"), "tokens": tokens, "tenants": sorted({*tenants} - {*by_ssh}),
    }  # fmt: skip
    sites = {"store": site, "login": {"host": "store", "mounts": mounts, "tenants": by_ssh}}
    (home.path / "config.yaml").write_text(json.dumps({"shell": {"sites": sites}}))
    programs = tmp_path_factory.mktemp("bin")
    (programs / "ssh").write_text(f'#!/bin/sh\nexec {sys.executable} {SSH} "$@"\n')
    (programs / "ssh").chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        start_detached(["--home", str(home.path), "--port", "0", "--slots", "4"], home)
    with Client(home=home.path, environ={}) as client:
        can = {one.name: one.available for one in capabilities(home.path)}
        for tenant in tenants:
            level = Sandbox(tenant.rpartition("-")[2])
            if can.get(level.capability):
                client.create_tenant(tenant, sandbox=level)
        yield client
    stop_server(home, timeout_s=20)
    kill_until_none(lambda: [each.process for each in marked(home.path)], timeout_s=20)
    for tenant in tenants:
        stop(home.path / "shell-agents" / tenant)


def submitted(client: Client, world: World, tenant: str, script: str, **more: Any) -> str:
    """The job's id."""
    if tenant not in {one.name for one in client.tenants()}:
        pytest.skip("this sandbox cannot be had here")
    env = {"M": str(world.mnt), **more.pop("env", {})}
    site = "login" if tenant.startswith(SSH_TENANTS) else "store"
    made = {
        "name": "prep", "command": ["bash", "-c", script], "tenant": tenant, "env": env,
        "extensions": {"shell": {"sites": [site]}}, **more,
    }  # fmt: skip
    return client.submit(made).id


def logged(client: Client, job: str, rank: int = 0) -> str:
    client.wait(job, timeout_s=60)
    return b"".join(piece.data for piece in client.logs(job, rank=rank)).decode()


def ran(client: Client, world: World, tenant: str, *, away: str = "", agent: bool = False) -> str:
    """`away`: the site on which its commands run."""
    env = {"AWAY": away, "AGENT": "yes" if agent else ""}
    return logged(client, submitted(client, world, tenant, SCRIPT, env=env))


@pytest.mark.parametrize("level", LEVELS)
def test_commands_of_a_sandboxed_job_run_on_its_site(
    level: Sandbox, client: Client, world: World, shared: Shared
) -> None:
    assert ran(client, world, level.value, away="store", agent=True) == SAID
    assert "user alice at 127.0.0.1: connected" in shared.told
    assert not processes("shoal-shell-0"), "the agent has ended with its job"


@pytest.mark.parametrize("level", LEVELS)
def test_without_a_token_of_the_tenants_own_a_job_reads_through_the_mount(
    level: Sandbox, client: Client, world: World
) -> None:
    assert ran(client, world, f"none-{level.value}") == SAID


@pytest.mark.parametrize("level", LEVELS)
def test_a_job_whose_token_is_refused_reads_through_the_mount(level: Sandbox, client: Client, world: World) -> None:
    assert ran(client, world, f"wrong-{level.value}", agent=True) == SAID


@pytest.mark.parametrize("level", LEVELS)
def test_to_a_site_by_ssh_the_server_logs_in_and_jobs_of_tenants_that_it_names_get_no_key(
    level: Sandbox, client: Client, world: World
) -> None:
    assert ran(client, world, f"{SSH_TENANTS}{level.value}", away="login", agent=True) == SAID
    wait_until(lambda: not processes("ssh\0-o\0BatchMode"), 30)


SEVERAL = """
for tries in 1 2 3; do sort $M/a.txt | grep -c alpha; done
until grep -q '"where": "login"' "$TMPDIR"/shoal-shell-$RANK/shell/runs/*.jsonl; do sleep 0.1; done
if [ "$RANK" = 0 ]; then until [ -e ready ]; do sleep 0.1; done; fi
"""
BESIDE = """
mine="$TMPDIR"/shoal-shell-0/shell; grep -c beta $M/b.txt; sort $M/b.txt | tail -1
until grep -q 'grep -c beta.*"where": "login"' "$mine"/runs/*.jsonl; do sleep 0.1; done
env | grep -c -e SHOAL_SHELL_GIVEN; touch ready
"""


@pytest.mark.parametrize("level", LEVELS)
def test_each_rank_has_an_agent_and_so_has_what_is_started_beside(
    level: Sandbox, home: Home, client: Client, world: World
) -> None:
    job = submitted(client, world, f"{SSH_TENANTS}{level.value}", SEVERAL, ranks=2)
    wait_until(lambda: client.job(job).state == "RUNNING", 60)
    environ = {**os.environ, "SHOAL_HOME": str(home.path)}
    words = [SHOAL, "exec", job, "--", "bash", "-c", BESIDE]
    done = subprocess.run(words, capture_output=True, text=True, env=environ, timeout=100, check=False)
    assert done.stdout == "2000\nbeta 99\n0\n", done.stderr
    assert [logged(client, job, rank) for rank in range(2)] == [3 * "3000\n"] * 2
