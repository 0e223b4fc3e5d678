"""How loops take errors, and what they leave in the log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from structlog.testing import CapturingLogger

from shoal.base.loops import Turns
from shoal.core import LeaseLost, Unavailable


class Crash(BaseException):
    """A simulated crash."""


@pytest.fixture
def log() -> CapturingLogger:
    return CapturingLogger()


def turns(log: CapturingLogger, on_fatal: Callable[[BaseException], None] = lambda _: None) -> Turns:
    return Turns(log, "work held up", on_fatal)


def run(guarded: Turns, error: BaseException | None) -> tuple[bool, bool]:
    with guarded.turn(job="j") as turn:
        if error is not None:
            raise error
    return turn.held_up, turn.over


def test_a_lasting_defect_leaves_one_traceback_and_then_single_lines(log: CapturingLogger) -> None:
    guarded = turns(log)
    first, other = ValueError("odd"), ValueError("odder")
    for error in (first, ValueError("odd"), KeyError("odd"), other, ValueError("odd")):
        assert run(guarded, error) == (True, False)
    assert [call.method_name for call in log.calls] == ["error", "warning", "error", "error", "warning"]
    assert {call.args for call in log.calls} == {("work held up by a defect",)}
    assert log.calls[0].kwargs == {"error": "ValueError", "exc_info": first, "job": "j"}
    assert log.calls[1].kwargs == {"error": "ValueError", "text": "odd", "again": True, "job": "j"}


def test_the_memory_of_defects_is_bounded(log: CapturingLogger) -> None:
    guarded = turns(log)
    for number in range(1000):
        run(guarded, ValueError(str(number)))
    run(guarded, ValueError("0"))
    assert log.calls[-1].method_name == "error"


def test_an_expected_error_is_a_warning_and_the_loop_goes_on(log: CapturingLogger) -> None:
    assert run(turns(log), Unavailable("the disk is full")) == (True, False)
    assert run(turns(log), None) == (False, False)
    [call] = log.calls
    assert (call.method_name, call.args) == ("warning", ("work held up",))


@pytest.mark.parametrize("error", [LeaseLost("gone"), Crash()])
def test_a_lost_lease_and_a_crash_end_the_loop(log: CapturingLogger, error: BaseException) -> None:
    told: list[BaseException] = []
    assert run(turns(log, told.append), error) == (False, True)
    assert (told, log.calls) == ([error], [])


def test_cancelling_goes_through(log: CapturingLogger) -> None:
    told: list[BaseException] = []
    with pytest.raises(asyncio.CancelledError):
        run(turns(log, told.append), asyncio.CancelledError())
    assert (told, log.calls) == ([], [])
