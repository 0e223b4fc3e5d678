"""The oracle's public face: reports in, estimates out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
from scipy.special import ndtri

from shoal.core import Reason, Speeds, Throughput
from shoal.schedule.oracle.beliefs import Alone, Source
from shoal.schedule.oracle.reports import Place, Reports
from shoal.schedule.oracle.samples import Sample
from shoal.schedule.types import Array


@dataclass(frozen=True, slots=True)
class Estimate:
    """A throughput in steps per second, what it came from, and the sentence for people. It is positive, except where
    the job does not fit (`Source.UNFIT`)."""

    throughput: Throughput
    source: Source
    reason: Reason


class Oracle:
    """Learns from samples, and says what each kind of job does on each column.

    Columns are keys of pools (`Column.key`: accelerator types, and unconsolidated ones). Deterministic and without a
    clock: what it believes follows from the newest samples of each job and nothing else, whatever order they came in.
    `prior`, where there is one, is asked about kinds that were measured nowhere.
    """

    def __init__(self, prior: Speeds | None = None) -> None:
        self._prior = prior
        self._reports = Reports()
        self._alone: Alone | None = None

    def observe(self, samples: Iterable[Sample]) -> None:
        """Take in what was reported."""
        for each in samples:
            self._reports.add(each)
            self._alone = None

    def forget(self, job: str) -> None:
        """The job has ended. What it taught about its kind stays."""
        if self._reports.end(job):
            self._alone = None

    def estimate(self, kind: str, column: str, *, job: str = "") -> Estimate:
        """For one job, whose own reports come first, or for any job of the kind."""
        place = Place(kind, column)
        if (own := self._reports.of_job(place, job)) is not None:
            found = Throughput(own.per_s, own.per_s * own.error)
            return Estimate(found, Source.MEASURED, self._reason(place, Source.MEASURED, found))
        alone = self._of_kinds([kind], [column])
        at = alone.kinds.index(kind), alone.columns.index(column)
        rate, source = float(alone.rates.rate[at]), Source(int(alone.rates.source[at]))
        found = Throughput(rate, rate * float(alone.rates.doubt[at]))
        return Estimate(found, source, self._reason(place, source, found))

    def throughputs(self, kind: str, columns: Sequence[str], *, job: str = "") -> dict[str, Throughput]:
        """For `JobView.throughput`: all columns but those that the kind is known not to fit on."""
        rate, std = self.rates([(job, kind)], columns)
        found = zip(columns, rate[0], std[0], strict=True)
        return {column: Throughput(float(per_s), float(doubt)) for column, per_s, doubt in found if per_s > 0.0}

    def rates(self, jobs: Sequence[tuple[str, str]], columns: Sequence[str]) -> tuple[Array, Array]:
        """For `Problem.rate` and `Problem.rate_std`: (m, n) each, of jobs by id and kind."""
        kinds = list(dict.fromkeys(kind for _, kind in jobs))
        beliefs = self._of_kinds(kinds, columns)
        kind_at = {kind: at for at, kind in enumerate(beliefs.kinds)}
        column_at = {column: at for at, column in enumerate(beliefs.columns)}
        picked = np.ix_([kind_at[kind] for _, kind in jobs], [column_at[column] for column in columns])
        rate = beliefs.rates.rate[picked]
        std = rate * beliefs.rates.doubt[picked]
        row_of = {each: row for row, each in enumerate(jobs)}
        for at, column in enumerate(columns):
            for kind in kinds:
                place = Place(kind, column)
                for job in self._reports.live.get(place, ()):
                    row, own = row_of.get((job, kind)), self._reports.of_job(place, job)
                    if row is not None and own is not None:
                        rate[row, at], std[row, at] = own.per_s, own.per_s * own.error
        return rate, std

    def as_json(self) -> dict[str, Any]:
        """The whole state, in JSON's values; `from_json` gives an oracle that believes exactly the same."""
        return self._reports.as_json()

    @classmethod
    def from_json(cls, state: Mapping[str, Any], prior: Speeds | None = None) -> Self:
        """Raises `Invalid` for what `as_json` did not write."""
        found = cls(prior)
        found._reports = Reports.from_json(state)
        return found

    def _of_kinds(self, kinds: Iterable[str], columns: Iterable[str]) -> Alone:
        """Beliefs of all that was reported and of what is asked for, kept until there are more reports."""
        kept, asked, wanted = self._alone, set(kinds), set(columns)
        if kept is not None and asked <= set(kept.kinds) and wanted <= set(kept.columns):
            return kept
        places = self._reports.places
        names = sorted(asked | {place.kind for place in places if not place.beside})
        order = sorted(wanted | {place.column for place in places})
        kind_at, column_at = _positions(names), _positions(order)
        measured, doubt = (np.full((len(names), len(order)), np.nan) for _ in range(2))
        for place in places:
            if not place.beside:
                at = (kind_at[place.kind], column_at[place.column])
                measured[at], doubt[at] = self._reports.of_kind(place)
        told = None if self._prior is None else partial(self._told, self._prior, order)
        found = self._alone = Alone(names, order, measured, doubt, told)
        return found  # a thread beside may have others kept since

    @staticmethod
    def _told(prior: Speeds, columns: Sequence[str], kind: str) -> tuple[Array, Array]:
        """What the prior forecasts of a kind on columns: log rates and their variances, NaN where it knows nothing."""
        log_rate, variance = np.full(len(columns), np.nan), np.full(len(columns), np.nan)
        for at, column in enumerate(columns):
            if (found := prior.steps_per_s(kind, column)) is not None and found.low > 0.0:
                log_rate[at] = np.log(found.median)
                variance[at] = (np.log(found.high / found.low) / (2 * ndtri((1 + found.level) / 2))) ** 2
        return log_rate, variance

    def _reason(self, place: Place, source: Source, found: Throughput) -> Reason:
        """The code is the source's name."""
        rate = f"{found.per_s:.3g} ± {found.std_per_s:.2g} steps/s"
        facts: dict[str, Any] = {
            "kind": place.kind, "column": place.column, "per_s": found.per_s, "std_per_s": found.std_per_s,
        }  # fmt: skip
        if source is Source.COLUMNS:
            beliefs = self._of_kinds([place.kind], [place.column])
            known = ~np.isnan(beliefs.logs[beliefs.kinds.index(place.kind)])
            facts["from"] = [column for column, is_known in zip(beliefs.columns, known, strict=True) if is_known]
        text = {
            Source.MEASURED: f"measured, {rate}",
            Source.KIND: f"measured with other jobs of the kind, {rate}",
            Source.COLUMNS: f"predicted from {', '.join(facts.get('from', ()))}, {rate}",
            Source.UNFIT: "does not fit in memory",
            Source.FORECAST: f"forecast, {rate}",
            Source.GUESS: "unknown, profile it",
        }[source]
        return Reason(source.name.lower(), f"{place.kind} on {place.column}: {text}", facts)


def _positions(names: Sequence[str]) -> dict[str, int]:
    return {name: at for at, name in enumerate(names)}
