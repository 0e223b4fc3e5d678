"""A compiled pipeline: feature groups, and the stages of models that read them.

A group is a chain of steps on some columns, and a contiguous range of the model's input: the unit that costs, matters
and may be left out. A stage is a model of some groups; the last stage has all of them, and is the full pipeline. A row
goes from stage to stage until one is sure of it. With linear models no features are made: each group's terms are
multiplied at once with the weights of this stage and of all later ones.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from shoal.cascade.models.base import Model, Output
from shoal.cascade.models.linear import Linear
from shoal.cascade.rowwise import RowPath, row_path
from shoal.cascade.sharing import Keys, Rows, Shared, keys_of
from shoal.cascade.steps.base import Block, Floats, Step
from shoal.cascade.steps.columns import Affine
from shoal.cascade.steps.lookup import LookupStep, fetch_together
from shoal.cascade.table import Key, Table


@dataclass(frozen=True)
class Group:
    """`columns`: what the group reads. `one`: its single column goes in as a sequence, not as a block.
    `original` does the same by the original's own code, where the pipeline was compiled in this process."""

    name: str
    columns: tuple[Key, ...]
    one: bool
    steps: tuple[Step, ...]
    width: int
    original: Callable[[Table], Any] | None = field(default=None, compare=False)

    @property
    def opaque(self) -> bool:
        return any(step.kind == "opaque" for step in self.steps)

    @property
    def lineage(self) -> tuple[Key, ...]:
        """The columns that its features depend on: a function reads whole rows, a feature of it some columns."""
        return getattr(self.steps[0], "lineage", self.columns)

    def read(self, table: Table) -> Block:
        return table.column(self.columns[0]) if self.one else table.block(self.columns)

    @property
    def lookup(self) -> LookupStep | None:
        """The look-up that it begins with."""
        first = self.steps[0]
        return first if isinstance(first, LookupStep) else None

    def features(self, table: Table, fetched: Floats | None = None) -> Block:
        """rows x width, dense or sparse. `fetched`: what the group's look-up gave, where that was done with others."""
        return self.block(table, len(self.steps), Shared(), (None,) * len(self.steps), None, fetched)

    def block(
        self, table: Table, steps: int, shared: Shared, keys: Keys, rows: Rows, fetched: Floats | None = None
    ) -> Block:
        """What its first steps make of these rows, which the table has."""
        if steps == 0:
            return self.read(table)
        if steps == 1 and fetched is not None:
            return fetched
        before: Callable[[], Block] = lambda: self.block(table, steps - 1, shared, keys, rows, fetched)  # noqa: E731
        return shared.get(keys[steps - 1], rows, lambda: self.steps[steps - 1].apply(before()))

    def projection(self, weights: Floats) -> Projection:
        """Features times weights (width x outputs), by the last step's own way where it has one."""
        steps = list(self.steps)
        while len(steps) > 1 and isinstance(steps[-1], Affine) and steps[-1].keeps_zero:
            weights = steps.pop().folded(weights)  # type: ignore[attr-defined]  # as was just seen
        *before, last = steps
        make = getattr(last, "projection", None)
        project = make(weights) if make else lambda block: np.asarray(last.apply(block) @ weights)
        return Projection(self, len(before), project)


@dataclass(frozen=True)
class Projection:
    """A group's features times weights. `project`: of what the first `steps` make; it may have a way of its own for
    one row, `one`."""

    group: Group
    steps: int
    project: Callable[[Block], Floats]

    def __call__(self, table: Table) -> Floats:
        return self.of(table, Shared(), (None,) * self.steps, None)

    def of(self, table: Table, shared: Shared, keys: Keys, rows: Rows) -> Floats:
        return self.project(self.group.block(table, self.steps, shared, keys, rows))

    def one(self, table: Table) -> Sequence[float]:
        """Of a table of one row."""
        block, way = self.group.read(table), getattr(self.project, "one", None)
        for step in self.group.steps[: self.steps]:
            block = step.apply(block)
        found: Sequence[float] = way(block) if way else self.project(block)[0].tolist()
        return found


