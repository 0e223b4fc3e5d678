"""Planes hand over in turns."""

from __future__ import annotations

import asyncio

from shoal.tenancy.live.turns import Gate


async def _hand_over(gate: Gate, plane: str, at: int, order: list[str], weight: float = 1.0) -> None:
    async with gate.turn(plane, weight):
        order.append(plane)
        await asyncio.sleep(0)


def test_a_plane_with_few_gangs_does_not_wait_for_one_with_many() -> None:
    async def scene() -> list[str]:
        gate, order = Gate(width=1), []
        await asyncio.gather(
            *(_hand_over(gate, "greedy", at, order) for at in range(50)),
            *(_hand_over(gate, "modest", at, order) for at in range(3)),
        )
        assert gate.waiting("greedy") == 0
        return order

    order = asyncio.run(scene())
    assert len(order) == 53
    assert [at for at, plane in enumerate(order) if plane == "modest"][-1] <= 6


def test_weights_say_how_often_a_plane_has_its_turn() -> None:
    async def scene() -> list[str]:
        gate, order = Gate(width=1), []
        await asyncio.gather(
            *(_hand_over(gate, "heavy", at, order, 3.0) for at in range(30)),
            *(_hand_over(gate, "light", at, order, 1.0) for at in range(30)),
        )
        return order

    first = asyncio.run(scene())[:28]
    assert 20 <= first.count("heavy") <= 22


def test_one_that_gives_up_lets_the_next_one_in() -> None:
    async def scene() -> None:
        gate, order = Gate(width=1), []
        async with gate.turn("a"):
            given_up = asyncio.ensure_future(_hand_over(gate, "a", 1, order))
            last = asyncio.ensure_future(_hand_over(gate, "b", 2, order))
            await asyncio.sleep(0)
            assert gate.waiting("a") == 1
            given_up.cancel()
            await asyncio.gather(given_up, return_exceptions=True)
            assert order == []
        await asyncio.wait_for(last, 5)
        assert order == ["b"]
        given_up = asyncio.ensure_future(_hand_over(gate, "a", 3, order))
        await asyncio.sleep(0)
        given_up.cancel()  # in its turn
        await asyncio.gather(given_up, return_exceptions=True)
        await asyncio.wait_for(_hand_over(gate, "b", 4, order), 5)

    asyncio.run(scene())
