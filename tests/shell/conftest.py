"""A site on this machine: the fixtures without root. `ssh` is a local process with an optional delay; the mount is a
bind mount where this may be made, else a second copy. The oracle is bash itself on the same paths."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from shoal.shell.agent.client import ask, ensure_running, stop
from shoal.shell.sites import Site, Sites
from shoal.shell.table import LAUNCHER, PATIENCE, missing_native

SSH = Path(__file__).with_name("fake_ssh.py")


@dataclass(frozen=True)
class Outcome:
    """All that a script leaves."""

    status: int
    stdout: bytes
    stderr: bytes
    files: dict[str, tuple[int, bytes]]


@dataclass
class World:
    """A home, a mount `mnt` that shows `srv`, and a folder to work in."""

    base: Path
    bound: bool
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        return self.base / "home"

    @property
    def mnt(self) -> Path:
        return self.base / "mnt"

    @property
    def work(self) -> Path:
        return self.base / "work"

    def begin(self, **environ: str) -> None:
        """An agent with one site."""
        before = dict(os.environ)
        os.environ.update(environ)
        try:
            Sites.of(self.home).add(self.site())
            ensure_running(self.home)
            told = ask(self.home, do="connect", site="store")
            assert told is not None
            self.told = told
        finally:
            os.environ.clear()
            os.environ.update(before)

    def site(self) -> Site:
        return Site("store", "store", {str(self.mnt): str(self.base / "srv")}, (sys.executable, str(SSH)))

    def end(self) -> None:
        stop(self.home)

    def fill(self, files: dict[str, bytes] | None = None) -> None:
        """Only these files on the site, and an empty folder to work in."""
        for folder in {self.base / "srv", self.mnt if not self.bound else self.base / "srv", self.work}:
            folder.mkdir(exist_ok=True)
            for one in folder.iterdir():
                shutil.rmtree(one) if one.is_dir() and not one.is_symlink() else one.unlink()
        for name, data in (files or FILES).items():
            for folder in {self.base / "srv", self.mnt}:
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)

    def _outcome(self, program: list[str], script: str, data: bytes | None, environ: dict[str, str]) -> Outcome:
        mine = {"PATH": os.environ["PATH"], "HOME": str(self.base), "LC_ALL": "C.UTF-8", "M": str(self.mnt), **environ}
        done = subprocess.run(
            [*program, "-c", script, "script"], cwd=self.work, input=data, capture_output=True, timeout=60,
            check=False, env=mine,
        )  # fmt: skip
        return Outcome(done.returncode, done.stdout, done.stderr, self._files())

    def _files(self) -> dict[str, tuple[int, bytes]]:
        found = {}
        for folder in (self.work, self.mnt):
            for path in sorted(folder.rglob("*")):
                name = str(path.relative_to(self.base))
                if path.is_file() and not path.is_symlink():
                    found[name] = (path.stat().st_mode, path.read_bytes())
                elif not path.is_fifo():
                    found[name] = (path.lstat().st_mode, b"")
        return found

    def plain(self, script: str, data: bytes | None = b"", shell: str = "bash", **environ: str) -> Outcome:
        return self._outcome([shell], script, data, environ)

    def shoal(self, script: str, data: bytes | None = b"", shell: str = "bash", **environ: str) -> Outcome:
        mine = {"SHOAL_HOME": str(self.home), "SHOAL_SHELL_RUN": "test", **environ}
        return self._outcome([str(LAUNCHER), "--with", shell], script, data, mine)

    def same(
        self, script: str, data: bytes | None = b"", *, files: dict[str, bytes] | None = None, away: int | None = None,
        shell: str = "bash", any_order: bool = False, **environ: str,
    ) -> list[dict[str, object]]:  # fmt: skip
        """Run it with both shells from the same start and compare all that is left; returns what was logged. `away`:
        at most so many commands ran on the site, and one at least, in one of six runs: a plan learns what each costs,
        on a machine that may be busy. `any_order`: several commands of a pipeline complain at once."""
        self.fill(files)
        expected = self.plain(script, data, shell, **environ)
        for _ in range(6):
            self.fill(files)
            (self.home / "shell" / "runs" / "test.jsonl").unlink(missing_ok=True)
            found = self.shoal(script, data, shell, **environ)
            entries = self.entries()
            if any_order:
                found, expected = (
                    replace(one, stderr=b"".join(sorted(one.stderr.splitlines(True)))) for one in (found, expected)
                )
            assert found == expected, entries
            if away is None or min(away, 1) <= sum(one["where"] != "here" for one in entries) <= away:
                return entries
        raise AssertionError(f"not {away} commands ran on the site: {entries}")

    def entries(self) -> list[dict[str, object]]:
        """What was logged of the last run; a stage's end may come a moment after the shell's."""
        import json

        status = ask(self.home, do="status")
        assert status is not None
        log = self.home / "shell" / "runs" / "test.jsonl"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


FILES = {
    "a.txt": b"".join(b"%d alpha %d\n" % (number, number * 7919 % 1000) for number in range(3000)),
    "b.txt": b"".join(b"beta %d\n" % (number * 31 % 257) for number in range(2000)),
    "empty": b"",
    "no-newline": b"one\ntwo",
    "binary": bytes(range(256)) * 300,
    "dir/c.txt": b"gamma\nalpha\n",
    "dir/sub/d.txt": b"delta\n",
    "with space.txt": b"space alpha\n",
    "-dash": b"dash alpha\n",
    "new\nline": b"newline alpha\n",
}


def make_world(base: Path) -> Iterator[World]:
    if missing := missing_native():
        pytest.skip(f"the native part {missing} was not built (.ci/native)")
    for name in ("srv", "mnt", "work", "home"):
        (base / name).mkdir(exist_ok=True)
    bind = subprocess.run(["mount", "--bind", base / "srv", base / "mnt"], capture_output=True, check=False)
    made = World(base, bind.returncode == 0)
    try:
        made.fill()
        yield made
    finally:
        if made.bound:
            subprocess.run(["umount", "--lazy", made.mnt], check=False)
        made.end()


@pytest.fixture(scope="session", autouse=True)
def patience() -> Iterator[None]:
    """On a machine that stands still, a command waits for the agent none the less: where it runs is then a plan's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(PATIENCE, "30000")
        yield


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One site for all tests that leave it as it is."""
    for made in make_world(tmp_path_factory.mktemp("shell")):
        made.begin()
        yield made


@pytest.fixture(scope="session")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """`$M/one` and `$M/two` are sites of their own."""
    for made in make_world(tmp_path_factory.mktemp("two")):
        made.fill({"one/x": b"", "two/x": b""})
        for name in ("one", "two"):
            mounts = {str(made.mnt / name): str(made.base / "srv" / name)}
            Sites.of(made.home).add(Site(name, name, mounts, (sys.executable, str(SSH))))
        ensure_running(made.home)
        for name in ("one", "two"):
            told = ask(made.home, do="connect", site=name)
            assert told is not None
            assert told["ready"], told
        yield made


@pytest.fixture
def own_world(tmp_path: Path) -> Iterator[World]:
    """A site of the test's own, whose agent it starts itself."""
    yield from make_world(tmp_path)
