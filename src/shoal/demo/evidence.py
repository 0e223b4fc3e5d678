"""Evidence that the workloads recorded themselves, judged without asking the server.

An *execution* is one process of one rank of one job. A job was run twice in three cases: two executions of a
rank were alive at the same time, a rank finished more than once, or a step was computed again although a complete
checkpoint already held it. Repeating steps after the last checkpoint does not count: a crash explains it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of the ledger. `at` is the machine's monotonic clock; `step` is absent for `started` and `finished`."""

    fact: str
    job: str
    attempt: int
    rank: int
    pid: int
    at: float
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Execution:
    """One process of one rank: from its first sign of life to its last."""

    job: str
    attempt: int
    rank: int
    pid: int
    began: float
    ended: float
    steps: tuple[int, ...]
    saved: int
    """The last step that a checkpoint of this execution holds; 0 for none."""
    finished: bool

    @property
    def name(self) -> str:
        return f"{self.job} rank {self.rank} attempt {self.attempt} (pid {self.pid})"


@dataclass(frozen=True, slots=True)
class Doubling:
    """One job that was run twice, and what shows it."""

    job: str
    what: str


def read_facts(ledger: Path) -> list[Fact]:
    """All facts so far, in the order they were written. A line that is being written just now is left out."""
    try:
        lines = ledger.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    return [Fact(**json.loads(line)) for line in lines[:-1]]


def executions(facts: Iterable[Fact]) -> list[Execution]:
    """Every execution, in the order they began."""
    grouped: dict[tuple[str, int, int, int], list[Fact]] = {}
    for fact in facts:
        grouped.setdefault((fact.job, fact.attempt, fact.rank, fact.pid), []).append(fact)
    found = [
        Execution(
            *key,
            began=min(fact.at for fact in life),
            ended=max(fact.at for fact in life),
            steps=tuple(fact.step for fact in life if fact.fact == "trained" and fact.step is not None),
            saved=max((fact.step or 0 for fact in life if fact.fact == "saved"), default=0),
            finished=any(fact.fact == "finished" for fact in life),
        )
        for key, life in grouped.items()
    ]
    return sorted(found, key=lambda execution: execution.began)


def doublings(found: Sequence[Execution]) -> list[Doubling]:
    """What was run twice; empty when all is well."""
    ranks: dict[tuple[str, int], list[Execution]] = {}
    for execution in found:
        ranks.setdefault((execution.job, execution.rank), []).append(execution)
    return [doubling for lives in ranks.values() for doubling in _doublings_of_rank(lives)]


def _doublings_of_rank(lives: Sequence[Execution]) -> Iterable[Doubling]:
    for earlier, later in pairwise(lives):
        if later.began < earlier.ended:
            yield Doubling(later.job, f"{later.name} began before {earlier.name} had ended")
        if later.attempt == earlier.attempt:
            yield Doubling(later.job, f"{later.name} and pid {earlier.pid} ran in the same attempt")
    if sum(execution.finished for execution in lives) > 1:
        yield Doubling(lives[0].job, f"{lives[0].job} rank {lives[0].rank} finished more than once")
    saved = 0
    for execution in lives:
        again = [step for step in execution.steps if step <= saved]
        if again:
            yield Doubling(
                execution.job, f"{execution.name} trained step {again[0]} again, which a checkpoint at {saved} held"
            )
        if len(set(execution.steps)) < len(execution.steps):
            yield Doubling(execution.job, f"{execution.name} trained a step more than once")
        saved = max(saved, execution.saved)


@dataclass(frozen=True, slots=True)
class Training:
    """All executions of one job's rank 0, put together. `redone` counts steps computed more than once."""

    began_after: Mapping[int, int]
    """The last step before each attempt's first one; 0 where it began from nothing. Attempts that were ended before
    their first step are left out."""
    computed: int
    redone: int
    last: int


def training(found: Iterable[Execution], job: str) -> Training:
    """How the steps of a job were computed over all its executions."""
    lives = [execution for execution in found if execution.job == job and execution.rank == 0]
    steps = [step for execution in lives for step in execution.steps]
    return Training(
        began_after={execution.attempt: execution.steps[0] - 1 for execution in lives if execution.steps},
        computed=len(steps),
        redone=len(steps) - len(set(steps)),
        last=max(steps, default=0),
    )
