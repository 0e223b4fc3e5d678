"""Guaranteed programs pass between slices of best-effort ones; these share what is left; killed ones hold up nobody."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from shoal.device.policy import Class, Verdict
from tests.device.opencl.kit import ONE_AT_A_TIME, Line, Shared, hear, say, until

BUSY = Verdict.WAIT_BUSY - Verdict.WAIT_BUSY
"""Its place in `waited_ns`."""


def of(trace: list[Line], program: subprocess.Popen[str], what: str, kernel: str = "burn") -> list[int]:
    """Where in the trace."""
    return [
        place
        for place, line in enumerate(trace)
        if line.pid == program.pid and line.what == what and line.kernel == kernel
    ]


def between(places: list[int], first: int, last: int) -> int:
    return sum(first < place < last for place in places)


def ready(*programs: subprocess.Popen[str]) -> None:
    for program in programs:
        assert hear(program) == "ready"


def test_guaranteed_kernels_run_between_slices(shared: Shared) -> None:
    shared.page.set_rules(ONE_AT_A_TIME)
    batch = shared.start("long.py", "1", "300", slice_blocks="4")
    service = shared.start("long.py", "3", "60", cls="guaranteed")
    ready(batch, service)
    slot = shared.slot(batch)
    say(batch)
    until(lambda: slot.pieces >= 4)  # so that three have ended
    assert slot.waited_ns[BUSY] == 0
    say(service)
    assert hear(service) == "ran 3 3"
    assert hear(batch) == "ran 1 1"
    until(lambda: len(of(shared.trace(), batch, "ended")) == 75)

    trace = shared.trace()
    slices, ends = of(trace, batch, "begins"), of(trace, batch, "ended")
    assert [trace[place].first for place in slices] == list(range(0, 300, 4))
    began, ended = of(trace, service, "begins"), of(trace, service, "ended")
    assert len(began) == len(ended) == 3
    # The kernel of the batch was not done when the service's began, and went on only after they had ended. A slice that
    # was let through a moment before the service launched may be told of a moment after.
    assert 3 <= between(ends, -1, began[0]) < 75
    assert all(between(slices, first, last) <= 1 for first, last in zip(began, ended, strict=True))
    assert between(slices, ended[-1], len(trace)) > 0
    assert slot.waited_ns[BUSY] > 0
    assert slot.violations == slot.pieces == 75  # each is longer than the bound of a nanosecond
    assert shared.slot(service).launches == 4  # and the read at its end


def test_whole_kernels_wait_as_well_but_are_not_interrupted(shared: Shared) -> None:
    shared.page.set_rules(ONE_AT_A_TIME)
    batch = shared.start("long.py", "3", "60", ways="whole")
    service = shared.start("long.py", "2", "60", cls="guaranteed")
    ready(batch, service)
    slot = shared.slot(batch)
    say(batch)
    until(lambda: slot.pieces >= 1)
    say(service)
    assert (hear(service), hear(batch)) == ("ran 2 2", "ran 3 3")
    trace = shared.trace()
    began, ended = of(trace, service, "begins"), of(trace, service, "ended")
    assert all(between(of(trace, batch, "begins"), first, last) <= 1 for first, last in zip(began, ended, strict=True))
    assert slot.pieces == 3


def test_a_killed_service_holds_up_nobody(shared: Shared) -> None:
    shared.page.set_rules(ONE_AT_A_TIME)
    batch = shared.start("long.py", "1", "40", slice_blocks="4")
    service = shared.start("long.py", "100", "100", cls="guaranteed")
    ready(batch, service)
    say(service)
    place = shared.slot(service)
    until(lambda: place.lane[0].submitted != place.lane[0].done)
    say(batch)
    slot = shared.slot(batch)
    until(lambda: bool(slot.waiting))
    assert slot.pieces == 0
    os.kill(service.pid, signal.SIGKILL)
    service.wait()
    assert hear(batch) == "ran 1 1"
    assert slot.pieces == 10


def test_a_killed_batch_leaves_its_place_and_its_turn(shared: Shared) -> None:
    shared.page.set_rules(ONE_AT_A_TIME)
    first = shared.start("long.py", "1000", "40", slice_blocks="4")
    second = shared.start("long.py", "1", "40", slice_blocks="4")
    ready(first, second)
    say(first)
    slot = shared.slot(first)
    until(lambda: slot.pieces >= 3)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    say(second)
    assert hear(second) == "ran 1 1"
    assert shared.page.reap() == 1
    assert [one.pid for one in shared.page.occupants()] == [second.pid]


def test_best_effort_programs_share_by_weight(shared: Shared) -> None:
    shared.page.set_rules(ONE_AT_A_TIME)
    light = shared.start("long.py", "1000", "40", slice_blocks="4")
    heavy = shared.start("long.py", "1000", "40", slice_blocks="4", weight="4")
    ready(light, heavy)
    slots = shared.slot(light), shared.slot(heavy)
    say(light)
    say(heavy)
    until(lambda: all(slot.pieces > 0 for slot in slots))
    before = [slot.pieces for slot in slots]
    until(lambda: sum(slot.pieces for slot in slots) >= sum(before) + 150)
    had = [slot.pieces - one for slot, one in zip(slots, before, strict=True)]
    # 30 and 120 of 150, had every slice taken the same time.
    assert 1.5 < had[1] / had[0] < 10
    assert {one.cls for one in shared.page.occupants()} == {Class.BEST_EFFORT}
    trace = shared.trace()
    outstanding = 0
    for line in trace:
        if line.kernel == "burn":
            outstanding += {"begins": 1, "ended": -1}[line.what]
            assert outstanding <= 1


@pytest.mark.parametrize("cls", ["guaranteed", "best-effort"])
def test_without_a_page_programs_run_as_they_are(shared: Shared, cls: str) -> None:
    program = shared.start("long.py", "2", "8", cls=cls, page=str(shared.folder / "none"), slice_blocks="4")
    ready(program)
    say(program)
    assert hear(program) == "ran 2 2"
    assert shared.trace() == []
    assert "launches are not gated" in (shared.folder / "log").read_text()
