"""Rates of two kinds of jobs that share an accelerator, and what to measure next (after Gavel's throughput estimator).

Nothing that Shoal runs packs jobs by such rates; `baselines/space_sharing` takes them from published tables. What they
could be estimated from is measured by `schedule_oracle.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from colocation.profiling import Profile, worth_alone, worth_beside
from colocation.together import PairSource, Together
from shoal.core import Reason, Throughput
from shoal.schedule.oracle import Oracle, Sample, Source
from shoal.schedule.oracle.beliefs import Rates
from shoal.schedule.oracle.reports import Place
from shoal.schedule.types import Array

__all__ = ["PairEstimate", "PairOracle", "PairSource", "Profile"]


@dataclass(frozen=True, slots=True)
class PairEstimate:
    """As an `Estimate`; zero where the two do not fit, and where nothing is known of them."""

    throughput: Throughput
    source: Source | PairSource
    reason: Reason


class PairOracle(Oracle):
    """Says also what each kind does beside another one, and what is worth measuring."""

    _together: Together | None = None

    def observe(self, samples: Iterable[Sample]) -> None:
        super().observe(samples)
        self._together = None

    def forget(self, job: str) -> None:
        super().forget(job)
        self._together = None

    def beside(self, kind: str, column: str, other: str, *, job: str = "") -> PairEstimate:
        """For one job beside a job of the kind `other`; its own reports come first."""
        place = Place(kind, column, other)
        if (own := self._reports.of_job(place, job)) is not None:
            found = Throughput(own.per_s, own.per_s * own.error)
            return PairEstimate(found, Source.MEASURED, self._pair_reason(place, Source.MEASURED, found))
        pairs = self._of_pairs([kind, other], [column])
        at = pairs.kinds.index(kind), pairs.columns.index(column), pairs.kinds.index(other)
        rate, code = float(pairs.rates.rate[at]), int(pairs.rates.source[at])
        source = PairSource.PAIRS if code == PairSource.PAIRS else Source(code)
        found = Throughput(rate, rate * float(pairs.rates.doubt[at]))
        return PairEstimate(found, source, self._pair_reason(place, source, found))

    def pair_rates(self, kinds: Sequence[str], columns: Sequence[str]) -> Array:
        """For `Problem.pair_rate`: (kinds, kinds, n), the rate of the first kind beside the second one; zero where they
        do not fit together, and where nothing is known of pairs: no job should be packed on a guess."""
        beliefs = self._of_pairs(kinds, columns)
        rows = [beliefs.kinds.index(kind) for kind in kinds]
        order = [beliefs.columns.index(column) for column in columns]
        found = beliefs.rates.rate[np.ix_(rows, order, rows)].transpose(0, 2, 1)
        both: Array = np.where(found.transpose(1, 0, 2) > 0.0, found, 0.0)
        return both

    def worth_profiling(self, kinds: Sequence[str], columns: Sequence[str], *, pairs: bool = True) -> list[Profile]:
        """What to measure of these kinds, the best first; empty when all was measured. Gains are those of one
        measurement: ask again after each."""
        found = list(worth_alone(self._of_kinds(kinds, columns), kinds, columns))
        if pairs:
            found += worth_beside(self._of_pairs(kinds, columns), kinds, columns)
        return sorted(found, key=lambda each: (-each.gain, each.kind, each.column, each.beside or ""))

    def _of_pairs(self, kinds: Iterable[str], columns: Iterable[str]) -> Together:
        """Only kinds that were in a pair, or are asked for: there may be many others."""
        asked, wanted = set(kinds), set(columns)
        kept = self._together
        if kept is not None and asked <= set(kept.kinds) and wanted <= set(kept.columns):
            return kept
        pairs = [place for place in self._reports.places if place.beside]
        names = sorted(asked.union(*((place.kind, place.beside) for place in pairs)))
        alone = self._of_kinds(names, wanted)
        kind_at, column_at = _positions(names), _positions(alone.columns)
        shape = (len(names), len(alone.columns), len(names))
        measured, doubt = np.full(shape, np.nan), np.full(shape, np.nan)
        for place in pairs:
            first, column, second = kind_at[place.kind], column_at[place.column], kind_at[place.beside]
            measured[first, column, second], doubt[first, column, second] = self._reports.of_kind(place)
        # One that ran out of memory tells of both.
        unfit = (measured.transpose(2, 1, 0) == 0.0) & np.isnan(measured)
        measured[unfit], doubt[unfit] = 0.0, 0.0
        at = _positions(alone.kinds)
        rows = [at[name] for name in names]
        rates = Rates(alone.rates.rate[rows], alone.rates.doubt[rows], alone.rates.source[rows])
        found = self._together = Together(names, alone.columns, rates, measured, doubt)
        return found

    def _pair_reason(self, place: Place, source: Source | PairSource, found: Throughput) -> Reason:
        """The code is the source's name."""
        facts: dict[str, Any] = {
            "kind": place.kind, "column": place.column, "beside": place.beside,
            "per_s": found.per_s, "std_per_s": found.std_per_s,
        }  # fmt: skip
        rate = f"{found.per_s:.3g} ± {found.std_per_s:.2g} steps/s"
        like = ""
        if source is PairSource.PAIRS:
            pairs = self._of_pairs([place.kind, place.beside], [place.column])
            if (twin := pairs.colocation.alike[pairs.kinds.index(place.kind)]) is not None:
                facts["like"] = pairs.kinds[twin]
                like = f", as it behaves like {facts['like']}"
        text = {
            Source.MEASURED: f"measured, {rate}",
            Source.KIND: f"measured with other jobs of the kind, {rate}",
            PairSource.PAIRS: f"predicted from other pairs{like}, {rate}",
            Source.UNFIT: "does not fit in memory",
            Source.GUESS: "unknown, profile it",
        }[source]
        return Reason(source.name.lower(), f"{place.kind} on {place.column} beside {place.beside}: {text}", facts)


def _positions(names: Sequence[str]) -> dict[str, int]:
    return {name: at for at, name in enumerate(names)}
