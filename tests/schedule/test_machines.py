"""Which machines hold which gang, what a round says of each job, and what its state looks like as JSON."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shoal.schedule import Pool, Problem
from shoal.schedule.rounds import WINDOW, Round, State, Why
from shoal.schedule.rounds.machines import Assigned, assign

NEAR, FAR = 0, 1
"""The columns: on as few machines as possible, and spread."""


def assigned(
    need: list[int], *, count: int = 6, column: list[int] | None = None, far: float = 0.5,
    partner: list[int] | None = None, stays: list[int] = [], before: dict[int, Any] | None = None,  # noqa: B006
    offered: bool = True,
) -> Assigned:  # fmt: skip
    """Jobs of these sizes in a pool of machines of two; `far` is their rate where they are spread."""
    pools = (Pool("a", count, per_node=2, unconsolidated="far" if offered else None),)
    rates = [[1.0, far] if offered else [1.0] for _ in need]
    problem = Problem.columnar(pools, rates, gang=need)
    rows = len(need)
    return assign(
        problem,
        np.array(column or [NEAR] * rows, np.intp), np.array(need, np.intp),
        np.array(partner or [-1] * rows, np.intp), np.isin(np.arange(rows), stays), before or {},
    )  # fmt: skip


def test_a_last_machine_may_be_smaller() -> None:
    found = assigned([1] * 5, count=5)
    assert sorted(found.nodes.values()) == [((0, 1),), ((0, 1),), ((1, 1),), ((1, 1),), ((2, 1),)]


def test_who_stays_keeps_its_machines() -> None:
    found = assigned([2, 2], stays=[1], before={1: ((0, 2),)})
    assert found.nodes == {0: ((1, 2),), 1: ((0, 2),)}


@pytest.mark.parametrize("gone", [3, 9])
def test_who_stays_where_machines_are_gone_is_placed_anew(gone: int) -> None:
    assert assigned([2], stays=[0], before={0: ((gone, 2),)}).nodes == {0: ((0, 2),)}


def test_a_pair_shares_the_machines_of_its_first() -> None:
    found = assigned([2, 2], partner=[1, 0])
    assert found.nodes == {0: ((0, 2),), 1: ((0, 2),)}


def test_a_gang_that_finds_no_whole_machine_is_spread_at_that_speed() -> None:
    held = {0: ((0, 1),), 1: ((1, 1),), 2: ((2, 1),)}
    found = assigned([1, 1, 1, 2], stays=[0, 1, 2], before=held)
    assert found.spread == {3: FAR}
    assert found.nodes[3] == ((2, 1), (1, 1))
    assert found.dropped == []


def test_one_that_has_no_speed_when_spread_is_dropped() -> None:
    held = {0: ((0, 1),), 1: ((1, 1),), 2: ((2, 1),)}
    found = assigned([1, 1, 1, 2], stays=[0, 1, 2], before=held, far=0.0)
    assert found.dropped == [3]
    assert 3 not in found.nodes


def test_where_spreading_costs_nothing_known_it_is_spread() -> None:
    held = {0: ((0, 1),), 1: ((1, 1),)}
    found = assigned([1, 1, 2], count=4, stays=[0, 1], before=held, offered=False)
    assert (found.nodes[2], found.spread) == (((1, 1), (0, 1)), {})


def test_a_spread_one_goes_where_it_was() -> None:
    found = assigned([2], column=[FAR], before={0: ((0, 1), (1, 1))})
    assert found.nodes == {0: ((0, 1), (1, 1))}
    assert assigned([2], column=[FAR], before={0: ((0, 1),)}).nodes == {0: ((2, 2),)}, "not if it had less"


def test_a_reason_has_the_facts_of_its_round() -> None:
    problem = Problem.columnar((Pool("a", 2), Pool("b", 2)), [[1.0, 2.0]] * 3, ids=["x", "y", "z"])
    rows = np.zeros(3, np.bool_)
    found = Round(
        7, 0.0, problem,
        column=np.array([0, -1, 1]), accelerators=np.array([1, 0, 1]), partner=np.array([-1, -1, 0]), kept=rows,
        restarted=np.array([True, False, False]), stopped=rows,
        share=np.array([[0.25, 0.0], [0.0, 0.0], [0.5, 0.1234567]]),
        credit=np.array([[1.26, 0.0], [0.0, 3.0], [0.0, 0.0]]),
        judge=lambda: np.array([Why.STARTED, Why.ROOM, Why.NO_SHARE], np.int8),
        nodes={}, reserved=np.array([-1] * 3),
    )  # fmt: skip
    first = found.reason(0)
    assert (first.code, first.text) == ("started", "starts on a")
    assert first.facts == {
        "round": 7, "column": "a", "accelerators": 1, "beside": None, "shares": {"a": 0.25}, "owed_s": 1.3,
        "restarted": True,
    }  # fmt: skip
    second = found.reason(1)
    assert (second.code, second.text) == ("room", "waits: no pool has enough accelerators left for all of its gang")
    assert (second.facts["column"], second.facts["shares"], second.facts["owed_s"]) == (None, {}, 3.0)
    third = found.reason(2)
    assert third.code == "no-share"
    assert third.text == "waits: the policy gives it no time now, and nothing is left over, beside x"
    assert third.facts["shares"] == {"a": 0.5, "b": 0.123457}


def test_a_state_is_kept_without_what_says_nothing() -> None:
    jobs = {
        "x": {"column": "b", "since": 5.0, "ran": True, "share": {"a": 0.5}, "owed_s": {"b": 2.0}},
        "y": {"share": {"a": 0.25}},
        "z": {"column": "a"},
    }
    past = [[1.0, 0.5, 2]] * WINDOW
    none = [[0.0, 0.0, -1]] * WINDOW
    document = {
        "version": 2, "number": 3, "settled": 9.0,
        "jobs": {name: {**job, "past": past if name == "x" else none} for name, job in jobs.items()},
    }  # fmt: skip
    state = State.from_json(document)
    assert state.columns[:2] == ("b", "a")
    assert state.as_json() == document
