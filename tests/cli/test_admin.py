from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shoal import __version__
from shoal.cli.app import app
from tests.cli.conftest import Shell

Write = Callable[..., str]


def test_tenants_quotas_and_tokens_from_first_to_last(shell: Shell, manifest: Write) -> None:
    made = shell.json(
        "tenant", "create", "red", "--weight", "2", "--cpus", "1.5", "--memory", "2GiB", "--type", "a100=4"
    )
    assert made["quota"]["cpu_milli"] == 1500
    assert made["quota"]["memory_bytes"] == 2 << 30
    assert made["quota"]["by_type"] == {"a100": 4}
    shell("tenant", "create", "red", code=6)
    shell("tenant", "create", "Red Team", code=2)
    assert shell.json("quota", "red", "--running", "3", "--cpus", "none")["quota"]["running_jobs"] == 3
    assert "unlimited" in shell("quota", "red").stdout
    assert shell.json("tenant", "set", "red", "--weight", "5", "--max-class", "best-effort")["weight"] == 5
    shell("tenant", "set", "red", code=2)
    shell("quota", "nobody", code=3)
    assert "red" in shell("tenant", "list").stdout

    token = shell("tenant", "token", "red", "--label", "laptop").stdout.strip()
    assert token.startswith("shoal_red_")
    url = json.loads((shell.home / "server.json").read_text())["url"]
    env = {"SHOAL_TOKEN": token, "SHOAL_URL": url, "SHOAL_HOME": "/nonexistent"}
    run = CliRunner()
    assert [
        one["name"] for one in json.loads(run.invoke(app, ["tenant", "list", "--json"], env=env).stdout)["tenants"]
    ] == ["red"]
    submitted = run.invoke(app, ["submit", manifest(name="reds"), "--json"], env=env)
    assert json.loads(submitted.stdout)["tenant"] == "red"
    assert run.invoke(app, ["tenant", "create", "green"], env=env).exit_code == 5
    (listed,) = shell.json("tenant", "token", "red", "--list")["tokens"]
    assert listed["label"] == "laptop"
    shell("tenant", "token", "red", "--revoke", listed["id"])
    assert run.invoke(app, ["jobs"], env=env).exit_code == 5


def test_secrets_come_from_stdin_and_reach_the_job_alone(shell: Shell, manifest: Write) -> None:
    assert "hunter2" not in shell("secret", "set", "KEY", stdin="hunter2\n").output
    assert [one["name"] for one in shell.json("secret", "list")["secrets"]] == ["KEY"]
    job = manifest("import os; print(len(os.environ['KEY']))", "spy", secrets=["KEY"])
    assert shell("run", job).stdout == "7\n"
    assert "hunter2" not in shell("show", "spy", "--json").stdout
    shell("secret", "delete", "KEY")
    shell("secret", "delete", "KEY", code=3)
    shell("secret", "set", "KEY", stdin="", code=2)


def test_the_machine_is_shown(shell: Shell, tmp_path: Path) -> None:
    assert "■" in (shown := shell("nodes").stdout) or "□" in shown
    assert len(shell.json("nodes")["nodes"][0]["devices"]) == 2
    status = shell.json("status")
    assert (status["ready"], status["version"]) == (True, __version__)
    assert "uptime" in shell("status").stdout
    picture = shell.json("top", "--once")
    assert set(picture) == {"at", "jobs", "nodes", "tenants"}
    assert "devices busy" in shell("top", "--once").stdout
    assert shell.json("version") == {"version": __version__, "server": __version__}
    assert shell.json("doctor")["capabilities"]
    assert shell.json("doctor")["jobs_can_start"]
    (tmp_path / "slurm.conf").touch()  # without a file Slurm would ask the network for half a minute
    lost = shell.json("doctor", "--engine", "slurm", env={"SLURM_CONF": str(tmp_path / "slurm.conf")}, code=1)
    assert not lost["jobs_can_start"]
    assert "there is no setting" in shell("doctor", "--engine", "slurm", "--set", "slurm.nope=1", code=2).stderr


def test_a_node_is_drained_and_takes_work_again(shell: Shell) -> None:
    (node,) = shell.json("nodes")["nodes"]
    assert "no: drained: a new fan" in " ".join(
        shell("node", "drain", node["name"], "--because", "a new fan").stdout.split()
    )
    (drained,) = shell.json("nodes")["nodes"]
    assert (drained["schedulable"], drained["closed"]) == (False, "drained: a new fan")
    shell("node", "undrain", node["name"])
    (opened,) = shell.json("nodes")["nodes"]
    assert (opened["schedulable"], opened["closed"]) == (True, "")
    assert "is not drained" in shell("node", "undrain", node["name"], code=3).stderr
    assert "no node nine" in shell("node", "drain", "nine", code=3).stderr


def test_manifests_are_checked_with_and_without_a_server(shell: Shell, manifest: Write, tmp_path: Path) -> None:
    good = manifest(name="fine")
    assert "the manifest is good" in shell("manifest", "check", good).stdout
    wide = shell.json("manifest", "check", manifest(name="wide", resources={"cpus": 5000}))
    assert wide["remarks"]
    (tmp_path / "bad.yaml").write_text("name: x\nranks: 0\n")
    shell("manifest", "check", str(tmp_path / "bad.yaml"), code=2)
    alone = Shell(tmp_path / "nowhere")
    assert "checked the text only" in alone("manifest", "check", good).stderr
    assert alone.json("manifest", "schema")["type"] == "object"