class Rule(Protocol):
    """Whether a stage answers a row, from its scores alone."""

    def sure(self, scores: Floats, output: Output) -> NDArray[np.bool_]: ...

    def sure_of(self, scores: Sequence[float], output: Output) -> bool:
        """The same of one row."""
        ...

    def as_json(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Stage:
    """`groups`: places of the groups that the model reads, ascending. `rule`: None for the last stage."""

    groups: tuple[int, ...]
    model: Model
    rule: Rule | None = None


@dataclass(frozen=True)
class Answers:
    """`scores`: rows x outputs, from the stage that answered; `stages`: its place, by row."""

    scores: Floats
    stages: NDArray[np.intp]
    approximate: NDArray[np.bool_]
    """Rows that an unsure stage answered, since a store was away."""
    away: str = ""
    """What was wrong with the store."""


class Program:
    """Groups and stages, ready to run. One may be used by several threads."""

    def __init__(self, groups: Sequence[Group], stages: Sequence[Stage]) -> None:
        self.groups = tuple(groups)
        self._keys = keys_of(self.groups)
        self.stages = tuple(stages)
        last = self.stages[-1]
        if last.groups != tuple(range(len(self.groups))) or last.rule is not None:
            raise ValueError("the last stage reads all groups, and answers every row")
        for before, after in zip(self.stages, self.stages[1:], strict=False):
            if not set(before.groups) < set(after.groups) or before.rule is None:
                raise ValueError("each stage reads more groups than the one before")
        if len({stage.model.outputs for stage in self.stages}) != 1:
            raise ValueError("all stages have as many scores")
        self.output: Output = last.model.output
        self._new = [
            tuple(sorted(set(stage.groups) - set(before)))
            for before, stage in zip(((), *(stage.groups for stage in self.stages)), self.stages, strict=False)
        ]
        # Look-ups of a stage are made together, which needs features.
        looked_up = any(group.lookup is not None for group in self.groups)
        self._linear = not looked_up and all(isinstance(stage.model, Linear) for stage in self.stages)
        self._projections = self._fuse() if self._linear else {}
        linear = [stage.model for stage in self.stages if isinstance(stage.model, Linear)]
        self._intercepts = [float(one) for model in linear for one in model.intercept]

    @property
    def full(self) -> Program:
        """Every row by the last stage."""
        return self if len(self.stages) == 1 else Program(self.groups, self.stages[-1:])

    def run(self, table: Table, *, without_store: str = "fail") -> Answers:
        """Raises ValueError for what is no number, as the original does, and OSError where a look-up store is away;
        with `approximate` the stage before answers then, where there is one."""
        if (one := self.score_one(table)) is not None:
            return Answers(np.array([one[0]]), np.array([one[1]]), np.zeros(1, bool))
        answers = (self._run_linear if self._linear else self._run_features)(table, without_store == "approximate")
        linear = isinstance(self.stages[-1].model, Linear)
        if linear and not np.isfinite(answers.scores).all():
            raise ValueError("Input X contains NaN or infinity.")
        return answers

    def _sums_of_one(self, table: Table) -> tuple[list[float], int] | None:
        """Stages of a linear model are a few sums."""
        outputs, sums = self.stages[0].model.outputs, list(self._intercepts)
        for at, stage in enumerate(self.stages):
            begin = at * outputs
            try:
                for group in self._new[at]:
                    for place, value in enumerate(self._projections[group].one(table), begin):
                        sums[place] += value
            except OSError:
                return None
            scores = sums[begin : begin + outputs]
            if not all(map(math.isfinite, scores)):
                return None
            if stage.rule is None or stage.rule.sure_of(scores, stage.model.output):
                return scores, at
        raise AssertionError("the last stage answers every row")

    @functools.cached_property
    def _row_path(self) -> RowPath | None:
        return row_path(self.groups, self.stages)

    def score_one(self, table: Table) -> tuple[list[float], int] | None:
        """One row's scores and the stage that gave them, without arrays. None where there is no such way, or something
        is wrong."""
        if len(table) != 1:
            return None
        if self._linear:
            return self._sums_of_one(table)
        return None if table.matrix is not None or self._row_path is None else self._row_path(table)

    def _fuse(self) -> dict[int, Projection]:
        """By group, its product with the weights of the stage that first reads it and of those after."""
        made = {}
        for at, new in enumerate(self._new):
            for group in new:
                parts = []
                for stage in self.stages[at:]:
                    begin = sum(self.groups[one].width for one in stage.groups if one < group)
                    assert isinstance(stage.model, Linear)
                    parts.append(stage.model.weights[begin : begin + self.groups[group].width])
                made[group] = self.groups[group].projection(np.ascontiguousarray(np.hstack(parts)))
        return made

    def _run_linear(self, table: Table, go_on: bool) -> Answers:
        outputs = self.stages[0].model.outputs
        rows = len(table)
        sums, shared = np.tile(np.array(self._intercepts), (rows, 1)), Shared()

        def own_scores(at: int, pending: Rows, asked: Table) -> Floats:
            for group in self._new[at]:
                added = self._projections[group].of(asked, shared, self._keys[group], pending)
                if pending is None:
                    sums[:, at * outputs :] += added
                else:
                    sums[pending, at * outputs :] += added
            own = sums[:, at * outputs : (at + 1) * outputs]
            return own if pending is None else own[pending]

        return self._through(table, go_on, own_scores)

    def _run_features(self, table: Table, go_on: bool) -> Answers:
        made: dict[int, tuple[NDArray[np.intp], Block]] = {}  # by group: its rows, and their features
        shared = Shared()

        def own_scores(at: int, pending: Rows, asked: Table) -> Floats:
            rows = np.arange(len(table)) if pending is None else pending
            fetched = self._fetch(at, asked)
            for group in self._new[at]:
                of_group, keys = self.groups[group], self._keys[group]
                made[group] = rows, of_group.block(asked, len(keys), shared, keys, pending, fetched.get(group))
            for group, (of, block) in made.items():
                if len(of) > len(rows):
                    made[group] = rows, block[np.searchsorted(of, rows)]
            stage = self.stages[at]
            return stage.model.scores(stack([made[group][1] for group in stage.groups]))

        return self._through(table, go_on, own_scores)

    def _through(self, table: Table, go_on: bool, own_scores: Callable[[int, Rows, Table], Floats]) -> Answers:
        """Rows from stage to stage. `own_scores`: a stage's scores of the rows that are pending."""
        rows = len(table)
        scores = np.empty((rows, self.stages[0].model.outputs))
        stages, approximate = np.zeros(rows, np.intp), np.zeros(rows, bool)
        pending: Rows = None
        for at, stage in enumerate(self.stages):
            try:
                own = own_scores(at, pending, table if pending is None else table.take(pending))
            except OSError as error:
                if not go_on or at == 0:
                    raise
                approximate[slice(None) if pending is None else pending] = True
                return Answers(scores, stages, approximate, str(error) or type(error).__name__)
            pending = self._settle(at, stage, own, pending, scores, stages)
            if not len(pending):
                break
        return Answers(scores, stages, approximate)

    def _fetch(self, at: int, asked: Table) -> dict[int, Floats]:
        """What the look-ups of a stage's new groups give, with one request for each store."""
        steps = [(group, self.groups[group].lookup) for group in self._new[at]]
        looked_up = {group: step for group, step in steps if step is not None}
        if len(looked_up) < 2:
            return {}
        keys = {group: (group, -1) if (key := self._keys[group][0]) is None else (-1, key) for group in looked_up}
        asking = {key: group for group, key in keys.items()}  # equal look-ups ask once
        found = fetch_together([(looked_up[one], self.groups[one].read(asked)) for one in asking.values()])
        of = dict(zip(asking, found, strict=True))
        return {group: of[key] for group, key in keys.items()}

    def _settle(
        self, at: int, stage: Stage, own: Floats, pending: Rows, scores: Floats,
        stages: NDArray[np.intp],
    ) -> NDArray[np.intp]:  # fmt: skip
        """Keep the scores of the rows that this stage answers. Returns the others."""
        if pending is None:
            scores[:], stages[:] = own, at
        else:
            scores[pending], stages[pending] = own, at
        if stage.rule is None:
            return np.empty(0, np.intp)
        unsure = np.flatnonzero(~stage.rule.sure(own, stage.model.output))
        return unsure if pending is None else pending[unsure]


def stack(blocks: Sequence[Block]) -> Block:
    """Blocks beside each other: sparse where one is."""
    if any(hasattr(block, "tocsr") for block in blocks):
        from scipy.sparse import csr_matrix, hstack

        return hstack([csr_matrix(block) for block in blocks], format="csr")
    dense = [np.asarray(block, np.float64) for block in blocks]
    return dense[0] if len(dense) == 1 else np.hstack(dense)
