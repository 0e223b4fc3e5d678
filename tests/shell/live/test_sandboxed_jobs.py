"""Jobs in a sandbox that name sites: each has an agent of its own, with its user's rights and its tenant's token."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from shoal.base.home import Home, stop_server
from shoal.base.processes import kill_until_none
from shoal.control.server import start_detached
from shoal.core import Sandbox
from shoal.engine.local.processes import marked
from shoal.engine.sandbox import capabilities
from shoal.sdk import Client
from shoal.shell.agent.client import stop
from tests.shell.conftest import World, make_world
from tests.shell.test_faults import processes
from tests.shell.test_shared import Shared

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="a sandbox needs a server that runs as root"),
]

LEVELS = (Sandbox.USER, Sandbox.BUBBLEWRAP)
SCRIPT = """
sort $M/a.txt | grep -c alpha
mine="$TMPDIR"/shoal-shell-0/shell
if [ -n "$AWAY" ]; then until grep -q '"where": "store"' "$mine"/runs/*.jsonl; do sleep 0.1; done; fi
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
def client(world: World, shared: Shared, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    home = Home(tmp_path_factory.mktemp("server") / "home")
    home.path.mkdir()
    (shared.folder / "wrong").write_text("no token of this proxy\n")
    tokens = {level.value: str(shared.folder / "alice") for level in LEVELS}
    tokens |= {f"wrong-{level.value}": str(shared.folder / "wrong") for level in LEVELS}
    site = {
        "host": "u@localhost", "mounts": {str(world.mnt): str(world.base / "srv")}, "port": shared.port,
        "certificate": str(shared.folder / "cert.pem"), "token_file": str(shared.folder / "bob"), "tokens": tokens,
    }  # fmt: skip
    (home.path / "config.yaml").write_text(json.dumps({"shell": {"sites": {"store": site}}}))
    start_detached(["--home", str(home.path), "--port", "0", "--slots", "4"], home)
    tenants = [f"{kind}{level.value}" for level in LEVELS for kind in ("", "wrong-", "none-")]
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


def ran(client: Client, world: World, tenant: str, *, away: bool = False, agent: bool = False) -> str:
    if tenant not in {one.name for one in client.tenants()}:
        pytest.skip("this sandbox cannot be had here")
    env = {"M": str(world.mnt), "AWAY": "yes" if away else "", "AGENT": "yes" if agent else ""}
    made = {
        "name": "prep", "command": ["bash", "-c", SCRIPT], "tenant": tenant, "env": env,
        "extensions": {"shell": {"sites": ["store"]}},
    }  # fmt: skip
    job = client.submit(made).id
    client.wait(job, timeout_s=60)
    return b"".join(piece.data for piece in client.logs(job)).decode()


@pytest.mark.parametrize("level", LEVELS)
def test_commands_of_a_sandboxed_job_run_on_its_site(
    level: Sandbox, client: Client, world: World, shared: Shared
) -> None:
    assert ran(client, world, level.value, away=True, agent=True) == SAID
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
