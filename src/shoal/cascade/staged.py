"""A compiled pipeline that answers with a cheap stage where its certificate lets it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.cascade.certificate import Aim, Certificate, Expected, Outcome, Test, boldest, choose_test, rows_needed
from shoal.cascade.plan import increase
from shoal.cascade.program import Answers, Program, Rule, Stage
from shoal.cascade.roles import fingerprints, fresh_rows
from shoal.cascade.steps.base import Array, Floats
from shoal.cascade.table import Key, Table, digest, require_rows, row_hashes
from shoal.cascade.topk import Beaten, TopK, best
from shoal.core import Invalid

Places = NDArray[np.intp]


class StagedPipeline:
    """A compiled pipeline and the stages before it. `predict`, `predict_proba` and `decision_function` take what the
    pipeline takes. Without a certificate every row takes the full path."""

    def __init__(self, program: Program, columns: Sequence[Key], *, original: Any = None) -> None:
        self._full = program.full
        self._staged: Program | None = None
        self._stages: list[Stage] = []
        self.columns = tuple(columns)
        self.kinds: dict[Key, str] = {}
        """Of each column: `text`, or `number`."""
        self._keys = dict.fromkeys(self.columns).keys()
        self._read = tuple({key: None for group in program.groups for key in group.columns})
        """Columns that a prediction needs, as the original needs no others."""
        self.original = original
        self.prefer_original = False
        """Whether the original's own code was faster: then it answers, in the process that has it."""
        self.rules: tuple[tuple[Rule, ...], ...] = ()
        self.expected: tuple[Expected, ...] = ()
        self.test = Test.DISAGREEMENT
        self.aim = Aim(0.0)
        self.certificate: Certificate | None = None
        self.used: dict[str, NDArray[np.uint64]] = {}
        """By role, the rows that made this cascade, as fingerprints."""
        self.report: dict[str, Any] = {}
        self.digest = ""
        """Of its groups, stages and rules, where it was read from an artefact."""
        self.filter: TopK | None = None
        self.filter_stage: Stage | None = None
        self._filter_program: Program | None = None

    # ---- predictions ----

    @property
    def program(self) -> Program:
        """What answers: the stages where they are certified, else the full pipeline."""
        return self._staged or self._full

    @property
    def full(self) -> Program:
        return self._full

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages before the last one, without their rules."""
        return tuple(self._stages)

    @property
    def classes_(self) -> Array:
        return self._full.output.named(np.arange(len(self._full.output.classes)))

    def predict(self, X: Any) -> Array:
        """Labels, or values for a regression."""
        if self.prefer_original and self._staged is None and self.original is not None:
            return np.asarray(self.original.predict(X))
        return self._named(self._scores(X))

    def predict_proba(self, X: Any) -> Floats:
        """rows x classes, from the stage that answered. Raises AttributeError where the model has none."""
        return self._full.output.probabilities(self._scores(X))

    def decision_function(self, X: Any) -> Floats:
        """Raw scores from the stage that answered: one a row for two classes and for regression."""
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def _scores(self, X: Any) -> Floats:
        """rows x outputs, from the stage that answered each row."""
        table, program = self.table(X, self._read), self._staged or self._full
        one = program.score_one(table)
        return program.run(table).scores if one is None else np.array([one[0]])

    def answers(self, X: Any) -> tuple[Array, Places]:
        """Predictions, and by row the stage that gave them; the last stage is the full pipeline."""
        found = self.run(self.table(X))
        return self._named(found.scores), found.stages

    def run(self, table: Table) -> Answers:
        return self.program.run(table)

    def named(self, scores: Floats) -> Array:
        """Predictions of these scores."""
        return self._named(scores)

    def table(self, X: Any, names: Sequence[Key] | None = None) -> Table:
        """All columns, or those of these names. Raises ValueError where a column is missing, or a matrix has another
        number of columns."""
        table = Table.of(X)
        if table.columns.keys() == self._keys:
            return table
        if isinstance(self.columns[0], int):
            given, wanted = len(table.columns), len(self.columns)
            raise ValueError(f"X has {given} features, but the pipeline is expecting {wanted} features as input")
        return Table({key: table.column(key) for key in names or self.columns}, len(table))

    def _named(self, scores: Floats) -> Array:
        output = self._full.output
        return scores[:, 0].copy() if output.regression else output.named(output.labels(scores))

    def top_k(self, X: Any, k: int) -> Places:
        """The places of the k best rows, the best first: by value, or by the score of the second class. With a filter
        that was certified for this k few rows take the full path. Raises Invalid for more than two classes."""
        table = self.table(X)
        if k < 1 or self._full.stages[0].model.outputs != 1:
            raise Invalid("the best rows are those of a regression, or of one of two classes", where="top_k")
        if self.filter is None or self.filter.k != k or self._filter_program is None:
            return best(self._full.run(table).scores[:, 0], k)
        answers = self._filter_program.run(table)
        ranked = np.flatnonzero(answers.stages)  # by the full pipeline
        return ranked[best(answers.scores[ranked, 0], k)]

    def use_filter(self, stage: Stage, found: TopK) -> None:
        """Rank by this stage first."""
        self.filter, self.filter_stage = found, stage
        self._filter_program = Program(self._full.groups, [replace(stage, rule=Beaten(found)), *self._full.stages])

    # ---- the certificate ----

    def prepare(
        self, stages: Sequence[Stage], rules: Sequence[tuple[Rule, ...]], test: Test, aim: Aim,
        expected: Sequence[Expected] = (),
    ) -> None:  # fmt: skip
        """Stages and the candidates for their rules, strict to bold. Nothing is approximated until `certify`."""
        self._stages, self.rules, self.test, self.aim = list(stages), tuple(rules), test, aim
        self.expected = tuple(expected)
        self.certificate, self._staged = None, None

    def use(self, candidate: int) -> None:
        """Approximate by this candidate's rules."""
        rules = self.rules[candidate]
        staged = [replace(stage, rule=rule) for stage, rule in zip(self._stages, rules, strict=True)]
        self._staged = Program(self._full.groups, [*staged, *self._full.stages])

    def revoke(self) -> None:
        """Every row takes the full path from now on."""
        self._staged = None

    def certify(
        self, X: Any, y: Any = None, *, again: bool = False, leave_out_used: bool = False, units: Places | None = None
    ) -> Certificate | None:
        """Test the candidates on rows that had no part in making them, and approximate by the boldest that passes.

        Which test is used was planned before: without labels, that of disagreement. Labels may be missing (None or
        NaN); where a missing one would count, the worst is assumed. Returns None, and approximates nothing, when none
        passes. Raises Invalid for rows that were used before, unless `again` allows those that certified, or
        `leave_out_used` leaves all of them out.
        """
        if not self.rules:
            raise Invalid("there is nothing to certify: no row is approximated", where="cascade")
        table = self.table(X)
        require_rows(table, y)
        hashes = row_hashes(table)
        kept, repeated = fresh_rows(hashes, self.used, again=again, leave_out=leave_out_used)
        if len(kept) < len(table):
            table, hashes = table.take(kept), [hashes[row] for row in kept.tolist()]
            y = None if y is None else [y[row] for row in kept.tolist()]
            units = None if units is None else np.unique(units[kept], return_inverse=True)[1]
        unit_count = len(table) if units is None else int(units.max()) + 1
        test = self.test if y is not None else Test.DISAGREEMENT
        if y is not None and self.expected:
            full_cost = max(one.cost for one in self.expected)
            test, _ = choose_test(self.expected, self.aim, unit_count, full_cost, labels=True)
        results = _Results(self, table, y)
        found = boldest(results.outcome, len(self.rules), test, self.aim, units)
        self.used["certify"] = np.union1d(self.used.get("certify", np.empty(0, np.uint64)), fingerprints(hashes))
        if found is None:
            self.certificate = None
            self.revoke()
            self.report["reason"] = self._why_none(results.outcome(0), unit_count)
            self.report["approximated"] = 0.0
            return None
        candidate, outcome = found
        self.use(candidate)
        regression = self._full.output.regression
        self.certificate = Certificate(
            test.value, self.aim.tolerance, self.aim.confidence, len(table), unit_count,
            int(np.count_nonzero(outcome.differs)), outcome.approximated, candidate, len(self.rules), digest(hashes),
            repeated, self.aim.clip if regression else None, "absolute error" if regression else "accuracy",
        )  # fmt: skip
        self.report["approximated"] = outcome.approximated
        self.report.pop("reason", None)
        return self.certificate

    def rows_to_label(self, X: Any) -> Places:
        """The rows whose labels a test of the loss needs: those on which a candidate differs from the full pipeline."""
        results = _Results(self, self.table(X), None)
        return np.flatnonzero(np.any([results.outcome(one).differs for one in range(len(self.rules))], axis=0))

    def _why_none(self, strictest: Outcome, units: int) -> str:
        need = rows_needed(self.aim.relative, self.aim.confidence)
        if units < need:
            return f"at least {need:,} rows without a disagreement are needed; there are {units:,}"
        differing = int(np.count_nonzero(strictest.differs))
        return f"the strictest candidate differs from the full pipeline on {differing:,} of {units:,} rows: too many"

    # ---- reports and files ----

    def explain(self) -> dict[str, Any]:
        """Cost and importance of groups, the plan, what it saved, the certificate, and what stays Python."""
        certificate = None if self.certificate is None else self.certificate.as_json()
        if certificate is not None and self.certificate is not None:
            certificate["statement"] = self.certificate.statement
        top = None if self.filter is None else {**self.filter.as_json(), "statement": self.filter.statement}
        return {**self.report, "certificate": certificate, "top_k": top}


