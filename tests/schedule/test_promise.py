"""What jobs receive of what their shares promise: gangs of several sizes beside jobs that keep their places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.schedule import Pool, Problem, decide
from shoal.schedule.rounds import WINDOW, Settings, State, Why, next_round, noted, shortfall
from tests.schedule.kit import remembered

LIVE = Settings(round_s=3.0, keep_s=5.0, time_slice_s=5.0, min_run_s=5.0)
"""Of `shoal up` with rounds of 3 s and restarts that cost 0.5 s."""


class Played:
    """Rounds on one pool, shared out by max-min. The first `unsaved` jobs save nothing and keep a place that they have
    for `stay_s`."""

    def __init__(
        self, gangs: Sequence[int], count: int, rules: Settings, *, rounds: int, unsaved: int = 0, stay_s: float = 0.0
    ) -> None:
        jobs = len(gangs)
        problem = Problem.columnar((Pool("a", count),), np.ones((jobs, 1)), gang=list(gangs))
        first = decide("max-min", problem)
        self.share = first.share
        self.time, self.told = np.zeros(jobs), []
        self.windows: list[np.ndarray] = []
        state, since, now = State(), np.zeros(jobs), 0.0
        for _ in range(rounds):
            given_ = replace(problem, now=now)
            allocation = replace(first, problem=given_)
            kept = np.where((np.arange(jobs) < unsaved) & (problem.placed >= 0), stay_s - (now - since), 0.0)
            found, state = next_round(state, given_, allocation, now, rules, since=since, kept_s=np.maximum(kept, 0.0))
            state = noted(state, found)
            since = np.where(found.kept, since, now)
            problem = replace(given_, placed=found.column)
            self.time += (found.column >= 0) / rounds
            used = int(found.accelerators.sum())
            assert used <= count
            now += rules.round_s
            self.state = state
            self.told.append([shortfall(state, row, rules) for row in range(jobs)])
            self.windows.append(state.received_s.sum(axis=1) / np.maximum(state.promised_s.sum(axis=1), 1e-9))


def test_a_gang_gets_its_share_beside_jobs_that_keep_their_places() -> None:
    """Six jobs and a gang of three on four places, as it was seen: 0.146 of the time where 0.19 was promised."""
    found = Played([1, 1, 1, 1, 1, 1, 3], 4, LIVE, rounds=400)
    assert found.share[6, 0] == pytest.approx(4 / 21, abs=1e-6)
    assert (found.time > 0.9 * found.share[:, 0]).all(), (found.time, found.share[:, 0])


@pytest.mark.few(count=2)
@pytest.mark.parametrize("gangs", [[1] * 5 + [2, 3], [1] * 6 + [4], [1] * 4 + [2, 2]])
@pytest.mark.parametrize("rules", [LIVE, Settings(60.0, 300.0, 300.0, min_run_s=300.0)])
def test_gangs_that_fit_beside_the_others_have_nine_tenths_of_their_share(gangs: list[int], rules: Settings) -> None:
    found = Played(gangs, 4, rules, rounds=400)
    assert (found.time > 0.9 * found.share[:, 0]).all(), (found.time, found.share[:, 0])


@settings(max_examples=12, deadline=None)
@given(
    gangs=st.lists(st.integers(1, 4), min_size=2, max_size=8), unsaved=st.integers(0, 3),
    stay_s=st.sampled_from([0.0, 30.0, 90.0]), count=st.integers(4, 6),
)  # fmt: skip
def test_a_promise_is_kept_over_ten_rounds_or_the_cause_is_named(
    gangs: list[int], unsaved: int, stay_s: float, count: int
) -> None:
    found = Played(gangs, count, LIVE, rounds=30, unsaved=unsaved, stay_s=stay_s)
    for number, (ratios, told) in enumerate(zip(found.windows, found.told, strict=True), 1):
        for ratio, reason in zip(ratios, told, strict=True):
            if number < WINDOW:
                assert reason is None, "not there for ten rounds yet"
            else:
                assert (reason is None) == (ratio >= 0.9) or ratio == pytest.approx(0.9)
                assert reason is None or sum(reason.facts["waited"].values()) > 0
    assert (found.time > 0.0).all(), "nobody starves"


def test_unsaved_jobs_are_named_as_what_keeps_a_gang_waiting() -> None:
    found = Played([1, 1, 2, 1, 1], 3, LIVE, rounds=25, unsaved=2, stay_s=90.0)
    texts = [told[2].text for told in found.told if told[2] is not None]
    assert any("jobs that kept their places" in text for text in texts), texts


def test_gangs_that_cannot_run_together_are_told_so() -> None:
    """A gang of three and one of two on four places are promised more than they can have in turns."""
    found = Played([3, 2, 2], 4, LIVE, rounds=80)
    short = [reason for told in found.told[40:] for reason in told if reason is not None]
    assert short
    assert {why for reason in short for why in reason.facts["waited"]} <= {"room", "turn", "behind", "reserved"}


def test_places_are_reserved_only_for_as_long_as_it_takes_others_to_be_movable() -> None:
    """Two of three places are kept, one by a job that may be moved soon."""
    jobs = {"gang": [1, 1, 2, 1], "placed": [0, 0, -1, -1], "ids": ["j", "k", "gang", "new"]}
    problem = Problem.columnar((Pool("a", 3),), np.ones((4, 1)), **jobs)
    owed = {"gang": {"deficit_s": {"a": 40.0}, "share": {"a": 0.5}}}
    state = remembered("a", owed, settled=100.0)
    allocation = decide("max-min", replace(problem, placed=np.full(4, -1)))
    for kept_s, reserved in ((4.0, 0), (90.0, -1)):
        found, _ = next_round(
            state, problem, replace(allocation, problem=problem), 100.0, LIVE, since=np.array([0.0, 0.0, 0.0, 0.0]),
            kept_s=np.array([90.0, kept_s, 0.0, 0.0]),
        )  # fmt: skip
        assert found.reserved[2] == reserved
        assert (found.column[3] >= 0) == (reserved < 0), "nobody new comes to a reserved place"
        assert Why(int(found.why[2])) is (Why.RESERVED if reserved >= 0 else Why.BEHIND)
