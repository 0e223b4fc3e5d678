"""The virtual loop: asyncio's own tools work, time leaps, and what cannot end is named."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.engine.simulated import Deadlock, RealIO, VirtualClock, run

DAY_S = 86_400.0


def test_a_year_passes_at_once_and_the_clock_shows_it() -> None:
    async def main() -> tuple[float, float]:
        clock = VirtualClock()
        await asyncio.sleep(365 * DAY_S)
        return clock.now(), clock.monotonic()

    assert run(main(), start=1_000.0) == (1_000.0 + 365 * DAY_S, 365 * DAY_S)


@given(st.lists(st.floats(0, 1e7), max_size=30))
def test_sleepers_wake_in_order_and_on_time(delays_s: list[float]) -> None:
    async def main() -> list[tuple[float, float]]:
        woken = []

        async def sleeper(delay_s: float) -> None:
            await asyncio.sleep(delay_s)
            woken.append((delay_s, VirtualClock().monotonic()))

        await asyncio.gather(*map(sleeper, delays_s))
        return woken

    woken = run(main())
    assert [delay_s for delay_s, _ in woken] == pytest.approx(sorted(delays_s), abs=2e-6)
    for delay_s, at in woken:
        assert at == pytest.approx(delay_s, abs=2e-6)


def test_two_runs_are_the_same_run() -> None:
    async def main() -> list[tuple[float, int]]:
        seen: list[tuple[float, int]] = []
        queue: asyncio.Queue[int] = asyncio.Queue(maxsize=2)

        async def producer(number: int) -> None:
            for turn in range(20):
                await asyncio.sleep((number * 7 + turn * 3) % 5)
                await queue.put(number)

        async def consumer() -> None:
            while True:
                seen.append((VirtualClock().now(), await queue.get()))

        consuming = asyncio.create_task(consumer())
        await asyncio.gather(*(producer(number) for number in range(5)))
        consuming.cancel()
        return seen

    assert run(main()) == run(main())


def test_timeouts_and_wait_for_fire_at_their_time() -> None:
    async def main() -> list[float]:
        clock, at = VirtualClock(), []
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.sleep(DAY_S)
        at.append(clock.now())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 7)
        at.append(clock.now())
        assert await asyncio.wait_for(asyncio.sleep(1, "in time"), 2) == "in time"
        at.append(clock.now())
        return at

    assert run(main()) == [5, 12, 13]


def test_a_condition_and_a_task_group_work() -> None:
    async def main() -> list[int]:
        got: list[int] = []
        condition = asyncio.Condition()

        async def waiter(number: int) -> None:
            async with condition:
                await condition.wait()
                got.append(number)

        async with asyncio.TaskGroup() as group:
            for number in range(3):
                group.create_task(waiter(number))
            await asyncio.sleep(1)
            async with condition:
                condition.notify_all()
        return got

    assert run(main()) == [0, 1, 2]


def test_a_deadlock_names_every_waiting_task_and_where_it_waits() -> None:
    async def starve() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        waiting = asyncio.create_task(starve(), name="starving")
        await asyncio.sleep(1)
        await waiting

    with pytest.raises(Deadlock) as deadlock:
        run(main())
    assert len(deadlock.value.waiting) == 2
    assert any(line.startswith("starving waits in Event.wait") for line in deadlock.value.waiting)
    assert "locks.py:" in str(deadlock.value)


def test_an_endless_timer_is_no_deadlock() -> None:
    async def tick() -> None:
        while True:
            await asyncio.sleep(1)

    async def main() -> float:
        ticking = asyncio.create_task(tick())
        await asyncio.sleep(1000)
        ticking.cancel()
        return VirtualClock().now()

    assert run(main()) == 1000


def test_threads_work_inline_and_in_order() -> None:
    async def main() -> list[object]:
        here = threading.get_ident()
        seen: list[object] = []

        def work(number: int) -> int:
            assert threading.get_ident() == here
            seen.append(number)
            return number * 2

        seen.append(await asyncio.gather(*(asyncio.to_thread(work, number) for number in range(3))))
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 / 0)
        return seen

    assert run(main()) == [0, 1, 2, [0, 2, 4]]


def test_inline_work_lets_other_tasks_have_their_turn() -> None:
    async def main() -> int:
        turns = 0

        async def other() -> None:
            nonlocal turns
            for _ in range(3):
                await asyncio.sleep(0)
                turns += 1

        others = asyncio.create_task(other())
        for _ in range(10):
            await asyncio.to_thread(int)
        await others
        return turns

    assert run(main()) == 3


def test_cancelled_inline_work_is_not_done() -> None:
    async def main() -> list[str]:
        done: list[str] = []
        future = asyncio.get_running_loop().run_in_executor(None, done.append, "worked")
        future.cancel()
        await asyncio.sleep(1)
        return done

    assert run(main()) == []


def test_real_input_and_output_is_refused() -> None:
    async def connect() -> None:
        await asyncio.open_connection("127.0.0.1", 9)

    async def child() -> None:
        await asyncio.create_subprocess_exec("true", stdout=asyncio.subprocess.PIPE)

    for main in (connect, child):
        with pytest.raises(RealIO, match="virtual time cannot wait"):
            run(main())


def test_a_virtual_clock_needs_a_virtual_loop() -> None:
    async def main() -> None:
        VirtualClock()

    with pytest.raises(TypeError, match="VirtualLoop"):
        asyncio.run(main())


def test_the_real_clock_is_left_alone() -> None:
    before = time.monotonic()
    run(asyncio.sleep(DAY_S))
    assert time.monotonic() - before < DAY_S


@pytest.mark.virtual_time
async def test_a_marked_test_runs_in_virtual_time() -> None:
    await asyncio.sleep(1000)
    assert VirtualClock().now() == 1_700_001_000
