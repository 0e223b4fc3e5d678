"""Cascades served: the runtime `cascade`.

Inputs are the pipeline's columns: BYTES for text and categories, FP64 for numbers; one input `X` where the pipeline
takes a matrix. Outputs are `predict`, and `predict_proba` where the model has probabilities. By row, `stage` is the one
that answered, for a request that names it or has the parameter `explain`. By row, `approximate` says whether a store
was away and an unsure stage answered: to every request where the option `without_store` allows that, else as `stage`.

States: CERTIFIED; UNCERTIFIED (every row takes the full path, for there is no certificate, or it is of another version,
or for other columns, stages or code); DRIFTED (the same, since the cascade no longer agrees
with its full pipeline, until a new certificate is deployed); WATCHING (no idle time to look for an hour);
DEGRADED (a look-up store is away).
"""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.cascade.artefact import read
from shoal.cascade.cascade import Cascade
from shoal.cascade.certificate import Test, upper_bound
from shoal.cascade.drift import DriftTest
from shoal.cascade.options import CascadeOptions
from shoal.cascade.steps.base import Array
from shoal.cascade.table import TEXT, Table
from shoal.core import Invalid, Unavailable
from shoal.inference import (
    BadModel,
    BadRequest,
    DataType,
    ModelSpec,
    RuntimeState,
    TensorSpec,
    describe,
    place,
    read_model,
)

MATRIX = "X"
MOST_WAITING = 256
"""Sampled rows that wait for idle time; of more the oldest are dropped. A replica without idle time says that it is
blind, and needs no memory for it."""
BLIND_AFTER_S = 3600.0
Clock = Callable[[], float]


def check_file(spec: ModelSpec) -> None:
    """Raises BadModel for a file that is damaged or no artefact, and for options that the artefact does not allow."""
    _read(spec)


