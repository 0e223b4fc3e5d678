"""How well co-location of an unknown job is estimated from a few profiled pairs, against Gavel's estimator.

    python benchmarks/schedule_oracle.py --throughputs simulation_throughputs.json [--seeds 10] [--share 0.2]

Gavel's experiment on its own table (scheduler/simulation_throughputs.json of stanford-futuredata/gavel): 26 kinds of
single-accelerator jobs on three types; 16 of them, drawn at random, are references whose pairs with all kinds are
known; each of the 26 in turn is the new job, of which every pair with a reference is profiled with probability 0.2.
The error is the mean absolute difference of the fraction that the job keeps of its rate alone, over all types and all
partners. Rates alone are known to both. Both estimators see the same draws.

Where the new job is one of the references (16 of 26), the right answer is in the table under another name. "unseen"
counts only the other ten, and hides everything of them: no reference's rate beside the new job is known either, except
where that pair was profiled. "chosen" profiles as many pairs, the ones that the oracle asks for.

The last rows are of kinds of which nothing at all was measured: the mean absolute error of the logarithm of the ratio
of its rates on two types, over kinds left out one by one. Without a prior the oracle takes the ratio that others have
on average; with one it asks `shoal.forecast`, fitted to the same other kinds, through `shoal.core.Speeds`. "Other batch
sizes known" leaves one kind out, "models left out" all batch sizes of its model. What a model is made of was counted by
hand from the networks as they were published, and is rough.

The baseline is Gavel's estimator written anew: probabilistic matrix factorisation (10 factors, ridge 0.01, alternating
least squares), then the whole row of the reference at the smallest cosine distance. As shipped, it reads the profiled
values from the wrong columns of the table; mended, from the right ones. Intervals are 95 %, over seeds.
"""

from __future__ import annotations

import ast
import json
import sys
import time
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import numpy as np
from colocation import PairOracle, PairSource
from common import Row, parser, report
from numpy.typing import NDArray
from scipy import stats

from shoal.forecast import Features, StepTime
from shoal.forecast.speeds import InferredSpeeds
from shoal.schedule.oracle import Oracle, Sample

Array = NDArray[np.float64]

TYPES = ("k80", "p100", "v100")
REFERENCES = 16
NEW = "new"
MADE_OF = {
    "ResNet-18": (0.556e9, 11.2e6, 62), "ResNet-50": (4.1e9, 25.6e6, 161), "Transformer": (45e6 * 15, 52e6, 258),
    "LM": (35 * (200 * 33278 + 16 * 200 * 200), 14e6, 11), "Recommendation": (2 * 200 * 20108, 8.1e6, 4),
    "A3C": (4e7, 0.6e6, 18), "CycleGAN": (1.2e11, 28.3e6, 136),
}  # fmt: skip
"""Multiply-adds of one sample forward, parameters, tensors."""


class Table:
    """`alone` (kinds, types) in steps per second, `keeps` (kinds, types, kinds) fractions of it."""

    def __init__(self, path: Path) -> None:
        read = json.loads(path.read_text())
        self.kinds = [key for key in read[TYPES[0]] if ast.literal_eval(key)[1] == 1]
        self.alone = np.array([[read[type_][kind]["null"] for type_ in TYPES] for kind in self.kinds])
        self.keeps = np.array([
            [[read[type_][kind][other][0] for other in self.kinds] for type_ in TYPES] for kind in self.kinds
        ]) / self.alone[:, :, None]  # fmt: skip


def factorised(table: Array, known: Array, chance: np.random.Generator) -> Array:
    """Probabilistic matrix factorisation as the peer runs it."""
    left, right = chance.standard_normal((len(table), 10)), chance.standard_normal((table.shape[1], 10))
    product = left @ right.T
    for _ in range(100):
        before = product
        for mine, other, values, mask in ((left, right, table, known), (right, left, table.T, known.T)):
            for row in range(len(mine)):
                weighted = mask[row][:, None] * other
                mine[row] = np.linalg.solve(weighted.T @ other + 0.01 * np.eye(10), weighted.T @ values[row])
        product = left @ right.T
        if np.linalg.norm(product - before) / table.size < 1e-3:
            break
    return product


