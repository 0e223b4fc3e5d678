"""A site behind a link of 20 ms, mounted by sshfs: the same results as bash on a local copy, and a mount that never
shows what was true before. Needs root."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.shell import doctor
from shoal.shell.agent.client import ask, ensure_running, stop
from shoal.shell.sites import Site, Sites
from shoal.shell.table import LAUNCHER, missing_native
from tests.shell import network as networks

pytestmark = pytest.mark.slow

BOTH_WAYS = """
echo hi > $M/x; grep -c hi $M/x
for i in 1 2 3; do echo line$i >> $M/y; tail -1 $M/y; done
exec 4>>$M/log; echo one >&4; grep -c one $M/log; echo one >&4; grep -c one $M/log; exec 4>&-
read y < $M/x; echo "here $y"; sed -i s/hi/longer/ $M/x; read y < $M/x; echo "here $y"; stat -c %s $M/x
[ -e $M/b ] && echo early; sort $M/y -o $M/b; [ -s $M/b ] && echo there; stat -c %s $M/b; read z < $M/b; echo $z
rm $M/b; [ -e $M/b ] || echo gone; mkdir $M/d; [ -d $M/d ] && echo dir; cp $M/x $M/d/q; ls $M/d | cat
echo $M/d/*; printf 'more\\n' >> $M/d/q; wc -l $M/d/q; mv $M/d/q $M/d/r; echo $M/d/*; rm -r $M/d; echo $M/*
tee $M/t < $M/y | wc -l; wc -c < $M/t; read t < $M/t; echo $t; sort -r $M/y > $M/z; wc $M/z; cat $M/z
"""
PLAIN = """
echo hi > $M/x; grep -c hi $M/x; for i in 1 2 3; do printf 'line%s\\n' 1 $i > $M/y; tail -1 $M/y; done
[ -e $M/b ] && echo early; sort -r $M/y -o $M/b; [ -s $M/b ] && echo there; read z < $M/b; echo $z
mkdir $M/d; cp $M/x $M/d/q; echo $M/d/*; wc -l $M/d/q; mv $M/d/q $M/d/r; echo $M/d/*
tee $M/t < $M/y | wc -l; read t < $M/t; echo $t; sort -u $M/y > $M/z; wc $M/z; rm $M/b; [ -e $M/b ] || echo gone
"""
GIT = """
cd $M; git init -q repo; cd repo; git config user.name n; git config user.email e@x
for i in 1 2 3; do echo $i > f$i; done
git status --porcelain; git add .; git status -s; git commit -q -m first; git log --oneline --format=%s; git status
echo more >> f1; git diff --stat; git status --porcelain | wc -l; git rev-parse --show-prefix
"""


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[networks.Network]:
    if why := networks.lacking() or missing_native():
        pytest.skip(f"no network of its own: {why}")
    with networks.network(tmp_path_factory.mktemp("net") / "n") as made:
        made.mount()
        home = made.folder / "home"
        Sites.of(home).add(Site("far", "far", {str(made.mnt): str(made.srv)}, made.ssh))
        ensure_running(home)
        told = ask(home, do="connect", site="far")
        assert told is not None
        assert told["ready"], told
        yield made
        stop(home)


def outcome(program: list[str], script: str, folder: Path, home: Path) -> tuple[int, bytes]:
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "LC_ALL": "C", "M": str(folder), "SHOAL_HOME": str(home),
               "GIT_CONFIG_NOSYSTEM": "1", "SHOAL_SHELL_RUN": "net"}  # fmt: skip
    done = subprocess.run(
        [*program, "-c", script], env=environ, cwd=home, capture_output=True, timeout=100, check=False
    )
    return done.returncode, (done.stdout + done.stderr).replace(bytes(folder), b"M")


def emptied(net: networks.Network, local: Path) -> Path:
    """Both folders without files; returns the log of the runs."""
    for folder in (local, net.srv):
        folder.mkdir(exist_ok=True)
        subprocess.run(["find", folder, "-mindepth", "1", "-delete"], check=True)
    return net.folder / "home" / "shell" / "runs" / "net.jsonl"


@pytest.mark.parametrize("script", [BOTH_WAYS, GIT], ids=["files", "git"])
def test_both_sides_see_at_once_what_the_other_wrote(net: networks.Network, tmp_path: Path, script: str) -> None:
    log = emptied(net, tmp_path / "local")
    net.mount()
    expected = outcome(["bash"], script, tmp_path / "local", tmp_path)
    assert outcome([str(LAUNCHER)], script, net.mnt, net.folder / "home") == expected
    assert log.read_text().count('"where": "far"') > 5


def test_the_rate_of_a_mount_is_measured(net: networks.Network, tmp_path: Path) -> None:
    emptied(net, tmp_path / "local")
    net.mount()
    home, bytes_per_s = net.folder / "home", 1e6 / 8 * networks.MBIT_PER_S
    (net.srv / "large").write_bytes(b"line of text\n" * 500_000)
    assert outcome([str(LAUNCHER)], "grep -c text $M/large", net.mnt, home) == (0, b"500000\n")
    until, site = time.monotonic() + 60, dict[str, Any]()
    while not site.get("mount_bytes_per_s"):
        assert time.monotonic() < until, site
        told = ask(home, do="status")
        assert told is not None
        site = told["sites"][0]
    assert site["mount_bytes_per_s"] < 1.2 * bytes_per_s, "it comes over the link, and not from what the kernel keeps"
    detail = next(one.detail for one in doctor.examine(home) if one.name == "site far")
    assert detail.endswith("a second through the mount")


@pytest.mark.parametrize("script", [BOTH_WAYS, GIT], ids=["files", "git"])
def test_nfs_shows_what_was_written_on_either_side(net: networks.Network, tmp_path: Path, script: str) -> None:
    if why := networks.lacking_nfs():
        pytest.skip(f"no NFS in user space: {why}")
    log = emptied(net, tmp_path / "local")
    with net.mount_nfs():
        expected = outcome(["bash"], script, tmp_path / "local", tmp_path)
        assert outcome([str(LAUNCHER)], script, net.mnt, net.folder / "home") == expected
    assert log.read_text().count('"where": "far"') > 5


def test_rclone_shows_what_was_written_on_either_side(net: networks.Network, tmp_path: Path) -> None:
    if shutil.which("rclone") is None:
        pytest.skip("rclone is not installed")
    log = emptied(net, tmp_path / "local")
    with net.mount_rclone():
        expected = outcome(["bash"], PLAIN, tmp_path / "local", tmp_path)
        assert outcome([str(LAUNCHER)], PLAIN, net.mnt, net.folder / "home") == expected
    assert log.read_text().count('"where": "far"') > 5