def test_an_ffdl_manifest_becomes_one_of_ours(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "manifest.yml"
    path.write_text(
        "name: lenet\nversion: '1.0'\ngpus: 0\ncpus: 0.5\nmemory: 1Gb\nlearners: 1\n"
        "framework:\n  name: tensorflow\n  version: '1.5'\n  command: python3 -c 'print(42)'\n"
    )
    result = shell("import", "ffdl", str(path))
    assert "name: lenet" in result.stdout
    assert "note:" in result.stderr
    assert shell.json("import", "ffdl", str(path))["manifest"]["name"] == "lenet"
    assert shell.json("import", "ffdl", str(path), "--submit")["name"] == "lenet"


def test_a_home_has_one_server_and_its_files_are_private(shell: Shell) -> None:
    taken = shell("up", "--port", "0", code=6)
    assert "a server runs on this home already" in taken.stderr
    for name in ("admin.token", "server.json", "server.log", "shoal.db"):
        assert stat.S_IMODE((shell.home / name).stat().st_mode) == 0o600, name
    token = (shell.home / "admin.token").read_text().strip()
    for path in shell.home.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # some come and go while the server runs
            if path.is_file() and path.name != "admin.token":
                assert token.encode() not in path.read_bytes(), path


def test_a_server_that_cannot_start_detached_says_why(tmp_path: Path, shell: Shell) -> None:
    port = json.loads((shell.home / "server.json").read_text())["url"].rpartition(":")[2]
    failed = Shell(tmp_path)("up", "--port", port, "--detach", code=6)
    assert f"port {port} on 127.0.0.1 is taken" in failed.stderr
    assert "is no address of this machine" in Shell(tmp_path)("up", "--host", "no.invalid", "-d", code=2).stderr
    (tmp_path / "shoal.db").write_text("not a database, " * 100)
    damaged = Shell(tmp_path)("up", "--port", "0", "--detach", code=4).stderr
    assert "put a backup in its place" in damaged
    assert "pysqlite" not in damaged
    assert "--port" in Shell(tmp_path)("up", "--port", "99999", code=2).stderr
    assert "--set serve.port" in Shell(tmp_path)("up", "--set", "serve.port=99999", code=2).stderr


def test_looking_at_a_machine_makes_no_home(tmp_path: Path) -> None:
    assert Shell(tmp_path / "new").json("doctor")["capabilities"]
    assert list(tmp_path.iterdir()) == []


def test_what_may_be_given_is_said_in_words(shell: Shell) -> None:
    assert "only lower-case letters, digits and inner dashes" in shell("tenant", "create", "Bad Name", code=2).stderr
    assert "not a number of at least 0" in shell("quota", "default", "--cpus=-1", code=2).stderr
    assert "[1]" not in shell("tenant", "set", "--help").stdout


def test_without_a_server_every_command_says_so_and_down_is_content(tmp_path: Path) -> None:
    alone = Shell(tmp_path)
    for words in (["jobs"], ["status"], ["show", "x"], ["nodes"], ["events", "-f"], ["top", "--once"]):
        assert "no server runs here" in alone(*words, code=4).stderr
    assert alone.json("down") == {"stopped": False}
    assert alone.json("version")["server"] is None


@pytest.mark.few(count=2)
@pytest.mark.parametrize(
    "words", [["--help"], ["submit", "--help"], ["tenant", "--help"], ["manifest", "schema"], ["nope"]]
)
def test_nothing_heavy_is_imported_for_help(words: list[str]) -> None:
    code = f"""
import sys
from shoal.cli import main

sys.argv = ["shoal", *{words!r}]
try:
    main()
except SystemExit:
    pass
heavy = {{"httpx", "fastapi", "sqlalchemy", "uvicorn", "numpy", "alembic", "cryptography"}} & set(sys.modules)
print("HEAVY", sorted(heavy))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "HEAVY []" in done.stdout


def test_a_pipe_gets_no_colours_and_whole_lines(shell: Shell, manifest: Write) -> None:
    shell("submit", manifest(name="a" * 60))
    env = {**os.environ, "COLUMNS": "40", "TERM": "xterm-256color"}
    done = subprocess.run(
        [sys.executable, "-m", "shoal.cli", "jobs", "--home", str(shell.home)], capture_output=True, text=True, env=env,
        check=True,
    )  # fmt: skip
    assert "\x1b" not in done.stdout
    assert "a" * 60 in done.stdout


def test_the_version_is_told_without_a_server() -> None:
    assert CliRunner().invoke(app, ["--version"]).output == f"shoal {__version__}\n"


def test_completion_is_offered() -> None:
    # It is offered for the shell that asks, which is the parent; a last command keeps bash from replacing itself.
    ask = f"{shlex.quote(sys.executable)} -m shoal.cli --show-completion; true"
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=False)
    assert re.search(r"complete .*shoal|_COMPLETE", done.stdout), done