def gavel(
    table: Table, references: NDArray[np.intp], profiled: Array, new: int, chance: np.random.Generator, *, mended: bool
) -> Array:
    """(types, kinds) fractions; `profiled` (types, references) is one where measured."""
    known = table.keeps[references][:, :, references].reshape(len(references), -1)
    row = table.keeps[new]
    values = row[:, references].ravel() if mended else row.ravel()[: known.shape[1]]
    matrix = np.vstack([known, values * profiled.ravel()])
    mask = np.ones(matrix.shape)
    mask[-1] = profiled.ravel()
    if not matrix[-1].any():
        return table.keeps[references[chance.integers(len(references))]]
    full = np.where(mask > 0.0, matrix, np.clip(factorised(matrix, mask, chance), 0.0, 1.0))
    cosine = known @ full[-1] / np.linalg.norm(known, axis=1) / np.linalg.norm(full[-1])
    return table.keeps[references[int(cosine.argmax())]]


def pair(kind: str, type_: str, other: str, rate: float, other_rate: float) -> Iterator[Sample]:
    """What a run of a pair tells: both rates, or that they do not fit."""
    fits = rate > 0.0 and other_rate > 0.0
    for one, beside, per_s in ((kind, other, rate), (other, kind, other_rate)):
        lasted = 1.0 if fits else 0.0
        yield Sample("", one, type_, per_s if fits else 0.0, lasted, 0.0, beside=beside, fits=fits)


class Experiment:
    """The oracle with the references' rows, and a new job."""

    def __init__(self, table: Table, references: NDArray[np.intp], new: int) -> None:
        self.table, self.references, self.new = table, references, new
        self.others = [at for at in range(len(table.kinds)) if at != new or new in references]
        self.oracle = PairOracle()
        alone = [(table.kinds[at], table.alone[at]) for at in self.others] + [(NEW, table.alone[new])]
        self.oracle.observe(
            Sample("", kind, type_, rate, 1.0, 0.0)
            for kind, rates in alone
            for type_, rate in zip(TYPES, rates, strict=True)
        )
        self.oracle.observe(
            sample
            for first in references
            if first in self.others
            for second in self.others
            for at, type_ in enumerate(TYPES)
            for sample in list(
                pair(table.kinds[first], type_, table.kinds[second], self.rate(first, at, second),
                     self.rate(second, at, first))
            )[: 2 if second in references else 1]
        )  # fmt: skip

    def rate(self, kind: int, type_: int, other: int) -> float:
        return float(self.table.keeps[kind, type_, other] * self.table.alone[kind, type_])

    def measure(self, type_: int, reference: int) -> None:
        rates = self.rate(self.new, type_, reference), self.rate(reference, type_, self.new)
        self.oracle.observe(pair(NEW, TYPES[type_], self.table.kinds[reference], *rates))

    def choose(self) -> tuple[int, int]:
        """The pair of the new job with a reference that the oracle would profile next."""
        names = {self.table.kinds[at]: int(at) for at in self.references}
        for each in self.oracle.worth_profiling([NEW, *names], TYPES):
            if each.beside is not None and NEW in (each.kind, each.beside) and each.kind != each.beside:
                other = each.beside if each.kind == NEW else each.kind
                return TYPES.index(each.column), names[other]
        raise SystemExit("nothing is left to profile")

    def estimates(self) -> tuple[Array, Array, NDArray[np.bool_]]:
        """(types, kinds): fractions, their standard deviations, and which ones were predicted."""
        shape = (len(TYPES), len(self.table.kinds))
        keeps, std, predicted = np.zeros(shape), np.zeros(shape), np.zeros(shape, np.bool_)
        for at, type_ in enumerate(TYPES):
            for other in range(shape[1]):
                beside = self.table.kinds[other] if other in self.others else NEW
                found = self.oracle.beside(NEW, type_, beside)
                keeps[at, other] = found.throughput.per_s / self.table.alone[self.new, at]
                std[at, other] = found.throughput.std_per_s / self.table.alone[self.new, at]
                predicted[at, other] = found.source is PairSource.PAIRS
        return keeps, std, predicted


