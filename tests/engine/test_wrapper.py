"""What the programs on the way into a sandbox get of a job, and what its own program gets."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shoal.core import Sandbox
from shoal.engine.sandbox import Rights, enter, plan
from tests.engine.local_kit import LocalKit
from tests.engine.test_sandbox import gang, kit, level, said

__all__ = ["kit", "level"]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a sandbox needs a server that runs as root")

SHOWS = """
import json, os
print(json.dumps([os.getcwd(), dict(os.environ), os.listdir("/proc/self/fd")]))
"""


@pytest.mark.parametrize("kind", ["env", "secrets"])
async def test_variables_of_the_loader_reach_no_program_that_still_has_rights(
    kit: LocalKit, level: Sandbox, tmp_path: Path, kind: str
) -> None:
    """`LD_DEBUG_OUTPUT` has the loader write files, with the rights of the program that it loads."""
    traces = tmp_path / "traces"
    traces.mkdir(mode=0o700)
    chosen = {
        "LD_DEBUG": "files", "LD_DEBUG_OUTPUT": f"{traces}/trace", "LD_PRELOAD": "./evil.so", "LD_AUDIT": "./evil.so",
        "LD_LIBRARY_PATH": ".", "GLIBC_TUNABLES": "glibc.malloc.check=1", "PYTHONPATH": ".", "PYTHONSTARTUP": "evil",
    }  # fmt: skip
    job = gang(kit, "job", SHOWS, level)
    job = replace(job, **{kind: {**getattr(job, kind), **chosen}})
    shown = await said(kit, job)
    assert list(traces.iterdir()) == []
    folder, env, descriptors = json.loads(next(line for line in shown.splitlines() if line.startswith("[")))
    assert folder == str(job.run_dir)
    assert chosen.items() <= env.items()
    assert len(descriptors) == 4  # the streams, and the one that lists them: nothing of the way in is left open


STAND_IN = """#!/bin/sh
for what in environ cmdline; do cat /proc/$$/$what > {record}.$what; done
readlink /proc/$$/cwd > {record}.cwd
exec {program} "$@"
"""
SHOWN = """
/bin/cat /proc/$$/environ > environ
/bin/readlink /proc/$$/cwd > cwd
/bin/grep SigIgn /proc/$$/status > ignored
echo $0 > name
"""

TEXT = st.text(st.characters(exclude_characters="=\0", exclude_categories=["Cs"]), min_size=1, max_size=20)
NAMES = st.one_of(st.sampled_from(("LD_PRELOAD", "LD_AUDIT", "BASH_ENV", "PATH", "PYTHONHOME", "PWD")), TEXT)


@pytest.fixture
def stand_ins(kit: LocalKit, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Recorders before the wrapper's programs on the PATH, in a directory that is kept in the sandbox."""
    folder = kit.root / "stand-ins"
    folder.mkdir()
    for name in ("bwrap", "setpriv"):
        program = shutil.which(name)
        if program is None:
            pytest.skip(f"{name} is not installed")
        (folder / name).write_text(STAND_IN.format(record=folder / f"{name}.seen", program=program))
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    return folder


@given(env=st.dictionaries(NAMES, TEXT.map("secret-".__add__)))
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_helpers_see_nothing_of_the_tenant_and_the_program_all_of_its_own(
    kit: LocalKit, stand_ins: Path, env: dict[str, str]
) -> None:
    uid, run_dir = 0x7000_0001, kit.home / "run"
    run_dir.mkdir(parents=True, exist_ok=True)
    os.chown(run_dir, uid, uid)
    wrapper = plan(Sandbox.BUBBLEWRAP, Rights.of_tenant(uid), kit.home, [run_dir, stand_ins])["wrapper"]
    child = os.fork()
    if child == 0:
        try:
            os.chdir("/")
            os.dup2(os.open("/dev/null", os.O_WRONLY), 2)  # the program's loader complains
            enter.wrap(wrapper, ["/bin/sh", "-c", SHOWN, "secret-word"], env, str(run_dir))
        finally:
            os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert _variables((run_dir / "environ").read_bytes()) == env
    assert (run_dir / "cwd").read_text() == f"{run_dir}\n"
    assert (run_dir / "name").read_text() == "secret-word\n"
    ordinary = 0x7FFFFFFF  # the C library keeps 32 and 33 to itself; they come as they are
    assert int((run_dir / "ignored").read_text().split()[1], 16) & ordinary == 0
    for helper, given_to_it in (
        ("bwrap", enter.ENVIRONMENT),
        ("setpriv", {**enter.ENVIRONMENT, "PWD": "/"}),
    ):  # that one bubblewrap sets
        seen = {what: (stand_ins / f"{helper}.seen.{what}").read_bytes() for what in ("environ", "cmdline", "cwd")}
        assert _variables(seen["environ"]) == given_to_it
        assert b"secret" not in seen["cmdline"]
        assert seen["cwd"] == b"/\n"


def _variables(environ: bytes) -> dict[str, str]:
    pairs = (word.partition(b"=") for word in environ.split(b"\0") if word)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
