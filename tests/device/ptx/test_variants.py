"""A transformed kernel leaves the same memory behind as the original, bit for bit, however it is cut into parts."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.device.ptx.launch import MAX_BLOCKS, blocks_in, control_bytes, launch_parameter, slices
from shoal.device.ptx.parser import parse
from shoal.device.ptx.safety import Cause, Refusal
from shoal.device.ptx.transform import transform
from tests.device.ptx.scenarios import CORPUS, SCENARIOS, Run, Scenario, original, transformed, transformed_module

GRIDS = st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 2))
THREE = next(one for one in SCENARIOS if one.entry == "three_dimensions")


def reference(scenario: Scenario) -> bytes:
    return Run(scenario, original(scenario.file)).whole().result


@pytest.mark.few(count=11)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_slices_of_any_size_equal_the_whole(scenario: Scenario) -> None:
    blocks = blocks_in(scenario.grid)
    for size in {1, 2, 3, blocks}:
        assert Run(scenario, transformed_module(scenario.file)).sliced(size).result == reference(scenario), size


@pytest.mark.few(count=11)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_ticket_stopped_before_any_block_goes_on_where_it_was(scenario: Scenario) -> None:
    blocks = blocks_in(scenario.grid)
    for stop in range(blocks + 1):
        run = Run(scenario, transformed_module(scenario.file)).ticketed((stop,))
        assert run.result == reference(scenario), stop
        assert run.claimed == blocks


@pytest.mark.few(count=11)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_ticket_holds_when_blocks_and_threads_take_turns_by_chance(scenario: Scenario) -> None:
    for seed in range(2):
        random = Random(seed)
        stops = tuple(random.randrange(blocks_in(scenario.grid) + 1) for _ in range(3))
        run = Run(scenario, transformed_module(scenario.file)).ticketed(stops, random=random, resident=3)
        assert run.result == reference(scenario), (seed, stops)


@given(GRIDS, st.integers(1, 40))
def test_slices_of_any_grid(grid: tuple[int, int, int], size: int) -> None:
    scenario = Scenario(THREE.file, THREE.entry, grid, (2, 1, 1), lambda a: a.zeros(200))
    assert Run(scenario, transformed_module(scenario.file)).sliced(size).result == reference(scenario)


@pytest.mark.slow
@given(GRIDS, st.lists(st.integers(0, 18), max_size=3), st.randoms(use_true_random=False))
def test_tickets_of_any_grid_stopped_often(grid: tuple[int, int, int], stops: list[int], random: Random) -> None:
    scenario = Scenario(THREE.file, THREE.entry, grid, (2, 1, 1), lambda a: a.zeros(200))
    run = Run(scenario, transformed_module(scenario.file)).ticketed(tuple(stops), random=random, resident=4)
    assert run.result == reference(scenario)
    assert run.claimed == blocks_in(grid)


def test_a_stop_leaves_the_rest_undone() -> None:
    run = Run(THREE, transformed_module(THREE.file))
    run.stop_before(5)
    assert run.claimed == 5
    assert run.result != reference(THREE)


def test_the_text_begins_with_the_original() -> None:
    done = transformed("nvcc_sm80.ptx")
    assert done.text.startswith((CORPUS / "nvcc_sm80.ptx").read_text())
    module = parse(done.text)
    names = [entry.name for entry in module.entries]
    for modes in done.variants.values():
        for mode, name in modes.items():
            assert isinstance(name, Refusal) or (name in names and name.endswith(f"__shoal_{mode}"))


def test_what_is_transformed_already_stays_as_it_is() -> None:
    once = transformed("hand.ptx")
    twice = transform(once.text)
    assert len(parse(twice.text).entries) == len(parse(once.text).entries)
    causes = {outcome.cause for modes in twice.variants.values() for outcome in modes.values()}  # type: ignore[union-attr]
    assert causes == {Cause.NAME_TAKEN}


def test_a_variant_keeps_what_surrounds_the_body() -> None:
    (table,) = [entry for entry in transformed_module("hand.ptx").entries if entry.name == "table__shoal_ticket"]
    assert table.directives == ((".maxntid", "64", ",", "1", ",", "1"),)
    assert table.parameters is not None
    assert [one.declarators[0].name for one in table.parameters] == ["out", "__shoal_launch"]


def test_the_launch_parameter() -> None:
    assert launch_parameter((2, 3, 4), base=5, control=6) == bytes.fromhex(
        "02000000 03000000 04000000 05000000 0600000000000000 0000000000000000"
    )
    assert list(slices((5, 1, 2), 4)) == [(0, 4), (4, 4), (8, 2)]
    assert control_bytes((2, 2, 1)) == 24


@pytest.mark.parametrize("grid", [(0, 1, 1), (MAX_BLOCKS, 2, 1)])
def test_grids_that_cannot_be_launched_in_one_dimension(grid: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="blocks"):
        blocks_in(grid)
    assert blocks_in((MAX_BLOCKS, 1, 1)) == MAX_BLOCKS