def one_seed(table: Table, seed: int, share: float) -> dict[str, float]:
    chance = np.random.default_rng(seed)
    kinds = len(table.kinds)
    references = np.sort(chance.choice(kinds, REFERENCES, replace=False))
    errors: dict[str, list[float]] = {}
    covered: list[float] = []
    cpu_s = 0.0
    for new in range(kinds):
        profiled = (chance.random((len(TYPES), REFERENCES)) <= share).astype(np.float64)
        truth = table.keeps[new]
        groups = ["all"] if new in references else ["all", "unseen"]

        def note(name: str, found: Array, groups: list[str] = groups, truth: Array = truth) -> None:
            for group in groups:
                errors.setdefault(f"{name}, {group}", []).append(float(np.abs(found - truth).mean()))

        note("shipped", gavel(table, references, profiled, new, chance, mended=False))
        note("mended", gavel(table, references, profiled, new, chance, mended=True))
        ours = Experiment(table, references, new)
        pairs = np.argwhere(profiled > 0.0)
        for at, place in pairs:
            ours.measure(int(at), int(references[place]))
        began = time.process_time()
        keeps, std, predicted = ours.estimates()
        cpu_s += time.process_time() - began
        note("oracle", keeps)
        if new in references:
            continue
        runs = predicted & (truth > 0.0)
        covered += list(np.abs(keeps - truth)[runs] <= 1.645 * std[runs])
        chosen = Experiment(table, references, new)
        for _ in pairs:
            chosen.measure(*chosen.choose())
        note("chosen", chosen.estimates()[0])
    found = {name: float(np.mean(values)) for name, values in errors.items()}
    return {**found, "covered": float(np.mean(covered)), "cpu_ms": cpu_s / kinds * 1e3}


def across_types(table: Table, known: int) -> tuple[float, float]:
    """Leaving one kind out, and measuring it on `known` types: the mean absolute error of its log rate on each of the
    others, and that of scaling a measured rate by the mean ratio of the two types."""
    ours, plain = [], []
    for new, truth in enumerate(table.alone):
        rest = np.delete(np.arange(len(table.kinds)), new)
        for measured in combinations(range(len(TYPES)), known):
            oracle = Oracle()
            oracle.observe(
                Sample("", table.kinds[at], type_, table.alone[at, column], 1.0, 0.0)
                for at in rest
                for column, type_ in enumerate(TYPES)
            )
            oracle.observe(Sample("", NEW, TYPES[column], truth[column], 1.0, 0.0) for column in measured)
            for asked in set(range(len(TYPES))) - set(measured):
                ours.append(abs(np.log(oracle.estimate(NEW, TYPES[asked]).throughput.per_s / truth[asked])))
                for base in measured:
                    ratio = np.mean(table.alone[rest, asked] / table.alone[rest, base])
                    plain.append(abs(np.log(truth[base] * ratio / truth[asked])))
    return float(np.mean(ours)), float(np.mean(plain))


def made_of(kind: str) -> tuple[str, Features]:
    """The model, and the features of a step of so many samples."""
    model, _, rest = ast.literal_eval(kind)[0].partition(" (batch size ")
    operations, parameters, tensors = MADE_OF[model]
    return model, Features(6 * operations * float(rest.rstrip(")") or 1), parameters, tensors)


