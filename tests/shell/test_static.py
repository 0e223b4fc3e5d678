"""Shells that load no library: programs first on their PATH ask in their place."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.shell.conftest import World
from tests.shell.test_cli import shoal

STATIC = """
#include <stdlib.h>
#include <unistd.h>
#include <sys/wait.h>
int main(int count, char **argv) {  /* NAME -c SCRIPT: what system() does, without a shell of its own */
    if (count < 3) return 2;
    int pipe_[2], status;
    if (pipe(pipe_)) return 3;
    char file[4096];
    file[0] = 0;
    for (char *at = getenv("M"), *to = file; *at || (*to = 0); ) *to++ = *at++;
    for (char *to = file, *end = "/a.txt"; ; to++) if (!*to) { while ((*to++ = *end++)); break; }
    if (!fork()) { dup2(pipe_[1], 1); close(pipe_[0]); close(pipe_[1]); execlp("cat", "cat", file, (char *)0); _exit(9); }
    if (!fork()) { dup2(pipe_[0], 0); close(pipe_[0]); close(pipe_[1]); execlp("grep", "grep", "-c", argv[2], (char *)0); _exit(9); }
    close(pipe_[0]); close(pipe_[1]);
    wait(&status); wait(&status);
    return 0;
}
"""  # noqa: E501


@pytest.fixture(scope="module")
def static(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A static program that starts a pipeline of two, as a static shell would."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    folder = tmp_path_factory.mktemp("static")
    (folder / "shell.c").write_text(STATIC)
    words = ["gcc", "-static", "-w", "-o", folder / "shell", folder / "shell.c"]
    made = subprocess.run(words, capture_output=True, check=False)
    if made.returncode:
        pytest.skip("static programs cannot be linked here")
    return folder / "shell"


def test_a_static_shell_reaches_the_sites(world: World, static: Path) -> None:
    world.same("alpha 7", shell=str(static), away=2)


def test_a_static_bash_leaves_what_bash_leaves(world: World) -> None:
    if (found := shutil.which("bash-static")) is None:
        pytest.skip("there is no static bash")
    script = "f() { cat $M/a.txt | grep 'alpha 7' | sort | tail -5; }; f; cd $M; find . -name a.txt | xargs grep -c 1"
    world.same(script, shell=found, away=6)


def test_programs_on_the_path_are_those_behind_them(own_world: World) -> None:
    world = own_world  # costs that other tests learned would decide what runs away
    world.begin()
    told = json.loads(shoal(world, "env", "--programs", "--json"))
    assert "LD_PRELOAD" not in told
    environ = {**told, "LC_ALL": "C.UTF-8"}
    script = (
        "grep -c alpha $M/a.txt; cat $M/a.txt | wc -l; sort --version | head -1; env grep -c beta $M/b.txt;"
        "mkdir -p own; printf '#!/bin/sh\\necho own' > own/grep; chmod +x own/grep; PATH=$PWD/own:$PATH; grep x f"
    )
    world.fill()
    expected = world.plain(script)
    log = world.home / "shell" / "runs" / f"env-{os.getppid()}.jsonl"

    def all_away() -> bool:
        """Whether a new run is the same, and its four commands ran on the site."""
        log.unlink(missing_ok=True)
        world.fill()
        assert world.plain(script, **environ) == expected
        for _ in range(20):
            if log.exists() and log.read_text().count('"where": "store"') >= 4:
                return True
            time.sleep(0.05)
        return False

    assert any(
        all_away() for _ in range(12)
    )  # a plan learns what each costs; on a busy machine the halves of a pipeline miss each other
    world.fill()
    lost = {**environ, "SHOAL_SHELL_TABLE": "/nowhere"}
    assert b"no session" in world.plain("grep -c alpha $M/a.txt", **lost).stderr


def test_a_hooked_shell_in_such_a_session_finds_the_programs_too(world: World) -> None:
    told = json.loads(shoal(world, "env", "--programs", "--json"))
    script = "cat $M/a.txt | grep -c 'alpha 7'; env | grep -c SHOAL_SHELL_TABLE"
    world.fill()
    expected = world.plain(script)
    (world.home / "shell" / "runs" / "test.jsonl").unlink(missing_ok=True)
    assert world.shoal(script, PATH=told["PATH"]) == expected
    assert sum(one["where"] == "store" for one in world.entries()) == 2
