"""Jobs that attack what starts, watches and stops them: programs with root's rights, and supervisors."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import string
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from shoal.core import Sandbox
from shoal.engine import Gang, TimeLimit
from shoal.engine.sandbox.enter import ENVIRONMENT
from tests.engine.local_kit import LocalKit, local_kit, until_exists

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="a sandbox needs a server that runs as root")
WRAPPED = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bwrap is not installed")

LOADER = ("LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH", "GCONV_PATH", "LOCPATH", "MALLOC_CHECK_", "NLSPATH", "PATH")
SHELLS = ("BASH_ENV", "ENV", "IFS", "PS4", "SHELLOPTS", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "TMPDIR", "HOME")


@pytest_asyncio.fixture
async def kit(tmp_path: Path) -> AsyncIterator[LocalKit]:
    async with local_kit(tmp_path) as kit:
        yield kit


def wrapped(kit: LocalKit, name: str, source: str, **env: str) -> Gang:
    made = kit.python(name, source, tenant="red", sandbox=Sandbox.BUBBLEWRAP)
    return replace(made, run_dir=kit.home / "runs" / name / "1", env=env)


@AS_ROOT
@WRAPPED
async def test_no_program_with_rights_has_the_ranks_environment_or_directory(
    kit: LocalKit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes first records both, and goes on as bubblewrap; setpriv inherits them from it."""
    stand_in, seen, where = tmp_path / "stand-in", tmp_path / "seen", tmp_path / "where"
    stand_in.mkdir()
    record = f"cat /proc/$$/environ > {seen}\nreadlink /proc/$$/cwd > {where}"
    (stand_in / "bwrap").write_text(f'#!/bin/sh\n{record}\nexec {shutil.which("bwrap")} "$@"\n')
    (stand_in / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{stand_in}:{os.environ['PATH']}")
    dice = random.Random(4)
    names = {"".join(dice.choices(string.ascii_letters + "_", k=dice.randint(1, 12))) for _ in range(100)}
    given = {name: f"/nothing/{name}" for name in (*names, *LOADER, *SHELLS)}
    given["PATH"] = os.environ["PATH"]
    source = "import json, os; print(json.dumps([dict(os.environ), os.getcwd(), os.getuid()]))"
    gang = wrapped(kit, "a.1.run", source, **given)
    await kit.engine.launch(gang)
    end = (await kit.settle("a.1.run")).ranks[0].exit
    log = (await kit.engine.read("a.1.run", 0, "log", 0)).data.decode()
    assert end is not None
    assert end.code == 0, log
    assert dict(entry.split("=", 1) for entry in seen.read_text().split("\0")[:-1]) == ENVIRONMENT
    assert where.read_text().strip() == "/"
    environ, directory, uid = json.loads(log.splitlines()[-1])
    engines_own = {"HOME", "TMPDIR"}  # those of the tenant's user
    assert {name: environ.get(name) for name in given.keys() - engines_own} == {
        name: value for name, value in given.items() if name not in engines_own
    }
    assert directory == str(gang.run_dir)
    assert uid >= 1000


@AS_ROOT
@WRAPPED
async def test_the_loaders_variables_write_nothing_as_root(kit: LocalKit, tmp_path: Path) -> None:
    place = tmp_path / "of-root"
    place.mkdir(mode=0o700)
    tunables = "glibc.malloc.check=3"
    gang = wrapped(
        kit, "a.1.run", "print('ran')", LD_DEBUG="files", LD_DEBUG_OUTPUT=str(place / "trace"), GLIBC_TUNABLES=tunables
    )
    await kit.engine.launch(gang)
    await kit.settle("a.1.run")
    assert [*place.iterdir()] == []


@AS_ROOT
@WRAPPED
async def test_a_rank_ignores_no_signal_that_the_last_step_ignored(kit: LocalKit) -> None:
    gang = replace(wrapped(kit, "a.1.run", "", PATH="/usr/bin:/bin"), argv=("grep", "SigIgn", "/proc/self/status"))
    await kit.engine.launch(gang)
    await kit.settle("a.1.run")
    said = (await kit.engine.read("a.1.run", 0, "log", 0)).data
    assert int(said.split()[1], 16) & 0x7FFFFFFF == 0  # of the ordinary ones; the C library's own come as they are


@AS_ROOT
@WRAPPED
async def test_a_command_that_is_not_there_is_told_with_a_shells_code(kit: LocalKit) -> None:
    gang = replace(wrapped(kit, "a.1.run", "", PATH="/usr/bin"), argv=("nothing-of-this-name",))
    await kit.engine.launch(gang)
    end = (await kit.settle("a.1.run")).ranks[0].exit
    assert end is not None
    assert end.code == 127
    assert b"'nothing-of-this-name' was not found on PATH" in (await kit.engine.read("a.1.run", 0, "log", 0)).data


@AS_ROOT
@pytest.mark.parametrize("level", [Sandbox.USER, pytest.param(Sandbox.BUBBLEWRAP, marks=WRAPPED)])
async def test_it_is_not_told_which_files_of_root_there_are(kit: LocalKit, tmp_path: Path, level: Sandbox) -> None:
    place = tmp_path / "of-root"
    place.mkdir(mode=0o700)
    (place / "there").write_text("secret")
    told = []
    for number, name in enumerate(("there", "absent")):
        gang = replace(wrapped(kit, f"{number}.1.run", ""), argv=(str(place / name),), sandbox=level)
        try:
            await kit.engine.launch(gang)
        except Exception as failure:
            told.append(str(failure))
        else:
            await kit.settle(gang.name)
            told.append((await kit.engine.read(gang.name, 0, "log", 0)).data.decode())
    there, absent = (text.replace("there", "NAME").replace("absent", "NAME") for text in told)
    assert there.replace("0.1.run", "RUN") == absent.replace("1.1.run", "RUN")


# --- a supervisor that is held up ---

PIPES = {
    "log.times": 'os.mkfifo(place + "/log.times")',
    "notice": 'os.mkfifo(f"{place}/.notice-{os.getppid()}"); open(place + "/cooperative", "w").close()',
    "a link to a pipe": 'os.mkfifo("pipe"); os.symlink(os.path.abspath("pipe"), place + "/log.times")',
    "a pipe that is read": 'os.mkfifo(place + "/log.times"); kept = os.open(place + "/log.times", os.O_RDWR)',
}


@pytest.mark.few
@pytest.mark.parametrize("how", PIPES)
async def test_a_pipe_in_place_of_a_file_keeps_no_supervisor_from_ending_its_rank(kit: LocalKit, how: str) -> None:
    source = f"""
import os, signal, time
place = os.environ["SHOAL_RUN"]
{PIPES[how]}
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(place + "/in-effect", "w").close()
while True:
    print("a line", flush=True)
    time.sleep(0.05)
"""
    limits = (TimeLimit("max-runtime", "it ran too long", after_s=2.5),) if how == "log.times" else ()
    gang = replace(kit.python("a.1.run", source, grace_s=0.2), time_limits=limits)
    await kit.engine.launch(gang)
    await until_exists(kit.rank_dir("a.1.run") / "in-effect")
    if not limits:
        await kit.engine.stop("a.1.run")
    end = (await kit.settle("a.1.run")).ranks[0].exit
    assert end is not None
    assert (end.signal, end.lost) == (signal.SIGKILL, False)
    assert kit.processes() == []
