"""A round: who runs where, who restarts for it, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.core import Reason
from shoal.schedule.types import Array, Index, Mask, Problem


class Why(IntEnum):
    """Why a job is where it is; the names are the codes of reasons."""

    KEPT = 0
    HELD = 1
    STARTED = 2
    RESUMED = 3
    MOVED = 4
    SPARE = 5
    TURN = 6
    ROOM = 7
    NO_SHARE = 8
    NOWHERE = 9
    RESERVED = 10
    BEHIND = 11


Codes = NDArray[np.int8]


@dataclass(frozen=True, eq=False)
class Round:
    """One round of the jobs of `problem`. `column` (m,) is where each runs or -1, `accelerators` (m,) what it holds
    there, `nodes` which machines hold it in pools that have machines ((machine, accelerators) pairs by job). `kept`
    (m,) are jobs that stay where they are; `restarted` (m,) ran before and must be started anew: they come from another
    place, or from waiting. `share` and `deficit` (m, n) are what each should have in a column, and the seconds that it
    had too little there; `judge` finds out why it is where it is (most rounds of a simulation are never asked).
    `reserved` (m,) is the column in which places are kept free for a waiting gang, or -1."""

    number: int
    problem: Problem
    column: Index
    accelerators: Index
    kept: Mask
    restarted: Mask
    share: Array
    deficit: Array
    judge: Callable[[], Codes]
    nodes: Mapping[int, tuple[tuple[int, int], ...]]
    reserved: Index

    @cached_property
    def why(self) -> Codes:
        """(m,) `Why` of each job."""
        return self.judge()

    @cached_property
    def deficit_s(self) -> Array:
        """(m,) the deficit of each job where that is largest."""
        found: Array = self.deficit.max(axis=1, initial=0.0)
        return found

    def __iter__(self) -> Iterator[int]:
        """The jobs that run."""
        return iter(np.flatnonzero(self.column >= 0).tolist())

    def reason(self, job: int) -> Reason:
        """Why job number `job` runs where it does, or waits."""
        problem, why, column = self.problem, Why(int(self.why[job])), int(self.column[job])
        facts: dict[str, Any] = {
            "round": self.number,
            "column": problem.columns[column].name if column >= 0 else None,
            "accelerators": int(self.accelerators[job]),
            "shares": {
                problem.columns[at].name: round(float(self.share[job, at]), 6)
                for at in np.flatnonzero(self.share[job] > 0)
            },
            "deficit_s": round(float(self.deficit_s[job]), 1),
            "restarted": bool(self.restarted[job]),
        }
        return Reason(why.name.lower().replace("_", "-"), self._text(why, facts), facts)

    def _text(self, why: Why, facts: dict[str, Any]) -> str:
        where, deficit = facts["column"], f"{max(facts['deficit_s'], 0.0):.0f} s"
        texts = {
            Why.KEPT: f"keeps its place on {where}",
            Why.HELD: f"stays on {where} until its minimum run time is over",
            Why.STARTED: f"starts on {where}",
            Why.RESUMED: f"resumes on {where}: its deficit is {deficit}",
            Why.MOVED: f"moves to {where}, where its share is now",
            Why.SPARE: f"runs on {where}, which no job with a share of it can use",
            Why.TURN: f"waits for its time slice: its deficit is {deficit}, others have more",
            Why.ROOM: "waits: no pool has enough accelerators left for all of its gang",
            Why.NO_SHARE: "waits: the policy gives it no time now, and nothing is left over",
            Why.RESERVED: "waits: places are kept free for its gang until those that must stay for now may be moved",
            Why.BEHIND: f"waits: its deficit is {deficit}, and jobs that keep their places leave too little room",
            Why.NOWHERE: "waits: its gang fits in no pool (and quota) that it has a throughput for",
        }
        return texts[why]
