"""Costs of a prediction, by group: measured again and again, interleaved, before and after compilation."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from shoal.cascade.models.network import Evaluator, Network, onnx_is_there
from shoal.cascade.program import Program, stack
from shoal.cascade.table import Table

ROUNDS = 7
"""Of each measurement; the median is the figure, so that one pause of the machine makes no difference."""
BATCH_ROWS = 1000
SINGLE_ROWS, FEW_ROWS = 50, 8
"""A row alone, compiled and by the original's code, which takes milliseconds."""
Clock = Callable[[], float]


@dataclass(frozen=True)
class Cost:
    """Microseconds a row: the median over rounds, and the spread between the quartiles."""

    us: float
    spread_us: float

    def as_json(self) -> dict[str, float]:
        return asdict(self)


@dataclass(frozen=True)
class GroupCost:
    """A group's features: by the original's code, where that is known, and compiled; in a batch and a row at a time."""

    before: Cost | None
    before_single: Cost | None
    batch: Cost
    single: Cost

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def interleaved(
    calls: Mapping[str, tuple[Callable[[], object], int]], rounds: int = ROUNDS, clock: Clock = time.perf_counter
) -> dict[str, Cost]:
    """Run each call once a round, in turn. A call comes with the rows that it handles."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for call, _ in calls.values():
        call()  # builds what is built on first use
    for _ in range(rounds):
        for name, (call, rows) in calls.items():
            began = clock()
            call()
            seconds[name].append((clock() - began) / rows * 1e6)
    return {name: _cost(of) for name, of in seconds.items()}


def group_costs(program: Program, table: Table, weights: int = 2, clock: Clock = time.perf_counter) -> list[GroupCost]:
    """Of each group of the program on rows of the table. For linear models a group is timed with its weights, two
    columns for each output, since a cascade multiplies with those of two stages at once."""
    batch = table.take(np.arange(min(len(table), BATCH_ROWS)))
    singles = [table.take(np.array([row])) for row in range(min(len(table), SINGLE_ROWS))]
    linear = program.stages[-1].model.kind == "linear"
    calls: dict[str, tuple[Callable[[], object], int]] = {}
    for place, group in enumerate(program.groups):
        run: Callable[[Table], object] = group.features
        one = run
        if linear:
            run = group.projection(np.full((group.width, weights * program.stages[-1].model.outputs), 0.5))
            one = run.one
        calls[f"batch {place}"] = (_on(run, [batch]), len(batch))
        calls[f"single {place}"] = (_on(one, singles), len(singles))
        if group.original is not None:
            calls[f"before {place}"] = (_on(group.original, [batch]), len(batch))
            few = singles[:FEW_ROWS]
            calls[f"before single {place}"] = (_on(group.original, few), len(few))
    measured = interleaved(calls, clock=clock)
    return [
        GroupCost(
            measured.get(f"before {place}"), measured.get(f"before single {place}"),
            measured[f"batch {place}"], measured[f"single {place}"],
        )
        for place in range(len(program.groups))
    ]  # fmt: skip


def model_cost(program: Program, table: Table, clock: Clock = time.perf_counter) -> dict[str, Cost]:
    """Of the model by itself, in a batch and a row at a time: of a linear one that is a part of its groups' costs."""
    batch = table.take(np.arange(min(len(table), BATCH_ROWS)))
    features = stack([group.features(batch) for group in program.groups])
    rows = [features[row : row + 1] for row in range(min(len(batch), SINGLE_ROWS))]
    scores = program.stages[-1].model.scores
    calls = {"batch": (_on(scores, [features]), len(batch)), "single": (_on(scores, rows), len(rows))}
    return interleaved(calls, clock=clock)


def compare(
    ways: Mapping[str, Callable[[Any], object]], batch: tuple[Any, int], singles: Sequence[Any],
    clock: Clock = time.perf_counter,
) -> dict[str, dict[str, Cost]]:  # fmt: skip
    """Several ways to predict the same rows: by way its cost in a batch and a row at a time."""
    calls: dict[str, tuple[Callable[[], object], int]] = {}
    for name, run in ways.items():
        calls[f"batch {name}"] = (_on(run, [batch[0]]), batch[1])
        calls[f"single {name}"] = (_on(run, singles), len(singles))
    measured = interleaved(calls, rounds=5, clock=clock)
    return {name: {"batch": measured[f"batch {name}"], "single": measured[f"single {name}"]} for name in ways}


def choose_evaluator(
    program: Program, table: Table, objective: str, clock: Clock = time.perf_counter
) -> tuple[Program, dict[str, Cost]]:
    """The program with the faster evaluator of its model, and what each costs, where there are several. For the
    objective `single` a row at a time counts, else a batch."""
    stage, groups = program.stages[-1], program.groups
    model = stage.model
    if not isinstance(model, Network) or not onnx_is_there():
        return program, {}
    features = stack([group.features(table) for group in groups])
    rows = [features[row : row + 1] for row in range(min(len(table), SINGLE_ROWS))]
    inputs = rows if objective == "single" else [features]
    ways = {each: replace(model, evaluator=each) for each in Evaluator}
    per_call = len(rows) if objective == "single" else len(table)
    measured = interleaved({name: (_on(one.scores, inputs), per_call) for name, one in ways.items()}, clock=clock)
    best = min(ways, key=lambda each: measured[each].us)
    return Program(groups, [*program.stages[:-1], replace(stage, model=ways[best])]), measured


def _on(run: Callable[[Any], object], inputs: Sequence[Any]) -> Callable[[], None]:
    def call() -> None:
        for one in inputs:
            run(one)

    return call


def _cost(values: list[float]) -> Cost:
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return Cost(float(middle), float(high - low))
