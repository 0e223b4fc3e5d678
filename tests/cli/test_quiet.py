"""What solvers print past Python does not end up in a command's output."""

from __future__ import annotations

import ctypes
import threading

import pytest

from shoal.base.console.quiet import hushed

C = ctypes.CDLL(None)


def test_what_c_prints_inside_is_dropped(capfd: pytest.CaptureFixture[str]) -> None:
    C.puts(b"before")
    with hushed():
        C.puts(b"chatter")
    C.puts(b"after")
    C.fflush(None)
    found = capfd.readouterr()
    assert found.out == "before\nafter\n"
    assert not found.err


def test_standard_output_comes_back_after_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="broken"), hushed():
        raise ValueError("broken")
    print("result", flush=True)
    assert capfd.readouterr().out == "result\n"


def test_other_threads_leave_the_output_of_the_process_alone(capfd: pytest.CaptureFixture[str]) -> None:
    def solve() -> None:
        with hushed():
            C.puts(b"thread")
            C.fflush(None)

    thread = threading.Thread(target=solve)
    thread.start()
    thread.join()
    assert capfd.readouterr().out == "thread\n"
