"""What people start in running jobs has the job's software: the same as the job's own command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shoal.base.home import Home
from shoal.contract.lifecycle import JobState
from shoal.sdk import Client
from shoal.session import sshd
from shoal.session.commands.common import MAIN, connector
from tests.session.conftest import relayed

from .kit import needs_images, needs_uv
from .test_jobs import (  # noqa: F401 - fixtures
    FILES,
    LEVELS,
    SLOW,
    client,
    ended,
    home,
    image,
    log,
    need,
    project,
    shared,
    until,
    venv,
)

PREFIX = "import os, sys; print(sys.prefix, os.environ['VIRTUAL_ENV'], os.environ['PATH'])"


@pytest.fixture(autouse=True)
def _home_is_there(home: Home) -> None:  # noqa: F811
    """Its tenants too."""


def started(client: Client, tenant: str, command: list[str], environment: dict[str, Any], **more: Any) -> str:  # noqa: F811
    """A job that runs and has written a line."""
    made = {"name": "job", "command": command, "tenant": tenant, "environment": environment, **more}
    base = made.pop("base", None)
    job = client.submit(made, base=base).id
    until(lambda: client.job(job).state.terminal or b"\n" in client.log_piece(job).data)
    assert client.job(job).state is JobState.RUNNING, (client.job(job).message, log(client, job))
    return job


def beside(client: Client, job: str, *line: str, stdin: bytes = b"") -> tuple[int, str]:  # noqa: F811
    session = client.session.execute(job, line)
    code, out, errors = relayed(connector(client, job, session.id, 0), stdin)
    return code, (out + errors).decode()


def over(client: Client, *jobs: str) -> None:  # noqa: F811
    for job in jobs:
        client.cancel(job)
    for job in jobs:
        ended(client, job)


@pytest.mark.parametrize("level", ["none", "user", pytest.param("bubblewrap", marks=SLOW)])
def test_a_command_beside_a_job_in_a_virtual_environment(
    client: Client, home: Home, level: str, venv: Path  # noqa: F811
) -> None:  # fmt: skip
    need(level, home)
    words = ["python", "-uc", f"{PREFIX}; import time; time.sleep(600)"]
    job = started(client, level, words, {"venv": str(venv)})
    assert beside(client, job, "python", "-c", PREFIX) == (0, log(client, job))
    assert log(client, job).startswith(f"{venv} {venv} {venv}/bin:")
    code, said = beside(client, job, "no-such-program")
    assert code == 127
    assert "no-such-program" in said
    over(client, job)


@needs_images
@pytest.mark.parametrize("level", [pytest.param("none", marks=SLOW), pytest.param("user", marks=SLOW), "bubblewrap"])
def test_a_command_beside_a_job_in_an_image(client: Client, home: Home, level: str, image: str) -> None:  # noqa: F811
    need(level, home)
    look = "cat /hello; echo $WORD; id -u; pwd; ls /"
    job = started(client, level, ["sh", "-c", f"({look}) > told; cat told; sleep 600"], {"image": image})
    until(lambda: b"srv" in client.log_piece(job).data)
    assert beside(client, job, "sh", "-c", look) == (0, log(client, job))
    assert beside(client, job, "cat", stdin=b"typed") == (0, "typed")
    assert beside(client, job, "sh", "-c", "echo more > here; touch /bin/a; exit 9") == (
        9, "touch: /bin/a: Read-only file system\n",
    )  # fmt: skip
    assert beside(client, job, "cat", "here") == (0, "more\n")
    over(client, job)


@needs_images
def test_a_job_at_a_terminal_and_what_attaches_to_it_are_in_its_image(client: Client, image: str) -> None:  # noqa: F811
    made = started(
        client, "none", ["sh", "-c", "cat /hello; tty; read word; echo got $word"],
        {"image": image}, extensions={"session": {}},
    )  # fmt: skip
    code, out, _ = relayed(connector(client, made, MAIN, 0), b"this\n")
    assert code == 0
    assert b"hello from the image" in out
    assert b"got this" in out
    assert ended(client, made).state is JobState.SUCCEEDED


@needs_uv
@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
def test_a_command_beside_a_job_with_a_lock_file(
    client: Client, home: Home, level: str, project: Path  # noqa: F811
) -> None:  # fmt: skip
    need(level, home)
    look = f"import tiny; print(tiny.WORD); {PREFIX}"
    words = ["python", "-uc", f"{look}; import time; time.sleep(600)"]
    job = started(client, level, words, {"uv": "uv.lock"}, files=FILES, base=project)
    until(lambda: client.log_piece(job).data.count(b"\n") == 2)
    assert beside(client, job, "python", "-c", look) == (0, log(client, job))
    over(client, job)


def _no_ssh() -> str:
    try:
        sshd.find(sshd.SERVERS, "sshd")
        sshd.find(sshd.LIBRARIES, "nss_wrapper")
    except sshd.Missing as problem:
        return str(problem)
    return "" if shutil.which("ssh") else "OpenSSH's client is not installed"


@needs_images
@pytest.mark.slow
@pytest.mark.skipif(bool(_no_ssh()), reason=_no_ssh())
@pytest.mark.parametrize("level", LEVELS)
def test_ssh_is_in_the_jobs_software(
    client: Client, home: Home, level: str, venv: Path, image: str, tmp_path: Path  # noqa: F811
) -> None:  # fmt: skip
    need(level, home)
    env = {**os.environ, "HOME": str(tmp_path), "SHOAL_HOME": str(home.path)}

    def ssh(job: str, line: str) -> str:
        subprocess.run([sys.executable, "-m", "shoal.cli", "ssh", "--config", job], env=env, check=True, timeout=60)
        config = tmp_path / ".shoal" / "ssh" / "config"
        words = ["ssh", "-F", str(config), f"{job}.shoal", *([line] if line else [])]
        done = subprocess.run(words, env=env, input=b"" if line else b"cat /hello\n", capture_output=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()

    job = started(client, level, ["python", "-uc", "print(); import time; time.sleep(600)"], {"venv": str(venv)})
    assert ssh(job, f'python -c "{PREFIX}"').startswith(f"{venv} {venv} {venv}/bin:")
    over(client, job)
    job = started(client, level, ["sh", "-c", "echo; sleep 600"], {"image": image})
    assert ssh(job, "cat /hello; echo $WORD 'a  b'; pwd").splitlines() == [
        "hello from the image", "w a  b", str(home.path / str(client.job(job).run_dir)),
    ]  # fmt: skip
    assert ssh(job, "") == "hello from the image\n"
    over(client, job)
