"""What `shoal install --system` writes, on a machine that systemd has booted."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import pytest

from .booted import Booted, booted, missing

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.skipif(bool(missing()), reason=missing())]
SHOAL = (sys.executable, "-m", "shoal.cli")
HOME = "/var/lib/shoal"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Booted]:
    with booted(tmp_path_factory.mktemp("booted")) as machine:
        yield machine


def ranks(machine: Booted, job: str) -> list[object]:
    """Of each attempt."""
    told = json.loads(machine.run(*SHOAL, "show", job, "--json", SHOAL_HOME=HOME).stdout)
    return [one["ranks"] for one in told["attempts"]]


@pytest.mark.parametrize("user", ["shoal", "root"])
def test_a_service_of_systemd_keeps_jobs_over_its_restarts(machine: Booted, user: str) -> None:
    machine.run(*SHOAL, "install", "--system", "--user", user, "--force")
    machine.run("sh", "-c", "systemd-sysusers && systemd-tmpfiles --create")
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "enable", "--now", "shoal")
    machine.until("systemctl", "is-active", "shoal", says="active")
    machine.until("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "http://127.0.0.1:7070/readyz", says="200")
    machine.run(*SHOAL, "tenant", "create", "team", SHOAL_HOME=HOME)
    manifest = {"name": "long", "command": ["sleep", "600"], "resources": {"cpus": 0.1, "memory": "64MiB"}}
    words = " ".join([*SHOAL, "submit", "-", "--quiet", "--tenant", "team"])
    job = machine.run("sh", "-c", f"echo '{json.dumps(manifest)}' | {words}", SHOAL_HOME=HOME).stdout.strip()
    machine.until(*SHOAL, "show", job, "--home", HOME, says="RUNNING")
    before = ranks(machine, job)
    pids = machine.run("pgrep", "-f", "^sleep 600").stdout
    for how in (("systemctl", "restart", "shoal"), ("systemctl", "kill", "-s", "KILL", "--kill-who=main", "shoal")):
        main = machine.run("systemctl", "show", "-P", "MainPID", "shoal").stdout
        machine.run(*how)
        machine.until("sh", "-c", f"[ $(systemctl show -P MainPID shoal) -gt 0 ] && "
                      f"[ $(systemctl show -P MainPID shoal) != {main.strip()} ] && echo new", says="new")  # fmt: skip
        machine.until("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "http://127.0.0.1:7070/readyz", says="200")
        assert machine.run("pgrep", "-f", "^sleep 600").stdout == pids
        machine.until(*SHOAL, "show", job, "--home", HOME, says="RUNNING")
        assert ranks(machine, job) == before
    machine.run(*SHOAL, "cancel", "--yes", job, SHOAL_HOME=HOME)
    machine.until(*SHOAL, "show", job, "--home", HOME, says="CANCELLED")
    assert machine.run("pgrep", "-f", "^sleep 600", check=False).stdout == ""
    machine.run("systemctl", "disable", "--now", "shoal")
    machine.until("systemctl", "is-active", "shoal", says="inactive")
    machine.run("rm", "-rf", HOME)
