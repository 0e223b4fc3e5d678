"""Connections that break and processes that are killed: nothing hangs, nothing half-done passes for success, and
nothing is left behind."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from shoal.shell.agent.client import ask
from shoal.shell.agent.neighbours import parent_of
from shoal.shell.table import LAUNCHER
from tests.shell.conftest import FILES, World, make_world

BIG = {**FILES, "big": b"".join(b"line %d of a large file\n" % number for number in range(200_000))}


def wait_until(done: Callable[[], bool], limit_s: float = 20.0) -> None:
    until = time.monotonic() + limit_s
    while not done():
        assert time.monotonic() < until, "it did not come to that"
        time.sleep(0.02)


def processes(mark: str) -> list[int]:
    """Processes whose command line holds the mark."""
    found = []
    for one in Path("/proc").iterdir():
        try:
            if one.name.isdigit() and mark.encode() in (one / "cmdline").read_bytes():
                found.append(int(one.name))
        except OSError:
            continue
    return [one for one in found if one != os.getpid()]


def start(world: World, script: str) -> subprocess.Popen[bytes]:
    environ = {
        "PATH": os.environ["PATH"], "HOME": str(world.base), "LC_ALL": "C.UTF-8", "M": str(world.mnt),
        "SHOAL_HOME": str(world.home), "SHOAL_SHELL_RUN": "test",
    }  # fmt: skip
    return subprocess.Popen([LAUNCHER, "-c", script], cwd=world.work, env=environ, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, start_new_session=True)  # fmt: skip


@pytest.mark.parametrize(
    "at", [1, 20_000, *(pytest.param(one, marks=pytest.mark.slow) for one in (0, 100, 4000, 10**5, 10**6))]
)
def test_a_link_that_ends_at_some_byte(own_world: World, at: int) -> None:
    """The output is whole with status 0, or the command failed with 255 and said so. What was not begun runs here."""
    own_world.begin(SHOAL_TEST_CUT_AT=str(at))
    own_world.fill(BIG)
    whole = own_world.plain("cat $M/big")
    for _ in range(3):
        found = own_world.shoal("cat $M/big")
        if found.status == 0:
            assert found.stdout == whole.stdout
            assert found.stderr == b""
        else:
            assert found.status == 255
            assert whole.stdout.startswith(found.stdout)
            assert found.stderr.count(b"\n") == 1
            assert b"shoal: cat:" in found.stderr


@pytest.mark.slow
@pytest.mark.parametrize("stall", ["400000", "400000:60"], ids=["for ever", "for a minute"])
def test_a_link_that_stands_still(own_world: World, stall: str) -> None:
    own_world.begin(SHOAL_TEST_STALL_AT=stall)
    own_world.fill(BIG)
    found = own_world.shoal("cat $M/big | grep -c line; echo ${PIPESTATUS[*]}")
    again = own_world.plain("cat $M/big | grep -c line; echo ${PIPESTATUS[*]}")
    assert found.stdout in (again.stdout, b"255 255\n"), found
    cut = own_world.shoal("cat $M/big; echo status $? >&2")
    assert cut.stdout == BIG["big"] or b"status 255" in cut.stderr


@pytest.mark.slow
def test_a_link_that_stands_still_for_a_second(own_world: World) -> None:
    own_world.begin(SHOAL_TEST_STALL_AT="400000:1")
    own_world.fill(BIG)
    found = own_world.shoal("cat $M/big; grep -c line $M/big; echo ${PIPESTATUS[*]}")
    assert found.stdout == BIG["big"] + b"200000\n0\n"
    assert [one["status"] for one in own_world.entries()] == [0, 0]


@pytest.mark.slow
def test_a_slow_reader_costs_no_memory(own_world: World) -> None:
    """200 MB of one line without an end."""
    own_world.begin()
    own_world.fill({"small": b"x"})
    subprocess.run(["truncate", "-s", "200M", own_world.base / "srv" / "zeros"], check=True)
    agent = ask(own_world.home, do="status")["pid"]  # type: ignore[index]
    before = {pid: peak_mib(pid) for pid in (agent, *children_of_agent(own_world))}
    assert own_world.shoal("cat $M/zeros | (sleep 1; wc -c)").stdout == b"209715200\n"
    assert "store" in [one["where"] for one in own_world.entries()]
    assert all(peak_mib(pid) - peak < 64 for pid, peak in before.items())


def peak_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(one.split()[1]) / 1024 for one in lines if one.startswith("VmHWM"))


@pytest.mark.slow
def test_a_full_disk_over_there(tmp_path: Path) -> None:
    """The message and the status are those of the command."""
    (tmp_path / "srv").mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=400k", "full", tmp_path / "srv"]
    if subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip("a small disk cannot be mounted here")
    try:
        for world in make_world(tmp_path):
            world.begin()
            script = "seq 20000 > list; for i in 1 2 3 4 5 6 7 8; do cat list list > $M/f$i; done; echo $?; sort list list list -o $M/new; echo $?; cp $M/f1 $M/g"  # noqa: E501
            world.same(script, files={"one": b"x"})
            assert any(one["where"] == "store" for one in world.entries())
    finally:
        subprocess.run(["umount", "--lazy", tmp_path / "srv"], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_links_cut_at_random_while_pipelines_run(own_world: World, seed: int) -> None:
    random_ = random.Random(seed)
    own_world.begin(SHOAL_TEST_CUT_AT=str(random_.randrange(5_000, 60_000)), SHOAL_TEST_DELAY_MS="2")
    own_world.fill(BIG)
    script = "for i in 1 2 3 4; do grep 'line .*7' $M/big | sort -r | tail -20; echo ${PIPESTATUS[*]}; done"
    expected = own_world.plain(script).stdout.split(b"0 0 0\n")[0]
    found = own_world.shoal(script)
    for part in found.stdout.replace(b"0 0 0\n", b"|").replace(b"255 255 255\n", b"!").split(b"|"):
        text = part.rpartition(b"!")[2]
        assert text in (expected, b"") or expected.startswith(text)


def test_a_proxy_that_is_killed(own_world: World) -> None:
    own_world.begin()
    own_world.fill(BIG)
    shell = start(own_world, "sort $M/big $M/big $M/big $M/big | tail -1; echo ${PIPESTATUS[*]}")
    wait_until(lambda: bool(ask(own_world.home, do="status")["sites"][0]["running"]))  # type: ignore[index]
    for pid in children_of_agent(own_world):
        os.kill(pid, signal.SIGKILL)
    out, _ = shell.communicate(timeout=30)
    assert out in (b"line 99999 of a large file\n0 0\n", b"255 255\n"), out
    own_world.same("grep -c alpha $M/a.txt")


def children_of_agent(world: World) -> list[int]:
    status = ask(world.home, do="status")
    assert status is not None
    return [one for one in processes("") if parent_of(one) == status["pid"]]


def test_an_agent_that_is_killed(own_world: World) -> None:
    own_world.begin()
    own_world.fill(BIG)
    status = ask(own_world.home, do="status")
    assert status is not None
    shell = start(
        own_world, "sort $M/big $M/big $M/big $M/big | tail -1; echo ${PIPESTATUS[*]}; grep -c alpha $M/a.txt"
    )
    wait_until(lambda: bool(ask(own_world.home, do="status")["sites"][0]["running"]))  # type: ignore[index]
    os.kill(status["pid"], signal.SIGKILL)
    out, _ = shell.communicate(timeout=30)
    assert out in (b"line 99999 of a large file\n0 0\n3000\n", b"255 255\n3000\n"), out
    wait_until(lambda: not processes(f"{own_world.mnt}/big"))


@pytest.mark.slow
def test_a_stage_that_is_killed_ends_its_command(own_world: World) -> None:
    own_world.begin()
    own_world.fill(BIG)
    shell = start(own_world, "sort -r $M/big $M/big $M/big $M/big $M/big $M/big | sleep 30")
    wait_until(lambda: bool(ask(own_world.home, do="status")["sites"][0]["running"]))  # type: ignore[index]
    os.killpg(shell.pid, signal.SIGKILL)
    shell.communicate()
    wait_until(lambda: ask(own_world.home, do="status")["sites"][0]["running"] == 0, 10)  # type: ignore[index]


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
def test_a_signal_to_the_pipeline_ends_it_on_both_sides(own_world: World, number: int) -> None:
    own_world.begin()
    own_world.fill(BIG)
    shell = start(own_world, "trap 'echo told' INT TERM; sort -r $M/big $M/big $M/big $M/big > out; echo $?")
    wait_until(lambda: bool(ask(own_world.home, do="status")["sites"][0]["running"]))  # type: ignore[index]
    os.killpg(shell.pid, number)
    out, _ = shell.communicate(timeout=30)
    assert out.splitlines()[-1] in (b"%d" % (128 + number), b"0")
    wait_until(lambda: ask(own_world.home, do="status")["sites"][0]["running"] == 0, 10)  # type: ignore[index]


@pytest.mark.slow
@pytest.mark.parametrize(
    "says",
    ["echo garbage; cat", "printf '\\nSHOAL-PROXY-1\\n'; head -c 100000 /dev/urandom", "exit 1", "yes", pytest.param("exec sleep 60", marks=pytest.mark.slow),  # noqa: E501
     "printf '\\nSHOAL-PROXY-1\\n\\0\\0\\0\\0\\1\\377\\377\\377\\377'; cat"],
)  # fmt: skip
def test_a_site_that_answers_garbage_costs_nothing_but_time(own_world: World, says: str) -> None:
    from shoal.shell.sites import Site, Sites

    own_world.fill()
    odd = Site("store", "x", {str(own_world.mnt): str(own_world.base / "srv")}, ("sh", "-c", says))
    Sites.of(own_world.home).add(odd)
    from shoal.shell.agent.client import ensure_running

    ensure_running(own_world.home)
    own_world.same("cat $M/a.txt | grep alpha | tail -1; echo ${PIPESTATUS[*]}", away=0)
