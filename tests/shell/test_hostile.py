"""States that harm: files that change while they are read, sites that are not as this machine or mean harm, signals to
each process. What a shell alone does is the measure."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.shell.agent.client import ask, ensure_running
from shoal.shell.sites import Site, Sites
from tests.shell.conftest import FILES, World
from tests.shell.test_cli import shoal
from tests.shell.test_faults import children_of_agent, parent_of, peak_mib, processes, start, wait_until

ODD = Path(__file__).with_name("odd_site.py")
STATUS = '; echo "status $? ${PIPESTATUS[*]}"'
LARGE = {**FILES, "large": b"".join(b"%07d of a large file\n" % number for number in range(550_000))}
SCRIPTS = {
    "a file that grows while it is read": "cat $M/large | (read -r x; echo more >> $M/large; cat) | tail -1",
    "a consumer that is killed": "cat $M/large | (read -r x; kill -9 $BASHPID)",
    "a consumer that ends early": "cat $M/large | head -1; grep file $M/large | grep -m1 9; cat $M/large | grep -q 7",
    "an endless producer": "yes | head -3; yes | grep -m2 y | sort -m - $M/empty | wc -l",
    "empty arguments": "cat '' $M/a.txt | wc -l; grep '' '' $M/empty; sort -t '' $M/b.txt; cut -d '' -f1 $M/b.txt | wc",
    "tee to a file that a later stage reads": "tee $M/t < $M/b.txt | (cat > rest; wc -l $M/t); sort $M/t | head -2",
    "process substitution on both sides": "paste <(sort $M/a.txt) <(grep 1 $M/b.txt) | md5sum; cat $M/a.txt > >(wc -l)",
    "a here-document beside a file": "cat - $M/dir/c.txt <<EOF | sort\nzeta\nalpha\nEOF",
    "descriptors of its own": "exec 3<$M/b.txt 5>>$M/log; grep -c 1 <&3; sort $M/b.txt >&5; exec 5>&-; wc -l $M/log",
    "traps": "trap 'echo told' USR1; cat $M/a.txt | wc -l; kill -USR1 $$; trap 'echo end' EXIT; wc $M/b.txt",
    "set -e within a function": "set -e; f() { grep -q no $M/a.txt; echo 1; }; f || echo 2; grep -q x $M/b.txt; echo 3",
    "set -u and pipefail": "set -uo pipefail; grep nosuch $M/a.txt | wc -l; echo $?; cat $M/no $M/a.txt | tail -1",
    "limits": "(ulimit -t 5 -v 4000000; sort $M/a.txt | tail -1); (ulimit -n 20; wc -l $M/a.txt; ulimit -n)",
    "background jobs and wait": "sort $M/a.txt > s & sort $M/b.txt > t & wait; wc s t; grep x $M/b.txt & wait $!",
    "the status of a signal": "(cat $M/large | sleep 9) & sleep 0.1; kill $(jobs -p); wait $!; echo $?; ls $M/empty",
    "a command that is none": "nosuch $M/a.txt; /nosuch/grep a $M/a.txt; $M/a.txt; $M/dir",
    "a folder that goes away": "mkdir $M/gone; cd $M/gone; rmdir $M/gone; cat ../a.txt | wc -l; wc -l $M/a.txt; pwd",
    "two names of one file": "ln $M/a.txt $M/again; sort $M/again -o $M/a.txt; head -1 $M/again $M/a.txt; wc $M/again",
    "links in its folder": "ln -s dir $M/link; cd $M/link; cat c.txt; pwd; wc -l < ../a.txt; cd ../link/sub; cat d.txt",
    "names that look like options": "cd $M; echo y > ./-n; cat -- -n -dash; sort ./-n; grep -c alpha -- -dash; nl < -n",
    "a name that is not UTF-8, in errors": "cat $M/$'nosuch\\xff'; grep -c x $M/$'\\xfe\\xff' $M/a.txt; cd $M/$'\\xff'",
    "a socket and a device": "wc /dev/null $M/a.txt; python3 -c \"import socket; socket.socket(1).bind('s')\"; cat s",
    "find that deletes, sed that runs": "find $M -name 'b.*' -delete; sed '1e id -u' $M/no-newline; ls $M | wc -l",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_it_leaves_what_bash_leaves(world: World, name: str) -> None:
    script = SCRIPTS[name] + STATUS
    world.same(script, files=LARGE if "$M/large" in script else None)


@pytest.mark.slow
def test_a_file_that_is_truncated_while_it_is_read(world: World) -> None:
    """How much of it was read by then is chance, in bash as well: it is a beginning of the file, and no error."""
    world.fill(LARGE)
    found = world.shoal("cat $M/large | (read -r x; echo $x; : > $M/large; cat); echo ${PIPESTATUS[*]} >&2")
    assert found.stderr == b"0 0\n"
    assert LARGE["large"].startswith(found.stdout)


@pytest.mark.slow
def test_a_line_of_a_gigabyte(world: World) -> None:
    world.fill({"small": b"x"})
    line = world.base / "srv" / "line"
    subprocess.run(["truncate", "-s", "1G", line], check=True)
    script = "wc -lc $M/line; cut -b 1-3 $M/line | od -c; cat $M/line | tail -c 2 | wc -c; wc -c < $M/line"
    try:
        expected, found = world.plain(script), world.shoal(script)
    finally:
        line.unlink()
    assert (found.status, found.stdout, found.stderr) == (expected.status, expected.stdout, expected.stderr)


def begin(world: World, kind: str) -> dict[str, object]:
    mounts = {str(world.mnt): str(world.base / "srv")}
    Sites.of(world.home).add(Site("store", "x", mounts, (sys.executable, str(ODD), kind)))
    ensure_running(world.home)
    told = ask(world.home, do="connect", site="store")
    assert told is not None
    assert told["ready"], told
    return told


def test_a_site_with_other_programs_and_another_c_library(own_world: World) -> None:
    begin(own_world, "other")
    entries = own_world.same("grep 'alpha 7' $M/a.txt | wc -l; cat $M/b.txt | wc -c", LC_ALL="C")
    by_name = {str(one["command"]).split()[0]: one for one in entries}
    assert by_name["grep"]["where"] == "here"
    assert "has another" in str(by_name["grep"]["why"])
    assert [one["where"] for one in entries if one["pipeline"] == entries[-1]["pipeline"]] == ["store", "store"]
    own_world.same("sort $M/a.txt | tail -1", away=0)
    shown = shoal(own_world, "doctor", "--json")
    assert "/grep" in shown


@pytest.mark.slow
def test_a_site_that_sends_more_than_it_was_asked_for_is_left(own_world: World) -> None:
    begin(own_world, "floods")
    own_world.fill()
    subprocess.run(["truncate", "-s", "500M", own_world.base / "srv" / "zeros"], check=True)
    agent = ask(own_world.home, do="status")["pid"]  # type: ignore[index]
    before = peak_mib(agent)
    found = own_world.shoal("cat $M/zeros | (sleep 3; wc -c); echo ${PIPESTATUS[*]}")
    assert found.stdout.splitlines()[-1] in (b"255 0", b"0 0")
    assert found.stdout.splitlines()[-1] == b"255 0" or found.stdout.startswith(b"524288000\n")
    assert b"sends more than it was asked for" in found.stderr or not found.stderr
    assert peak_mib(agent) - before < 64
    own_world.same("grep -c alpha $M/a.txt; sort $M/b.txt | tail -1")


@pytest.mark.slow
def test_a_site_that_answers_in_small_pieces(own_world: World) -> None:
    begin(own_world, "slow")
    own_world.same(
        "cat $M/a.txt | grep 'alpha 7' | sort | tail -5; cat $M/binary | md5sum; wc $M/a.txt" + STATUS, away=7
    )


VICTIMS = ("all of the shell", "the shell", "a stage", "the agent", "the proxy", "what runs commands", "ssh")
SLOW = "import sys, time\nwhile sys.stdin.buffer.read(1 << 20): time.sleep(0.05)"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=["INT", "TERM", "KILL"])
@pytest.mark.parametrize("victim", VICTIMS)
def test_nothing_is_left_after_a_signal(own_world: World, victim: str, number: signal.Signals) -> None:
    """On neither side, 5 s later; and a command that did not end did not succeed."""
    own_world.begin(SHOAL_TEST_DELAY_MS="1")
    own_world.fill()
    subprocess.run(["truncate", "-s", "1G", own_world.base / "srv" / "huge"], check=True)
    mark = f"{own_world.mnt}/huge"
    shell = start(own_world, f"cat $M/huge | python3 -c '{SLOW}'; echo status ${{PIPESTATUS[*]}}")
    wait_until(lambda: bool(ask(own_world.home, do="status")["sites"][0]["running"]))  # type: ignore[index]
    wait_until(lambda: len(processes(mark)) >= 2)
    ssh = children_of_agent(own_world)[0]
    over_there = [pid for pid in descendants(ssh) if "sh" not in Path(f"/proc/{pid}/comm").read_text()]
    chosen = {
        "the shell": shell.pid, "a stage": next(pid for pid in processes(mark) if parent_of(pid) == shell.pid),
        "the agent": parent_of(ssh), "the proxy": over_there[0], "what runs commands": over_there[1], "ssh": ssh,
    }.get(victim)  # fmt: skip
    if chosen is None:
        os.killpg(shell.pid, number)
    else:
        os.kill(chosen, number)
    if victim == "the shell":  # its commands outlive it, as they outlive bash
        os.killpg(shell.pid, signal.SIGKILL)
    wait_until(lambda: not processes(mark), 5)
    out, _ = shell.communicate(timeout=30)
    assert b"status 0" not in out


def descendants(pid: int) -> list[int]:
    own = [int(one.name) for one in Path("/proc").iterdir() if one.name.isdigit() and parent_of(int(one.name)) == pid]
    return [one for child in own for one in (child, *descendants(child))]