class CascadeRuntime:
    """A `.cascade` file. Raises BadModel for one that it cannot or must not load."""

    def __init__(self, spec: ModelSpec, clock: Clock = time.monotonic) -> None:
        self._cascade = _read(spec)
        self._options = CascadeOptions(**spec.options)
        self._clock = clock
        self._where = place(spec)
        approximates = self._options.without_store == "approximate"
        self.metadata = describe(
            spec, "shoal_cascade", _inputs(self._cascade), _outputs(self._cascade),
            on_request=("stage",) if approximates else ("stage", "approximate"),
            always=("approximate",) if approximates else (),
        )  # fmt: skip
        certificate = self._cascade.certificate
        self._identity = "" if certificate is None else f"{certificate.data}:{self._cascade.digest}"
        self._test = None if certificate is None else DriftTest(_certified_rate(self._cascade))
        self._draw = np.random.default_rng(int.from_bytes(self._identity.encode()[:8] or b"0", "big"))
        self._next = self._gap() - 1
        self._waiting: deque[tuple[Table, Array]] = deque(maxlen=MOST_WAITING)
        self._looked_at = clock()
        self._away = ""
        self._counts = self._no_counts()

    def _no_counts(self) -> dict[str, int]:
        names = ("rows", "approximated", "sampled", "differing", "dropped")
        stages = (f"stage_{number}" for number in range(len(self._cascade.stages) + 1))
        return dict.fromkeys((*names, *stages), 0)

    def warmed_up(self) -> None:
        """Forget the rows of the warm-up, which are nobody's."""
        self._counts = self._no_counts()
        self._waiting.clear()
        self._test = None if self._test is None else DriftTest(self._test.rate)

    # ---- requests ----

    def run(self, inputs: Mapping[str, Array], outputs: Sequence[str]) -> Mapping[str, Array]:
        table = self._table(inputs)
        drifted = self._test is not None and self._test.drifted
        program = self._cascade.full if drifted else self._cascade.program
        try:
            answers = program.run(table, without_store=self._options.without_store)
        except OSError as error:  # a store is away or too slow
            self._away = str(error)
            raise Unavailable(f"a look-up store is away: {error}", where=self._where, hint="try again") from error
        except (ValueError, TypeError, AttributeError) as error:
            raise BadRequest(str(error), where=self._where) from error
        self._away = answers.away
        last = len(self._cascade.stages)
        stages = answers.stages + (last + 1 - len(program.stages))  # the full path alone is the last stage, too
        self._counts["rows"] += len(table)
        self._counts["approximated"] += int((stages < last).sum())
        for number, count in enumerate(np.bincount(stages, minlength=last + 1).tolist()):
            self._counts[f"stage_{number}"] += count
        if len(program.stages) > 1:
            self._sample(table, answers.scores, stages, last)
        makers: dict[str, Callable[[], Array]] = {
            "predict": lambda: self._cascade.named(answers.scores),
            "predict_proba": lambda: self._cascade.full.output.probabilities(answers.scores),
            "stage": lambda: stages.astype(np.int64),
            "approximate": lambda: answers.approximate,
        }
        return {name: makers[name]() for name in outputs or [each.name for each in self.metadata.outputs]}

    def _table(self, inputs: Mapping[str, Array]) -> Table:
        if MATRIX in inputs and isinstance(self._cascade.columns[0], int):
            return self._cascade.table(inputs[MATRIX])
        columns: dict[Any, Any] = {}
        for name in self._cascade.columns:
            array = inputs[str(name)]
            columns[name] = _texts(array, str(name)) if array.dtype == object else array
        sizes = {len(column) for column in columns.values()}
        if len(sizes) != 1:
            raise BadRequest(f"inputs of different lengths: {sorted(sizes)}", where=self._where)
        return Table(columns, sizes.pop())

    # ---- the watch for drift ----

    def _sample(self, table: Table, scores: Array, stages: NDArray[np.intp], last: int) -> None:
        """Take the rows that were drawn. One that the full pipeline answered agrees with it; the others wait for idle
        time."""
        while self._next < len(table):
            row = self._next
            self._next += self._gap()
            if stages[row] == last:
                self._look(0.0)
                continue
            self._counts["dropped"] += len(self._waiting) == MOST_WAITING
            self._waiting.append((table.take(np.array([row])), scores[row : row + 1].copy()))
        self._next -= len(table)

    def _gap(self) -> int:
        """Rows from one that is drawn to the next: each row is drawn with the same chance, and most cost no draw."""
        return int(self._draw.geometric(self._options.watch)) if self._options.watch else sys.maxsize

    def idle(self, budget_s: float) -> bool:  # noqa: ARG002
        """Run one sampled row through the full pipeline, so that a request waits for one row at most. Whether more
        wait."""
        if self._waiting:
            table, scores = self._waiting.popleft()
            try:
                full = self._cascade.full.run(table).scores
            except OSError:  # the store is away: that is no disagreement
                return False
            self._look(self._distance(scores, full))
        self._looked_at = self._clock()
        return bool(self._waiting)

    def _distance(self, scores: Array, full: Array) -> float:
        output = self._cascade.full.output
        if output.regression:
            clip = self._cascade.aim.clip
            return min(abs(float(scores[0, 0] - full[0, 0])), clip) / clip
        return float(output.labels(scores)[0] != output.labels(full)[0])

    def _look(self, distance: float) -> None:
        if self._test is None:
            return
        self._test = self._test.seen(distance)
        self._counts["sampled"] += 1
        self._counts["differing"] += distance > 0

    # ---- what is shown and kept ----

    def state(self) -> RuntimeState:
        test, certificate = self._test, self._cascade.certificate
        if test is None or certificate is None:
            reason = self._cascade.report.get("reason", "the artefact has no certificate")
            return RuntimeState("UNCERTIFIED", f"every row takes the full path: {reason}")
        if test.drifted:
            seen = f"{test.differing:g} of {test.rows:,} sampled rows differ, {test.rate:.2%} were certified"
            reason = f"every row takes the full path: {seen}; certify anew on new rows and deploy again"
            return RuntimeState("DRIFTED", reason, lasting=True)
        if self._away:
            return RuntimeState("DEGRADED", f"a look-up store is away: {self._away}")
        blind_s = self._clock() - self._looked_at
        if self._waiting and blind_s > BLIND_AFTER_S:
            return RuntimeState("WATCHING", f"no idle time to look at the full pipeline for {blind_s / 3600:.1f} h")
        return RuntimeState("CERTIFIED", certificate.statement, well=True)

    def figures(self) -> Mapping[str, float]:
        found: dict[str, float] = {f"{name}_total": float(count) for name, count in self._counts.items()}
        if self._test is not None:
            found |= {"drift_evidence": self._test.evidence, "certified_rate": self._test.rate}
        return found

    def keep(self) -> bytes:
        test = None if self._test is None else self._test.as_json()
        return json.dumps({"certificate": self._identity, "test": test}).encode()

    def restore(self, kept: bytes) -> None:
        """Go on where an earlier process stopped, with the same stages certified by the same rows: a drift is not
        forgotten. Raises ValueError for anything else."""
        try:
            data = json.loads(kept)
            if data["certificate"] != self._identity:
                raise ValueError("it was kept with another certificate")
            test = None if data["test"] is None else DriftTest.from_json(data["test"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"it is not a cascade's: {error}") from None
        if (test is None) != (self._test is None):
            raise ValueError("it was kept with another certificate")
        self._test = test

    def close(self) -> None:
        self._waiting.clear()


def _read(spec: ModelSpec) -> Cascade:
    file = read_model(spec, spec.source, ".cascade")
    try:
        return read(file.data, file.path.name, Cascade)
    except BadModel:
        raise
    except Invalid as error:
        raise BadModel(f"{file.path.name}: {error.what}", where=place(spec), hint=error.hint) from None


def _certified_rate(cascade: Cascade) -> float:
    """The rate of disagreement that the certificate stands for. The test of the loss allows more disagreement than
    loss, so there it is what the certify rows allow."""
    certificate = cascade.certificate
    assert certificate is not None
    tolerance = min(cascade.aim.relative, 0.5)
    if certificate.test == Test.DISAGREEMENT.value or cascade.full.output.regression:
        return tolerance
    return max(tolerance, upper_bound(certificate.disagreements, certificate.rows, cascade.aim.alpha))


def _inputs(cascade: Cascade) -> tuple[TensorSpec, ...]:
    if isinstance(cascade.columns[0], int):
        return (TensorSpec(MATRIX, DataType.FP64, (-1, len(cascade.columns))),)
    kinds = {name: DataType.BYTES if kind == TEXT else DataType.FP64 for name, kind in cascade.kinds.items()}
    return tuple(TensorSpec(str(name), kinds[name], (-1,)) for name in cascade.columns)


def _outputs(cascade: Cascade) -> tuple[TensorSpec, ...]:
    output = cascade.full.output
    kind = np.dtype(output.dtype or "f8").kind
    labels = {"i": DataType.INT64, "u": DataType.UINT64, "f": DataType.FP64, "b": DataType.BOOL}.get(
        kind, DataType.BYTES
    )
    found = [TensorSpec("predict", labels, (-1,))]
    if output.has_probabilities:
        found.append(TensorSpec("predict_proba", DataType.FP64, (-1, len(output.classes))))
    return (*found, TensorSpec("stage", DataType.INT64, (-1,)), TensorSpec("approximate", DataType.BOOL, (-1,)))


def _texts(array: Array, name: str) -> list[str]:
    try:
        return [one.decode() if isinstance(one, bytes) else str(one) for one in array.ravel().tolist()]
    except UnicodeDecodeError as error:
        raise BadRequest(f"it is not UTF-8: {error.reason}", where=f"input {name!r}") from None
