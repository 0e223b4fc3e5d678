"""The agent in a job, without a server: who attaches, leaves, floods, lies, or never reads."""

from __future__ import annotations

import contextlib
import os
import signal
import struct
from pathlib import Path

import pytest

from shoal.session import frames
from tests.session.talk import Ahead, Speaker, agent, eventually, memory_kib, readable


def test_a_terminal_has_a_size_signals_and_an_exit_code(tmp_path: Path) -> None:
    script = 'stty size; trap "echo caught" INT; echo ready; read line || read line; echo got $line; stty size; exit 7'
    with agent(tmp_path, "sh", "-c", script, pty=1) as process:
        one = Speaker(tmp_path)
        one.until(b"ready")
        assert b"30 100" in one.output
        one.type(b"\x03")
        one.until(b"caught")
        one.say(frames.SIZE, struct.pack(">HH", 50, 132))
        one.type(b"word\r")
        assert one.ended() == {"code": "7"}
        assert b"got word" in one.output
        assert b"50 132" in one.output
        assert process.wait(60) == 7


def test_pipes_stay_apart_and_end(tmp_path: Path) -> None:
    with agent(tmp_path, "sh", "-c", "cat; echo bad >&2; kill -KILL $$") as process:
        one = Speaker(tmp_path)
        assert one.welcome["pty"] == "0"
        one.type(b"x" * 60_000)
        one.say(frames.END)
        assert one.ended() == {"signal": "9"}
        assert one.output == b"x" * 60_000
        assert one.errors == b"bad\n"
        assert process.wait(60) == -signal.SIGKILL


def test_a_command_that_is_not_there_ends_as_in_a_shell(tmp_path: Path) -> None:
    with agent(tmp_path, "no-such-program"):
        one = Speaker(tmp_path)
        assert one.ended() == {"code": "127"}
        assert b"not found" in one.errors


def test_who_comes_back_gets_what_was_missed_and_types_nothing_twice(tmp_path: Path) -> None:
    with agent(tmp_path, "cat", pty=1, main=1):
        one = Speaker(tmp_path)
        one.type(b"first\r")
        one.until(b"first\r\nfirst\r\n")
        at = one.offset
        one.type(b"second\r")  # it leaves without a look at the answer
        assert struct.unpack(">Q", one.next(frames.TAKEN))[0] in (6, 13)
        one.close()
        two = Speaker(tmp_path, offset=at)
        assert two.welcome["missed"] == "0"
        assert two.welcome["taken"] == "13"
        two.until(b"second\r\nsecond\r\n")
        assert b"first" not in two.output


def test_two_see_the_same_and_both_may_type(tmp_path: Path) -> None:
    with agent(tmp_path, "cat", pty=1, main=1):
        one, two = Speaker(tmp_path, name="one"), Speaker(tmp_path, name="two")
        two.type(b"hello\r")
        one.until(b"hello\r\nhello\r\n")
        two.until(b"hello\r\nhello\r\n")
        one.type(b"there\r")
        two.until(b"there\r\nthere\r\n")


def test_a_detached_terminal_goes_on_and_keeps_the_end_of_its_output(tmp_path: Path) -> None:
    script = f"head -c {3 * frames.KEPT} /dev/zero | tr '\\0' z; echo; echo the-end; sleep 600"
    with agent(tmp_path, "sh", "-c", script, pty=1, main=1):
        eventually(lambda: b"the-end" in (tmp_path / "log").read_bytes()[-100:])
        one = Speaker(tmp_path)
        assert int(one.welcome["missed"]) > frames.KEPT
        one.until(b"the-end")
        assert len(one.output) <= frames.KEPT + frames.MOST


def test_a_gigabyte_for_one_who_reads_nothing_stays_outside(tmp_path: Path) -> None:
    with agent(tmp_path, "sleep", "600") as process:
        one = Speaker(tmp_path)
        before = memory_kib(process.pid)
        one.socket.setblocking(False)
        sent, piece = 0, frames.frame(frames.INPUT, b"x" * frames.MOST)
        with contextlib.suppress(BlockingIOError):
            while sent < 1 << 30:
                sent += one.socket.send(piece[sent % len(piece) :])
        assert sent < 4 << 20
        assert memory_kib(process.pid) - before < 4096


def test_one_who_never_reads_holds_the_command_up_and_nothing_grows(tmp_path: Path) -> None:
    with agent(tmp_path, "cat", "/dev/zero") as process:
        one = Speaker(tmp_path, hello=False)
        one.say(frames.HELLO, frames.write_fields(client="a"))
        eventually(lambda: readable(one.socket, 0.0))
        before = None
        for _ in range(3):
            two = Speaker(tmp_path, name="b")  # it is answered all the same
            two.close()
            now = memory_kib(process.pid)
            assert before is None or now - before < 4096
            before = now
        assert before is not None
        assert before < 64 * 1024


def test_a_flood_of_sizes_is_obeyed_and_the_rest_still_works(tmp_path: Path) -> None:
    with agent(tmp_path, "sh", "-c", "read line; stty size", pty=1):
        one = Speaker(tmp_path)
        for number in range(20_000):
            one.say(frames.SIZE, struct.pack(">HH", number % 200 + 1, 7))
        one.say(frames.SIZE, struct.pack(">HH", 61, 7))
        one.type(b"\r")
        assert one.ended() == {"code": "0"}
        assert b"61 7" in one.output


