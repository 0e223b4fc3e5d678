"""The demo's checker: it must find every doubling that is there, and none that is not."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.demo.evidence import Fact, doublings, executions, read_facts, training
from shoal.demo.judge import at_once


def life(
    attempt: int, *, first: int, last: int, saved: int = 0, at: float, rank: int = 0, finished: bool = False
) -> list[Fact]:
    """One process that trains the steps `first` to `last`, one a second, beginning at `at`."""
    pid = 1000 * (rank + 1) + attempt
    ticks = count(int(at))
    facts = [Fact("started", "j", attempt, rank, pid, float(next(ticks)))]
    facts += [Fact("trained", "j", attempt, rank, pid, float(next(ticks)), step) for step in range(first, last + 1)]
    if saved:
        facts.append(Fact("saved", "j", attempt, rank, pid, float(next(ticks)), saved))
    if finished:
        facts.append(Fact("finished", "j", attempt, rank, pid, float(next(ticks))))
    return facts


def found(*lives: list[Fact]) -> list[str]:
    return [doubling.what for doubling in doublings(executions(fact for life in lives for fact in life))]


@given(steps=st.integers(2, 40), data=st.data())
def test_a_job_that_is_interrupted_and_resumed_is_never_called_doubled(steps: int, data: st.DataObject) -> None:
    lives, saved, at, attempt = [], 0, 0.0, 1
    for attempt in range(1, data.draw(st.integers(1, 4)) + 1):
        last = data.draw(st.integers(saved, steps - 1))
        kept = data.draw(st.integers(saved, last)) if last else 0
        lives.append(life(attempt, first=saved + 1, last=last, saved=kept, at=at))
        saved, at = kept, at + steps + 10
    lives.append(life(attempt + 1, first=saved + 1, last=steps, at=at, finished=True))

    assert found(*lives) == []
    told = training(executions(fact for one in lives for fact in one), "j")
    assert told.computed - told.redone == steps == told.last


def test_two_processes_of_one_rank_at_the_same_time_are_found() -> None:
    assert found(life(1, first=1, last=9, at=0), life(2, first=1, last=9, at=5)) == [
        "j rank 0 attempt 2 (pid 1002) began before j rank 0 attempt 1 (pid 1001) had ended"
    ]


def test_ranks_of_a_gang_run_together_by_right() -> None:
    gang = [life(1, first=1, last=9, at=0, rank=rank, finished=True) for rank in (0, 1)]

    assert found(*gang) == []
    assert at_once(executions(fact for rank in gang for fact in rank)) == 2


def test_training_again_what_a_checkpoint_held_is_found() -> None:
    assert found(life(1, first=1, last=6, saved=6, at=0), life(2, first=5, last=9, at=50)) == [
        "j rank 0 attempt 2 (pid 1002) trained step 5 again, which a checkpoint at 6 held"
    ]


def test_finishing_twice_is_found() -> None:
    lives = [life(1, first=1, last=3, at=0, finished=True), life(2, first=1, last=3, at=50, finished=True)]

    assert found(*lives) == ["j rank 0 finished more than once"]


def test_a_second_process_in_the_same_attempt_is_found() -> None:
    again = [
        Fact(f.fact, f.job, f.attempt, f.rank, f.pid + 1, f.at + 50, f.step) for f in life(1, first=1, last=3, at=0)
    ]

    assert found(life(1, first=1, last=3, at=0), again) == [
        "j rank 0 attempt 1 (pid 1002) and pid 1001 ran in the same attempt"
    ]


def test_one_process_that_trains_a_step_twice_is_found() -> None:
    assert found([*life(1, first=1, last=3, at=0), Fact("trained", "j", 1, 0, 1001, 9.0, 3)]) == [
        "j rank 0 attempt 1 (pid 1001) trained a step more than once"
    ]


def test_jobs_one_after_the_other_never_count_as_two_at_once() -> None:
    assert at_once(executions([*life(1, first=1, last=3, at=0), *life(2, first=4, last=6, at=4)])) <= 2
    assert at_once(executions([*life(1, first=1, last=3, at=0), *life(2, first=4, last=6, at=40)])) == 1


@pytest.mark.parametrize("torn", ["", '{"fact": "trai'])
def test_a_line_that_is_being_written_is_left_out(tmp_path: Path, torn: str) -> None:
    line = {"fact": "started", "job": "j", "attempt": 1, "rank": 0, "pid": 7, "at": 1.5}
    ledger = tmp_path / "witness.jsonl"
    ledger.write_text(json.dumps(line) + "\n" + torn)

    assert read_facts(ledger) == [Fact("started", "j", 1, 0, 7, 1.5)]
    assert read_facts(tmp_path / "absent") == []