class _Results:
    """All stages' answers on the same rows, from which each candidate's outcome follows."""

    def __init__(self, cascade: StagedPipeline, table: Table, y: Any) -> None:
        self._cascade = cascade
        self._output = cascade.full.output
        self._scores = stage_scores(cascade, table)
        self._answers = [self._answer(scores) for scores in self._scores]
        self._truth = None if y is None else self._encoded(y)

    def outcome(self, candidate: int) -> Outcome:
        full = self._answers[-1]
        given, pending = full.copy(), np.ones(len(full), bool)
        rules = self._cascade.rules[candidate]
        for scores, answer, rule in zip(self._scores, self._answers, rules, strict=False):
            taken = pending & rule.sure(scores, self._output)
            given[taken] = answer[taken]
            pending &= ~taken
        approximated = 1.0 - float(pending.mean())
        if self._output.regression:
            return self._values(given, full, approximated)
        losses = None
        if self._truth is not None:
            losses = (given != self._truth).astype(np.float64) - (full != self._truth)
            losses[(self._truth == _MISSING) & (given != full)] = 1.0
        return Outcome(given != full, losses, approximated)

    def _values(self, given: Floats, full: Floats, approximated: float) -> Outcome:
        clip = self._cascade.aim.clip
        apart = np.minimum(np.abs(given - full), clip) / clip
        losses = None
        if self._truth is not None:
            missing = np.isnan(self._truth)
            losses = np.where(missing, apart, increase(given, full, np.where(missing, 0.0, self._truth), clip))
        return Outcome(apart, losses, approximated)

    def _answer(self, scores: Floats) -> Any:
        return scores[:, 0] if self._output.regression else self._output.labels(scores)

    def _encoded(self, y: Any) -> Any:
        if self._output.regression:
            return np.array([np.nan if one is None else one for one in y], np.float64)
        place = {one: at for at, one in enumerate(self._output.classes)}
        values = y.tolist() if hasattr(y, "tolist") else list(y)
        return np.array([_MISSING if one is None or one != one else place.get(one, -1) for one in values], np.intp)


_MISSING = -2
"""A label that is not known. -1 is one that no class has: both pipelines are wrong there."""


def stage_scores(cascade: StagedPipeline, table: Table) -> list[Floats]:
    """By stage, the scores that it has of every row; the last is the full pipeline's."""
    return [alone(cascade.full, stage).run(table).scores for stage in [*cascade.stages, *cascade.full.stages]]


def alone(full: Program, stage: Stage) -> Program:
    """One stage that answers every row."""
    groups = [full.groups[place] for place in stage.groups]
    return Program(groups, [replace(stage, groups=tuple(range(len(groups))), rule=None)])
