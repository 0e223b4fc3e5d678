"""When a batch waits for company: only while that costs less than it may save."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.serve.scheduling.batching import SHORTEST_WAIT_S, batch_room, company_wait_s
from shoal.serve.scheduling.profile import ExecutionProfile


def profile_of(setup_s: float, per_sample_s: float) -> ExecutionProfile:
    profile = ExecutionProfile()
    for _ in range(15):
        for samples in (1, 8, 32):
            profile.observe(samples, setup_s + per_sample_s * samples)
    return profile


GPU = profile_of(0.005, 0.0005)
CNN = profile_of(0.0, 0.019)
RNN = profile_of(0.00008, 0.00003)


def wait(profile: ExecutionProfile = GPU, samples: int = 1, **changes: Any) -> float:
    usual = {"max_batch": 16, "waited_s": 0.0, "gap_s": 0.001, "spare_s": 0.05, "others": 0, "alone": True}
    return company_wait_s(profile, samples, **{**usual, **changes})


def test_waits_while_the_next_request_would_find_the_executor_taken() -> None:
    assert wait() == pytest.approx(0.005, rel=0.05)


@pytest.mark.parametrize(
    "changes",
    [
        {"gap_s": 0.01},
        {"gap_s": inf},
        {"alone": False},
        {"samples": 8, "gap_s": 0.0015},
        {"samples": 16},
        {"waited_s": 0.0049},
        {"spare_s": 0.0005},
        {"max_batch": 1},
    ],
    ids=[
        "nobody is likely to come",
        "nobody knows when anybody comes",
        "the next one would find another executor",
        "too many would be delayed",
        "the batch is full",
        "it waited for as long as it could save",
        "a deadline is near",
        "no batches are allowed",
    ],
)
def test_does_not_wait_when(changes: dict[str, Any]) -> None:
    assert wait(**changes) == 0.0


def test_waits_for_the_sake_of_others_in_line() -> None:
    assert wait(alone=False, gap_s=0.004) == 0.0
    assert wait(alone=False, gap_s=0.004, others=3) > 0.0


def test_what_the_next_request_and_others_in_line_save_adds_up() -> None:
    both = {"samples": 2, "gap_s": 0.003}
    assert wait(**both, others=1) > 0.0
    assert wait(**both, others=0) == wait(**both, others=1, alone=False) == 0.0


def test_does_not_wait_where_the_next_request_comes_after_the_deadline_even_if_many_are_in_line() -> None:
    assert wait(gap_s=0.004, spare_s=0.003, others=3) == 0.0
    assert wait(gap_s=0.002, spare_s=0.002, others=3) == 0.002


def test_the_shortest_wait_is_one_that_a_timer_can_count() -> None:
    assert wait(gap_s=0.0005, spare_s=SHORTEST_WAIT_S) == SHORTEST_WAIT_S


def test_what_saves_as_much_as_it_delays_is_not_waited_for() -> None:
    assert wait(gap_s=GPU.setup_s, alone=False, others=1) == 0.0


def test_waits_no_longer_than_until_the_batch_is_full() -> None:
    assert wait(samples=1, max_batch=3) == pytest.approx(0.002)


def test_what_gains_nothing_never_waits_and_is_never_put_together() -> None:
    assert wait(CNN, gap_s=0.0001) == 0.0
    assert batch_room(CNN, 8, head=1, max_batch=8) == 1


def test_a_gain_below_the_resolution_of_timers_is_not_waited_for() -> None:
    assert RNN.pays(32)
    assert RNN.setup_s < SHORTEST_WAIT_S
    assert wait(RNN, gap_s=0.00001) == 0.0


@given(
    samples=st.integers(1, 40),
    waited_s=st.floats(0, 0.02),
    gap_s=st.floats(1e-6, 1.0),
    spare_s=st.floats(-0.01, 0.1),
    others=st.integers(0, 50),
    alone=st.booleans(),
)
def test_a_wait_never_endangers_a_deadline_nor_outlasts_what_it_could_save(
    samples: int, waited_s: float, gap_s: float, spare_s: float, others: int, alone: bool
) -> None:
    waits = company_wait_s(
        GPU, samples, max_batch=16, waited_s=waited_s, gap_s=gap_s, spare_s=spare_s, others=others, alone=alone
    )
    assert waits == 0.0 or SHORTEST_WAIT_S <= waits <= min(spare_s, GPU.setup_s - waited_s)


@given(samples=st.integers(1, 60), head=st.integers(1, 20), longest_s=st.sampled_from([0.001, 0.006, 0.01, inf]))
def test_a_batch_takes_what_fits(samples: int, head: int, longest_s: float) -> None:
    samples = max(samples, head)
    room = batch_room(GPU, samples, head=head, max_batch=16, longest_s=longest_s)
    assert room == 0 or head <= room <= max(head, min(samples, 16))
    assert room == 0 or GPU.cautious_s(room) <= longest_s
    assert room > 0 or GPU.cautious_s(head) > longest_s
