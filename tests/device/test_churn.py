"""Hours of virtual time on one page: processes of both classes come, launch, hang and are killed between any stores.

The page and the policy are the library's; clock, kernel and device are simulated. Each process does what `Gate` does,
step by step, and each step is an event of its own, so that a kill falls between any two.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from device.simulate.device import Loop

from shoal.core import Unavailable
from shoal.device import native
from shoal.device.page import Page
from shoal.device.policy import Class, Rules, Verdict

pytestmark = pytest.mark.skipif(not native.capability().available, reason=native.capability().detail)

MS, S = 1_000_000, 1_000_000_000
OURS, ANOTHER = 1, 2
RULES = Rules(max_wait_ns=500 * MS, stuck_ns=10 * S)
LONGEST_WAIT = RULES.stuck_ns + RULES.max_wait_ns + 5 * S
"""A killed process of another pid namespace may hold the device until it counts as stuck; then others take turns."""


class World:
    def __init__(self, path: Path, seed: int) -> None:
        self.rng, self.loop = random.Random(seed), Loop()
        self.loop.now = 10 * S
        self.alive: dict[int, Program] = {}
        self.pids = 0
        self.joined = self.killed = self.pieces = self.refused = 0
        self.longest = 0
        self.page = Page.create(path, device="simulated", rules=RULES, running=self.running)
        self.rules = RULES.to_native()
        self.library = native.library()

    def running(self, process: native.Process) -> bool:
        return process.pid_space != OURS or process.pid in self.alive

    def start(self) -> None:
        """Some six processes at a time, half a minute each."""
        self.pids += 1
        cls = Class.GUARANTEED if self.rng.random() < 0.4 else Class.BEST_EFFORT
        space = ANOTHER if self.rng.random() < 0.2 else OURS
        self.alive[self.pids] = program = Program(self, self.pids, cls, space)
        program.after(self.rng.expovariate(1 / MS), program.join)
        self.loop.at(self.loop.now + int(self.rng.expovariate(1 / (30 * S))), lambda: self.kill(program))
        self.loop.at(self.loop.now + int(self.rng.expovariate(1 / (5 * S))), self.start)

    def kill(self, program: Program) -> None:
        del self.alive[program.pid]
        self.killed += 1

    def check(self) -> None:
        """Nobody waits for ever."""
        for one in self.alive.values():
            if one.since:
                waited = self.loop.now - one.since
                self.longest = max(self.longest, waited)
                assert waited <= LONGEST_WAIT, f"{one.pid} has waited for {waited / S:.1f} s"
        self.loop.at(self.loop.now + S, self.check)


class Program:
    def __init__(self, world: World, pid: int, cls: Class, space: int) -> None:
        self.world, self.pid, self.cls, self.space = world, pid, cls, space
        self.rng = random.Random(world.rng.random())
        self.since = 0
        self.left = 0
        self.seen = native.library().shoal_seen_new(world.page._running)

    def after(self, wait: float, then: Callable[[], None]) -> None:
        def go() -> None:
            if self.pid in self.world.alive:
                then()

        self.world.loop.at(self.world.loop.now + max(int(wait), 1), go)

    def join(self) -> None:
        try:
            self.index = self.world.page.join(
                self.cls, process=native.Process(self.pid, 1, self.space), now_ns=self.world.loop.now
            )
        except Unavailable:  # the page is full of silent strangers: it goes without a gate
            self.world.refused += 1
            return
        self.world.joined += 1
        self.slot = self.world.page.struct.slot[self.index]
        self.slot.lanes = 1
        self.rest()

    def rest(self) -> None:
        self.left = self.rng.randrange(1, 12)
        self.after(self.rng.expovariate(1 / (4 * S)), self.launch if self.cls is Class.GUARANTEED else self.wait)

    def launch(self) -> None:
        """`Gate::submit`, store by store; now and then a kernel never ends."""
        now, lane = self.world.loop.now, self.slot.lane[0]
        self.slot.last_active_ns = now
        if lane.submitted == lane.done:
            self.slot.progress_ns = now
        lane.submitted += 1
        number = lane.submitted
        if self.rng.random() < 0.002:
            return
        self.left -= 1
        self.after(self.rng.expovariate(1 / (3 * MS)), lambda: self.ended(number))
        self.after(*((1, self.launch) if self.left else (5 * MS, self.rest)))

    def ended(self, number: int) -> None:
        self.slot.lane[0].done = max(self.slot.lane[0].done, number)

    def wait(self) -> None:
        self.since = self.world.loop.now
        self.slot.used_ns = self.world.library.shoal_start(
            self.world.rules, self.slot.used_ns, 1, self.world.page.struct.header.fair_ns
        )
        self.after(1, self.look)

    def look(self) -> None:
        world, now = self.world, self.world.loop.now
        if self.slot.lane[0].submitted == self.slot.lane[0].done:
            self.slot.outstanding_ns = 0
        self.slot.last_active_ns = now
        epoch = world.page.struct.header.turn
        tenants = (native.NativeTenant * native.SLOTS)()
        count = world.library.shoal_page_snapshot(world.page._address, now, self.seen, tenants)
        cost = self.rng.choice((20_000, 300_000, 5 * MS))
        found = world.library.shoal_decide(world.rules, tenants, count, self.index, cost, self.since, now)
        if found.verdict > Verdict.GO_SHARE:
            assert found.look_at_ns > now
            self.slot.waiting = 1
            self.after(max(found.look_at_ns - now, 3 * MS), self.look)
            return
        self.slot.claim_ns = cost
        self.after(1, lambda: self.take(epoch, cost))

    def take(self, epoch: int, cost: int) -> None:
        header = self.world.page.struct.header
        if header.turn != epoch:
            self.slot.claim_ns = 0
            self.after(1, self.look)
            return
        header.turn += 1
        header.fair_ns = max(header.fair_ns, self.slot.used_ns)
        self.since = 0
        self.slot.used_ns += cost
        self.slot.waiting = 0
        self.slot.progress_ns = self.world.loop.now
        self.slot.lane[0].submitted += 1
        self.slot.outstanding_ns = cost
        self.slot.claim_ns = 0
        self.world.pieces += 1
        self.after(cost, self.done)

    def done(self) -> None:
        """The device says that it has ended; the process takes it off what is outstanding when it looks again. Now and
        then that is much later: it idles."""
        self.slot.lane[0].done = self.slot.lane[0].submitted
        self.left -= 1
        if self.rng.random() < 0.02:
            self.left = 0
            self.after(self.rng.expovariate(1 / (60 * S)), self.wait)
            return
        if self.left:
            self.after(1, self.wait)
        else:
            self.rest()


def churn(path: Path, hours: float, seed: int) -> World:
    world = World(path, seed)
    world.start()
    world.check()
    world.loop.run(world.loop.now + int(hours * 3600 * S))
    return world


def consistent(world: World) -> None:
    """All are killed: each place can be had again, those of another namespace after an hour of silence."""
    world.alive.clear()
    world.page.reap()
    later = world.loop.now + 3601 * S
    taken = [world.page.join(Class.BEST_EFFORT, process=native.Process(1, 1, OURS), now_ns=later) for _ in range(1)]
    world.alive[1] = None  # type: ignore[assignment]
    taken += [world.page.join(Class.BEST_EFFORT, process=native.Process(1, 1, OURS), now_ns=later) for _ in range(63)]
    assert sorted(taken) == list(range(64))
    world.page.close()


def test_half_an_hour_of_churn(tmp_path: Path) -> None:
    world = churn(tmp_path / "page", 0.5, seed=1)
    assert world.killed > 250
    assert world.pieces > 1000
    consistent(world)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_day_of_churn(tmp_path: Path) -> None:
    world = churn(tmp_path / "page", 24, seed=2)
    print(
        f"simulated: {world.joined} joined, {world.killed} killed, {world.pieces} pieces, {world.refused} refused, "
        f"longest wait {world.longest / S:.2f} s"
    )
    assert world.killed > 12_000
    consistent(world)
