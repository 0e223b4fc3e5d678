"""What the local engine says of its machine when accelerators go, come back, or do not answer."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core import Device, Node
from shoal.engine import LaunchFailed, Phase, RankSpec
from shoal.engine.local.inventory import Accelerators
from shoal.engine.local.sightings import MISSES, Sightings
from tests.engine.conformance import RunForever
from tests.engine.local_kit import CardBus, local_kit, no_accelerators


def cards(*ids: int) -> Accelerators:
    return Accelerators(tuple(Device(f"GPU-{index}", "h200", index) for index in ids), "")


def silent(why: str = "the driver says nothing") -> Accelerators:
    return Accelerators((), why, answered=False)


def make_node(found: Accelerators) -> Node:
    return Node("here", found.devices or (Device("cpu0", "cpu", 0),), 4000, 1 << 30)


def ids(sightings: Sightings) -> list[str]:
    return [device.id for device in sightings.inventory.nodes[0].devices]


def test_a_device_is_gone_when_it_was_missed_several_times_in_a_row() -> None:
    sightings = Sightings(cards(0, 1), make_node)
    for _ in range(MISSES - 1):
        sightings.saw(cards(1))
        assert ids(sightings) == ["GPU-0", "GPU-1"]
        assert sightings.doubtful
    sightings.saw(cards(1))
    assert ids(sightings) == ["GPU-1"]
    assert not sightings.doubtful
    sightings.saw(cards(0, 1))
    assert ids(sightings) == ["GPU-0", "GPU-1"]


def test_the_last_device_leaves_a_node_with_none_and_no_made_up_slots() -> None:
    sightings = Sightings(cards(0), make_node)
    for _ in range(MISSES):
        sightings.saw(cards())
    assert ids(sightings) == []


def test_a_driver_that_does_not_answer_closes_the_node_and_takes_nothing_from_it() -> None:
    sightings = Sightings(cards(0, 1), make_node)
    for _ in range(MISSES - 1):
        assert not sightings.saw(silent()).closed
        assert sightings.doubtful
    assert sightings.saw(silent()).closed == {"here": "its accelerators do not answer: the driver says nothing"}
    assert not sightings.doubtful
    assert ids(sightings) == ["GPU-0", "GPU-1"]
    assert not sightings.saw(cards(0, 1)).closed


def test_slots_stay_until_the_engine_is_opened_again_whatever_is_found() -> None:
    sightings = Sightings(silent(), make_node)
    for found in (cards(0), *[silent()] * MISSES, cards()):
        assert not sightings.saw(found).closed
        assert ids(sightings) == ["cpu0"]


@given(st.lists(st.one_of(st.none(), st.sets(st.integers(0, 3))), max_size=20))
def test_what_is_told_is_what_was_seen_within_the_last_answers(looks: list[set[int] | None]) -> None:
    """None is a probe that failed."""
    sightings = Sightings(cards(0, 1, 2, 3), make_node)
    answers: list[set[int]] = [{0, 1, 2, 3}] * MISSES
    for look in looks:
        sightings.saw(silent() if look is None else cards(*sorted(look)))
        if look is not None:
            answers.append(look)
        assert ids(sightings) == [f"GPU-{index}" for index in sorted(set().union(*answers[-MISSES:]))]


async def test_the_machine_is_looked_at_by_itself(tmp_path: Path) -> None:
    async with local_kit(tmp_path, accelerators=CardBus.probe, look_every_s=0.01) as kit:
        follower = kit.engine.nodes()
        await anext(follower)
        kit.cards.gone.add("cpu7")
        async with asyncio.timeout(30):
            assert len((await anext(follower)).nodes[0].devices) == 7
            kit.cards.answers = False
            assert (await anext(follower)).closed == {
                kit.node: "its accelerators do not answer: the driver says nothing"
            }


async def test_a_probe_that_breaks_is_one_that_did_not_answer(tmp_path: Path) -> None:
    broken: list[str] = []

    def probe() -> Accelerators:
        if broken:
            raise RuntimeError(broken[0])
        return cards(0)

    async with local_kit(tmp_path, accelerators=probe) as kit:
        broken.append("no such symbol")
        for _ in range(MISSES):
            told = await kit.engine.inventory()
        assert told.closed == {kit.node: "its accelerators do not answer: RuntimeError: no such symbol"}
        assert [device.id for device in told.nodes[0].devices] == ["GPU-0"]


async def test_a_lost_device_is_given_to_nobody_and_its_gang_is_adopted_still(tmp_path: Path) -> None:
    async with local_kit(tmp_path, accelerators=CardBus.probe) as kit:
        held = kit.gang("a.1.run", RunForever())
        await kit.engine.launch(held)
        await kit.lose_device()
        assert (await kit.engine.launch(held)).phase is Phase.RUNNING
        again = replace(held, name="b.1.run", ranks=(RankSpec(0, kit.node, ("cpu0",)),))
        with pytest.raises(LaunchFailed, match="no device cpu0"):
            await kit.engine.launch(again)
        await kit.restart()
        assert (await kit.engine.inventory()).nodes[0].devices[0].id == "cpu1"
        assert (await kit.engine.launch(held)).phase is Phase.RUNNING


async def test_declared_slots_are_told_as_they_were(tmp_path: Path) -> None:
    async with local_kit(tmp_path, accelerators=no_accelerators, slots=3) as kit:
        before = await anext(kit.engine.nodes())
        assert [device.id for device in before.nodes[0].devices] == ["cpu0", "cpu1", "cpu2"]
        assert await kit.engine.inventory() == before