def nothing_known(table: Table, *, whole_models: bool) -> tuple[float, float, float]:
    """The mean error without and with a prior, and the part of ratios within the oracle's 90 % interval."""
    features = {kind: made_of(kind) for kind in table.kinds}
    without, prior, covered = [], [], []
    for new, kind in enumerate(table.kinds):
        rest = [
            at for at, other in enumerate(table.kinds)
            if at != new and not (whole_models and features[other][0] == features[kind][0])
        ]  # fmt: skip
        steps = {
            type_: {table.kinds[at]: (features[table.kinds[at]][1], [1 / table.alone[at, column]]) for at in rest}
            for column, type_ in enumerate(TYPES)
        }
        speeds = InferredSpeeds(StepTime.fit(steps), {NEW: features[kind][1]})
        for oracle, errors in ((Oracle(), without), (Oracle(speeds), prior)):
            oracle.observe(
                Sample("", table.kinds[at], type_, table.alone[at, column], 1.0, 0.0)
                for at in rest
                for column, type_ in enumerate(TYPES)
            )
            found = [oracle.estimate(NEW, type_).throughput for type_ in TYPES]
            for first, second in combinations(range(len(TYPES)), 2):
                truth = np.log(table.alone[new, first] / table.alone[new, second])
                errors.append(abs(np.log(found[first].per_s / found[second].per_s) - truth))
            if errors is prior:
                covered += [
                    abs(np.log(one.per_s / truth)) <= 1.645 * np.sqrt(np.log1p((one.std_per_s / one.per_s) ** 2))
                    for one, truth in zip(found, table.alone[new], strict=True)
                ]
    return float(np.mean(without)), float(np.mean(prior)), float(np.mean(covered))


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--throughputs", type=Path, help="Gavel's simulation_throughputs.json")
    arguments.add_argument("--seeds", type=int, default=10)
    arguments.add_argument("--share", type=float, default=0.2, help="of the pairs with references, profiled")
    given = arguments.parse_args()
    if given.throughputs is None:
        print("nothing to do: --throughputs names Gavel's simulation_throughputs.json", file=sys.stderr)
        return 0
    table = Table(given.throughputs)
    runs = [one_seed(table, seed, given.share) for seed in range(given.seeds)]
    rows = []

    def add(label: str, name: str, unit: str, target: str = "", most: float | None = None) -> None:
        values = [run[name] for run in runs]
        half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values) if len(values) > 1 else float("nan")
        value = float(np.mean(values))
        rows.append(Row(label, value, f"{unit} ± {half:.2g}", target, None if most is None else value <= most))

    add("Gavel's estimator as shipped, all kinds", "shipped, all", "error")
    add("Gavel's estimator mended, all kinds", "mended, all", "error")
    bar = 0.03 if given.share == 0.2 else None
    add("oracle, all kinds", "oracle, all", "error", "0.03" if bar else "", bar)
    add("Gavel's estimator mended, unseen kinds", "mended, unseen", "error")
    add("oracle, unseen kinds", "oracle, unseen", "error")
    add("oracle, unseen kinds, as many pairs chosen by it", "chosen, unseen", "error")
    add("unseen pairs within the oracle's 90 % interval", "covered", "of pairs")
    add("CPU of one new job's 78 estimates, model fitted anew", "cpu_ms", "ms")
    for known in (1, 2):
        ours, plain = across_types(table, known)
        label = f"rate alone on a type from {known} other{'s' * (known > 1)}, unseen kinds"
        rows.append(Row(label, ours, f"error of log rate (scaling by the mean ratio: {plain:.2g})"))
    for label, whole_models in (("other batch sizes known", False), ("models left out", True)):
        without, prior, covered = nothing_known(table, whole_models=whole_models)
        rows.append(Row(f"nothing measured, {label}: ratio of types, no prior", without, "error of log ratio"))
        rows.append(Row(f"nothing measured, {label}: ratio of types, forecast as prior", prior, "error of log ratio"))
        rows.append(Row(f"nothing measured, {label}: rates within the 90 % interval", covered, "of rates"))
    title = f"throughput oracle, {given.share:.0%} of pairs profiled, {given.seeds} seeds"
    return report(title, rows, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
