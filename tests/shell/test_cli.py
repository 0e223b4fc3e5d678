"""The commands of `shoal shell` as users type them."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shoal.cli.app import app
from shoal.shell.agent.client import ask
from tests.shell.conftest import SSH, World

SHOAL = str(Path(sys.executable).with_name("shoal"))


def shoal(world: World, *words: str, code: int = 0) -> str:
    """What a command prints; its errors where it is to fail."""
    environ = {
        "PATH": "/usr/bin:/bin", "SHOAL_HOME": str(world.home), "HOME": str(world.base), "LC_ALL": "C.UTF-8",
    }  # fmt: skip
    with contextlib.chdir(world.work):
        done = CliRunner().invoke(app, ["shell", *words], env=environ)
    assert done.exit_code == code, done.output
    return done.stdout if code == 0 else done.stderr


def test_from_a_site_to_an_explanation(own_world: World) -> None:
    mount, root = str(own_world.mnt), str(own_world.base / "srv")
    ssh = f"{sys.executable} {SSH}"
    assert "no site" not in shoal(own_world, "doctor", code=1)
    told = json.loads(
        shoal(own_world, "site", "add", "store", "user@store", "--at", f"{mount}={root}", "--ssh", ssh, "--json")
    )
    assert told["namespaces"] in (True, False)
    assert [one["ready"] for one in json.loads(shoal(own_world, "site", "list", "--json"))] == [True]
    script = own_world.work / "report.sh"
    script.write_text(f'grep alpha {mount}/a.txt | sort | tail -"$1"; exit 7\n')
    out = subprocess.run(["bash", script, "2"], capture_output=True, text=True, check=False).stdout

    def explained() -> dict[str, str]:
        done = subprocess.run(
            [SHOAL, "shell", "run", "--home", own_world.home, script, "2"], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (7, out)
        told = json.loads(shoal(own_world, "explain", "--json"))
        return {one["command"].split()[0]: one["where"] for one in told["commands"]}

    whole = dict.fromkeys(("grep", "sort", "tail"), "store")
    assert any(explained() == whole for _ in range(6))  # on a busy machine the parts of a pipeline may miss each other
    shown = shoal(own_world, "explain")
    assert "its data, about" in shown
    assert "MOVED" in shown
    assert "site store" in shoal(own_world, "doctor")
    assert json.loads(shoal(own_world, "status", "--json"))["away"] >= 3
    assert "is forgotten" in shoal(own_world, "site", "remove", "store")
    assert "there is no site 'store'" in shoal(own_world, "site", "remove", "store", code=3)
    assert "has ended" in shoal(own_world, "stop")
    assert "no agent runs" in shoal(own_world, "stop")


def test_a_plan_runs_nothing_and_writes_nothing(world: World) -> None:
    world.fill()
    before = world.plain("ls -R $M .").stdout
    text = f"cat {world.mnt}/*.txt | grep -F alpha | sort | head > {world.work}/out; rm -rf {world.mnt}/dir; curl x"
    stages = json.loads(shoal(world, "plan", text, "--json"))["stages"]
    names = [one["command"].split()[0] for one in stages]
    assert {one["where"] for one in stages if one["command"].split()[0] in ("cat", "grep", "sort", "head")} == {"store"}
    assert names[:4] == ["cat", "grep", "sort", "head"]
    assert world.plain("ls -R $M .").stdout == before
    assert "its data" in shoal(world, "plan", f"wc {world.mnt}/a.txt")
    assert "syntax error" in shoal(world, "plan", "cat |", code=2)


@pytest.mark.parametrize(
    ("words", "code", "what"),
    [
        (["site", "add", "x", "host", "--at", "/mnt"], 2, "names one folder"),
        (["site", "add", "x", "host", "--at", "/a=/b", "--memory", "64"], 2, "'64' is not a size"),
        (["site", "add", "x", "host", "--at", "/a=/b", "--memory", "63MiB"], 2, "64MiB or more"),
        (["site", "add", "x/y", "host", "--at", "/a=/b"], 2, "a site's name has letters"),
        (["site", "add", "x", "-oProxyCommand=id", "--at", "/a=/b"], 2, ""),
        (["site", "add", "x", "host", "--at", "/a=b"], 2, "is no absolute path"),
        (["run", "nosuch.sh"], 3, "there is no such script"),
        (["explain", "nosuch"], 3, "there is no run 'nosuch'"),
        (["annotate", "show", "--", "grep", "--nosuch"], 2, "this call would run here"),
        (["annotate", "import", "nosuch"], 3, "No such file"),
        (["annotate", "check", "nosuch"], 3, "No such file"),
    ],
)
def test_what_is_wrong_is_told(world: World, words: list[str], code: int, what: str) -> None:
    assert what in shoal(world, *words, code=code)


def test_a_site_that_cannot_be_used_is_not_kept(own_world: World) -> None:
    mount, root = str(own_world.mnt), str(own_world.base / "srv")
    at = ["--at", f"{mount}={root}"]
    assert "cannot be used" in shoal(own_world, "site", "add", "x", "host", *at, "--ssh", "false", code=4)
    ssh = ["--ssh", f"{sys.executable} {SSH}"]
    assert "there is no folder" in shoal(
        own_world, "site", "add", "x", "h", "--at", f"{mount}=/nosuch/there", *ssh, code=4
    )
    assert "hold different files" in shoal(own_world, "site", "add", "x", "h", "--at", f"{mount}=/usr", *ssh, code=2)
    assert json.loads(shoal(own_world, "site", "list", "--json")) == []


def test_annotations_are_shown_taken_over_and_tried(world: World, tmp_path: Path) -> None:
    assert "git status" in shoal(world, "annotate", "list").splitlines()
    told = json.loads(shoal(world, "annotate", "show", "--json", "--", "grep", "-c", "x", "a", "b"))
    assert (told["reads"], told["split"]) == (["a", "b"], "concat")
    posh = tmp_path / "posh.txt"
    posh.write_text(
        "wc: FLAGS:[(short:l,long:lines),(short:Q)] PARAMS:[(type:input_file,size:list(list_separator:( )))]\n"
    )
    assert "wc" in shoal(world, "annotate", "import", str(posh), "-o", str(tmp_path / "posh.toml"))
    done = subprocess.run(
        [SHOAL, "shell", "annotate", "check", tmp_path / "posh.toml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "does not hold" in done.stdout


def test_programs_started_by_other_means_join_by_the_environment(world: World) -> None:
    world.fill()
    told = json.loads(shoal(world, "env", "--json"))
    log = world.home / "shell" / "runs"
    found = subprocess.run(["bash", "-c", f"grep -c alpha {world.mnt}/a.txt"], env={"PATH": "/usr/bin:/bin", "LC_ALL": "C", **told},  # noqa: E501
                           capture_output=True, text=True, check=True)  # fmt: skip
    assert found.stdout == "3000\n"
    ask(world.home, do="status")  # the agent writes its log after a command's end, and answers after that
    assert [one for one in log.glob("env-*.jsonl") if '"store"' in one.read_text()]
