"""For how long a process looks before it sleeps: the rule, and the event loop that is kept awake by it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import pytest

from shoal.serve.gateway.vigil import Vigil
from shoal.serve.polling import (
    DISTURBED_S,
    FIRST_REST_S,
    FIRST_S,
    FORBIDS_POLLING,
    LONGEST_REST_S,
    PAYS,
    HaltPoll,
    granted_cpus,
    worth_polling,
)

LONGEST_S = 0.001


class Machine:
    """A clock, and how long it takes until a process that gave way has its core back."""

    def __init__(self) -> None:
        self.now = 100.0
        self.away_s = 0.000001

    def clock(self) -> float:
        return self.now

    def give_way(self) -> None:
        self.now += self.away_s

    def poll(self) -> HaltPoll:
        return HaltPoll(LONGEST_S, clock=self.clock, give_way=self.give_way)


def test_looks_longer_while_waits_are_short_and_not_at_all_after_a_long_one() -> None:
    poll = Machine().poll()
    windows = []
    for _ in range(8):
        windows.append(poll.window_s)
        poll.waited(0.0003, 100.0)
    assert windows == pytest.approx([0.0, *(FIRST_S * 2**at for at in range(5)), LONGEST_S, LONGEST_S])
    poll.waited(1.1 * LONGEST_S, 100.0)
    assert poll.window_s == 0.0


def rests(machine: Machine, poll: HaltPoll, many: int, short_waits: int) -> list[float]:
    """How long it rests after each of so many disturbances, with so many short waits between them."""
    found = []
    for _ in range(many):
        poll.window_s = LONGEST_S
        machine.away_s = 2 * DISTURBED_S
        began = poll.give_way()
        assert poll.window_s == 0.0
        while poll.window_s == 0.0:
            poll.waited(0.0001, machine.now)
            machine.now += FIRST_REST_S / 10
        found.append(machine.now - began)
        for _ in range(short_waits):
            poll.waited(0.0, machine.now)
    return found


def test_rests_ever_longer_where_somebody_else_computes() -> None:
    machine = Machine()
    found = rests(machine, machine.poll(), 8, 1)
    for rest_s, at in zip(found, range(8), strict=True):
        assert rest_s == pytest.approx(FIRST_REST_S * 2**at, rel=0.3)
    assert FIRST_REST_S * 2**8 < LONGEST_REST_S


def test_a_disturbance_now_and_then_is_soon_forgotten() -> None:
    machine = Machine()
    found = rests(machine, machine.poll(), 8, PAYS + 1)
    assert max(found) < 1.5 * FIRST_REST_S


class Loop:
    """As much of an event loop as is needed; `turn` runs what is in its queue."""

    def __init__(self) -> None:
        self.queue: list[Callable[[], Any]] = []

    def call_soon(self, callback: Callable[[], Any]) -> None:
        self.queue.append(callback)

    def turn(self) -> None:
        queue, self.queue = self.queue, []
        for callback in queue:
            callback()


class Watched:
    """A vigil over traffic with one replica."""

    def __init__(self) -> None:
        self.machine = Machine()
        self.machine.away_s = 0.00001
        self.loop = Loop()
        self.in_flight = 1
        loop: Any = self.loop
        self.vigil = Vigil(loop, lambda: self.in_flight, self.machine.poll(), clock=self.machine.clock)

    def stir(self, after_s: float) -> None:
        """Again so long after; the loop goes on turning meanwhile if it is awake."""
        until = self.machine.now + after_s
        while self.loop.queue and self.machine.now < until:
            self.loop.turn()
        self.machine.now = max(until, self.machine.now)
        self.vigil.stir()

    def turns(self) -> int:
        """So many until the loop sleeps."""
        count = 0
        while self.loop.queue:
            self.loop.turn()
            count += 1
            assert count < 10_000
        return count


def test_the_loop_stays_awake_between_short_executions_and_sleeps_when_nothing_comes() -> None:
    watched = Watched()
    for _ in range(8):
        watched.stir(0.0005)
    assert len(watched.loop.queue) == 1  # it stands there once
    assert watched.turns() == pytest.approx(LONGEST_S / watched.machine.away_s, abs=2)
    assert watched.turns() == 0


def test_the_loop_sleeps_during_long_executions() -> None:
    watched = Watched()
    for _ in range(8):
        watched.stir(0.003)
    assert watched.turns() == 0


def test_the_loop_sleeps_while_there_is_more_to_wait_for() -> None:
    watched = Watched()
    for _ in range(8):
        watched.stir(0.0005)
    watched.in_flight = 2
    watched.stir(0.0001)
    assert watched.turns() <= 1
    watched.stir(0.0001)
    assert watched.turns() == 0


def test_without_a_core_to_spare_nothing_looks() -> None:
    loop: Any = Loop()
    vigil = Vigil(loop, lambda: 1, None)
    for _ in range(100):
        vigil.stir()
    assert not loop.queue


def test_it_keeps_a_real_loop_turning_and_lets_it_sleep() -> None:
    async def main() -> int:
        loop, machine, turned = asyncio.get_running_loop(), Machine(), 0

        def give_way() -> None:
            nonlocal turned
            turned += 1
            machine.now += 0.00001

        poll = HaltPoll(0.5, clock=machine.clock, give_way=give_way)
        vigil = Vigil(loop, lambda: 1, poll, clock=machine.clock)
        for _ in range(8):
            vigil.stir()
            await asyncio.sleep(0)
        while vigil.awake:
            await asyncio.sleep(0.01)
        return turned

    assert asyncio.run(main()) > 8


# --- whether to look at all ---


def test_it_can_be_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr("shoal.serve.polling.granted_cpus", lambda: inf)
    assert worth_polling()
    monkeypatch.setenv(FORBIDS_POLLING, "off")
    assert not worth_polling()


def test_one_core_is_needed_by_whoever_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr("shoal.serve.polling.granted_cpus", lambda: 1.0)
    assert not worth_polling()


@pytest.mark.parametrize(("text", "cpus"), [("150000 100000", 1.5), ("max 100000", inf), ("nonsense", inf)])
def test_a_containers_quota_is_read(tmp_path: Path, text: str, cpus: float) -> None:
    (tmp_path / "cpu.max").write_text(text)
    assert granted_cpus(tmp_path) == cpus


@pytest.mark.parametrize(("quota", "cpus"), [("50000", 0.5), ("-1", inf)])
def test_so_is_one_of_the_first_version(tmp_path: Path, quota: str, cpus: float) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(f"{quota}\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert granted_cpus(tmp_path) == cpus