@pytest.mark.parametrize(
    "said",
    [
        b"\xff" * 64, frames.frame(frames.INPUT, b"before a greeting"), frames.frame(frames.HELLO, b"\xff\n=\n") * 2,
        frames.frame(frames.HELLO) + frames.frame(frames.SIZE, b"1"), frames.frame(frames.HELLO) + b"I\xff\xff\xff\xff",
        frames.frame(frames.HELLO) + frames.frame(frames.SIGNAL, b""),
    ],
)  # fmt: skip
def test_one_who_lies_is_thrown_out_and_nobody_else(tmp_path: Path, said: bytes) -> None:
    with agent(tmp_path, "cat", pty=1, main=1):
        good, bad = Speaker(tmp_path, name="good"), Speaker(tmp_path, hello=False)
        bad.socket.sendall(said)
        while bad.socket.recv(1 << 16):
            pass
        good.type(b"still\r")
        good.until(b"still\r\nstill\r\n")


def test_acknowledging_what_was_never_sent_opens_no_window(tmp_path: Path) -> None:
    with agent(tmp_path, "cat", "/dev/zero"):
        one = Speaker(tmp_path, hello=False)
        one.say(frames.HELLO, frames.write_fields(client="a"))
        one.say(frames.ACK, struct.pack(">Q", 1 << 60))
        got = 0
        while readable(one.socket, 1.0):
            got += len(one.socket.recv(1 << 16))
        assert got <= frames.WINDOW + 3 * frames.MOST


def test_an_idle_session_warns_and_ends(tmp_path: Path) -> None:
    with agent(tmp_path, "sleep", "600", pty=1, main=1, idle=2) as process:
        one = Speaker(tmp_path)
        assert b"ends in" in one.next(frames.NOTE)
        assert b"its limit" in one.next(frames.NOTE)
        assert one.ended() == {"signal": str(int(signal.SIGHUP))}
        assert process.wait(60) == -signal.SIGHUP


def test_a_command_whose_client_has_gone_is_hung_up(tmp_path: Path) -> None:
    with agent(tmp_path, "sleep", "600", linger=1) as process:
        one = Speaker(tmp_path)
        one.close()
        assert process.wait(60) == -signal.SIGHUP


def vanish(folder: Path, one: Speaker) -> None:
    """The agent knows that it has no client any more."""
    one.close()
    eventually(lambda: state(folder)["clients"] == "0")


def state(folder: Path) -> dict[str, str]:
    asks = Speaker(folder, hello=False)
    asks.say(frames.ASK, frames.write_fields())
    said = frames.read_fields(asks.next(frames.STATE))
    asks.close()
    return said


def test_a_client_that_vanishes_for_an_hour_finds_the_jobs_terminal_as_it_is_by_then(tmp_path: Path) -> None:
    later = Ahead(tmp_path)
    with agent(tmp_path, "cat", pty=1, main=1, linger=300, idle=8 * 3600, script=later.script) as process:
        one = Speaker(tmp_path)
        one.type(b"before\r")
        one.until(b"before\r\nbefore\r\n")
        vanish(tmp_path, one)
        later.pass_s(3600)
        two = Speaker(tmp_path, offset=one.offset)
        two.type(b"after\r")
        two.until(b"after\r\nafter\r\n")
        assert b"before" not in two.output
        two.close()
        later.pass_s(8 * 3600)  # the idle limit
        assert process.wait(60) == -signal.SIGHUP


def test_a_command_waits_for_its_client_as_long_as_it_lingers_and_no_hour(tmp_path: Path) -> None:
    later = Ahead(tmp_path)
    with agent(tmp_path, "cat", linger=300, script=later.script) as process:
        one = Speaker(tmp_path)
        one.type(b"first\n")
        one.until(b"first\n")
        vanish(tmp_path, one)
        later.pass_s(290)
        two = Speaker(tmp_path, offset=one.offset)
        two.type(b"second\n")
        two.until(b"second\n")
        vanish(tmp_path, two)
        later.pass_s(3600)
        eventually(lambda: state(tmp_path)["over"] == "1")
        later.pass_s(301)  # it keeps the end for its client as long
        assert process.wait(60) == -signal.SIGHUP


def test_one_who_detaches_leaves_the_command_running(tmp_path: Path) -> None:
    with agent(tmp_path, "cat", pty=1, linger=1):
        one = Speaker(tmp_path)
        one.say(frames.DETACH)
        assert one.step() is None or one.socket.recv(1 << 16) is not None
        one.close()
        os.sched_yield()
        two = Speaker(tmp_path, name="two")
        two.type(b"here\r")
        two.until(b"here\r\nhere\r\n")


def test_a_stop_of_the_job_reaches_the_command(tmp_path: Path) -> None:
    with agent(
        tmp_path, "sh", "-c", 'trap "echo bye; exit 4" TERM HUP; echo up; sleep 600 & wait', pty=1, main=1
    ) as process:
        one = Speaker(tmp_path)
        one.until(b"up")
        process.terminate()
        assert one.ended() == {"code": "4"}
        assert b"bye" in one.output
        assert process.wait(60) == 4
