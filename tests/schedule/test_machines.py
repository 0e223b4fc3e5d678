"""Which machines hold which gang, what a round says of each job, and what its state looks like as JSON."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shoal.core import Invalid
from shoal.schedule import Pool, Problem
from shoal.schedule.rounds import WINDOW, Round, Settings, State, Why, shortfall
from shoal.schedule.rounds.machines import Assigned, assign

NEAR, FAR = 0, 1
"""The columns: on as few machines as possible, and spread."""


def assigned(
    need: list[int], *, count: int = 6, column: list[int] | None = None, far: float = 0.5,
    stays: list[int] = [], before: dict[int, Any] | None = None,  # noqa: B006
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
        np.isin(np.arange(rows), stays), before or {},
    )  # fmt: skip


def test_a_last_machine_may_be_smaller() -> None:
    found = assigned([1] * 5, count=5)
    assert sorted(found.nodes.values()) == [((0, 1),), ((0, 1),), ((1, 1),), ((1, 1),), ((2, 1),)]


def test_who_stays_keeps_its_machines() -> None:
    found = assigned([2, 2], stays=[1], before={1: ((0, 2),)})
    assert found.nodes == {0: ((1, 2),), 1: ((0, 2),)}


@pytest.mark.parametrize("gone", [3, 4, 9])
def test_who_stays_where_machines_are_gone_is_placed_anew(gone: int) -> None:
    assert assigned([2], stays=[0], before={0: ((gone, 2),)}).nodes == {0: ((0, 2),)}


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
        7, problem,
        column=np.array([0, -1, 1]), accelerators=np.array([1, 0, 1]), kept=rows,
        restarted=np.array([True, False, False]),
        share=np.array([[0.25, 0.0], [0.0, 0.0], [0.5, 0.1234567]]),
        deficit=np.array([[1.26, 0.0], [0.0, 3.0], [0.0, 0.0]]),
        judge=lambda: np.array([Why.STARTED, Why.ROOM, Why.NO_SHARE], np.int8),
        nodes={}, reserved=np.array([-1] * 3),
    )  # fmt: skip
    first = found.reason(0)
    assert (first.code, first.text) == ("started", "starts on a")
    assert first.facts == {
        "round": 7, "column": "a", "accelerators": 1, "shares": {"a": 0.25}, "deficit_s": 1.3,
        "restarted": True,
    }  # fmt: skip
    second = found.reason(1)
    assert (second.code, second.text) == ("room", "waits: no pool has enough accelerators left for all of its gang")
    assert (second.facts["column"], second.facts["shares"], second.facts["deficit_s"]) == (None, {}, 3.0)
    third = found.reason(2)
    assert third.code == "no-share"
    assert third.text == "waits: the policy gives it no time now, and nothing is left over"
    assert third.facts["shares"] == {"a": 0.5, "b": 0.123457}


@pytest.mark.parametrize(
    ("why", "text"),
    [
        (Why.KEPT, "keeps its place on a"),
        (Why.HELD, "stays on a until its minimum run time is over"),
        (Why.RESUMED, "resumes on a: its deficit is 3 s"),
        (Why.MOVED, "moves to a, where its share is now"),
        (Why.SPARE, "runs on a, which no job with a share of it can use"),
        (Why.TURN, "waits for its time slice: its deficit is 3 s, others have more"),
        (Why.RESERVED, "waits: places are kept free for its gang until those that must stay for now may be moved"),
        (Why.BEHIND, "waits: its deficit is 3 s, and jobs that keep their places leave too little room"),
        (Why.NOWHERE, "waits: its gang fits in no pool (and quota) that it has a throughput for"),
    ],
)
def test_every_reason_is_a_sentence(why: Why, text: str) -> None:
    problem = Problem.columnar((Pool("a", 2),), [[1.0]])
    rows, one = np.zeros(1, np.bool_), np.zeros(1, np.intp)
    found = Round(
        1, problem, column=one, accelerators=one + 1, kept=rows, restarted=rows,
        share=np.ones((1, 1)), deficit=np.full((1, 1), 3.0), judge=lambda: np.array([why], np.int8), nodes={},
        reserved=one - 1,
    )  # fmt: skip
    assert found.reason(0).text == text


# --- what rounds are told, and what they say when less was received than promised


def received(promised_s: float, received_s: float, *why: Why | int) -> State:
    """One job; each of its last rounds promised and gave so much, and put it where it was for these reasons."""
    codes = [*why, *[Why.KEPT] * (WINDOW - len(why))]
    table = np.ones((1, WINDOW))
    return State(
        9, 0.0, ("j",), ("a",), share=np.ones((1, 1)), deficit_s=np.zeros((1, 1)), column=np.zeros(1, np.intp),
        since=np.zeros(1), ran=np.ones(1, np.bool_), promised_s=promised_s * table, received_s=received_s * table,
        why=np.array([codes], np.int8),
    )  # fmt: skip


def test_a_shortfall_says_how_much_and_in_how_many_rounds_what_was_in_the_way() -> None:
    rules = Settings(round_s=2.0, min_run_s=5.0)
    found = shortfall(received(1.04, 0.5, Why.TURN, Why.TURN, Why.NO_SHARE), 0, rules)
    assert found is not None
    assert found.code == "promise"
    assert found.text == (
        "had 5 s of the 10 s that its shares promised in the last 10 rounds: in 2 of them others had larger deficits "
        "(a time slice lasts 2.5 rounds at least)"
    )
    assert found.facts == {"promised_s": 10.4, "received_s": 5.0, "waited": {"turn": 2, "no-share": 1}}


def test_only_a_wait_for_ones_turn_is_explained_by_time_slices() -> None:
    rules = Settings(round_s=2.0, min_run_s=5.0)
    other = shortfall(received(1.0, 0.5, Why.ROOM, Why.ROOM, Why.TURN), 0, rules)
    assert other is not None
    assert other.text.endswith(
        "in 2 of them too few accelerators were left together for its gang beside those that ran"
    )
    short = shortfall(received(1.0, 0.5, Why.TURN), 0, Settings(round_s=5.0, min_run_s=5.0))
    assert short is not None
    assert short.text.endswith("in 1 of them others had larger deficits")


def test_a_shortfall_that_nobody_caused_says_so() -> None:
    found = shortfall(received(1.04, 0.56), 0, Settings())
    assert found is not None
    assert found.code == "promise"
    assert found.text == (
        "had 6 s of the 10 s that its shares promised in the last 10 rounds: its places became free late, or it had to "
        "start anew"
    )
    assert found.facts == {"promised_s": 10.4, "received_s": 5.6, "waited": {}}


def test_a_promise_is_kept_from_nine_tenths_on_and_none_is_judged_too_early() -> None:
    assert shortfall(received(1.0, 0.9), 0, Settings()) is None
    assert shortfall(received(1.0, 0.89), 0, Settings()) is not None
    assert shortfall(received(0.0, 0.0, Why.TURN), 0, Settings()) is None
    assert shortfall(received(1.0, 0.1, -1), 0, Settings()) is None


@pytest.mark.parametrize("name", ["round_s", "time_slice_s", "keep_s", "min_run_s"])
@pytest.mark.parametrize("value", [-1.0, 0.0, 0.5, float("inf"), float("nan")])
def test_lengths_of_time_are_finite_and_some_are_positive(name: str, value: float) -> None:
    positive = name in ("round_s", "time_slice_s")
    if value == 0.5 or (value == 0.0 and not positive):
        assert getattr(Settings(**{name: value}), name) == value
        return
    with pytest.raises(Invalid) as refused:
        Settings(**{name: value})
    hint = "positive and finite" if positive else "at least zero, and finite"
    assert (refused.value.what, refused.value.where, refused.value.hint) == (f"{value:g} seconds", name, hint)
