"""Frontier of several tenants on one server: the Pareto front of rate vectors that keep every objective.

Perseus (LeMay et al., IC2E '20) ramped one tenant beside a second at a few fixed rates. Here the space of all rate
vectors is searched along rays from the origin. Rates are normalised by what each tenant gets alone, a ray is a *mix*
(shares that sum to 1), and where the front crosses it is the sum of normalised throughputs: above 1, sharing saves.

Few trials, because more load never helps: a vector below one that was kept needs no trial, nor does one above one that
was broken. Each next ray is a mix about which the trials so far leave much open and that is far from those searched,
and its search starts where the neighbours say the front should be. A trial is stopped as soon as its outcome is sure
(`judge.Judge`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike

from shoal.core import Invalid, Reason, ShoalError
from shoal.measure.search.capacity import Capacity, find_capacity
from shoal.measure.search.judge import Effort, Goal, Judge, Trial, Verdict
from shoal.measure.search.monotone import Region
from shoal.measure.search.pareto import Frontier, Gap, ParetoPoint, VectorTrial, interpolated
from shoal.measure.statistics import Estimate
from shoal.measure.types import Floats

MOST_TENANTS = 8
"""The number of mixes worth asking for grows too fast beyond."""
_LEAST_SHARE = 0.04
"""No tenant has less of a mix that is tried: its few requests would take for ever to judge."""
_CANDIDATES = 2_000
_MOST_UNDECIDED = 4
_NEARLY = 1 - 1e-9
"""A factor is found again from the vector it made up to rounding."""


class NoCapacity(ShoalError):
    """A tenant has no capacity between two proven rates, so nothing can be normalised by it."""

    code = "no-capacity"


Probe = Callable[[Mapping[str, float], Callable[[Mapping[str, Floats]], bool]], None]
"""`probe(rates_per_s, enough)` offers each tenant's Poisson requests at its rate, all at the same time, and hands their
latencies, each (k,) in order of schedule and with infinity for failures, to `enough`, until it says true."""


def find_frontier(
    probe: Probe,
    goals: Mapping[str, Goal],
    *,
    start_per_s: Mapping[str, float],
    dedicated: Mapping[str, Estimate] | None = None,
    effort: Effort | None = None,
    rays: int | None = None,
    gap: float = 0.05,
    mixes: Sequence[Mapping[str, float]] = (),
    seed: int = 0,
    on_trial: Callable[[VectorTrial], None] = lambda _: None,
    time_is_up: Callable[[], bool] = lambda: False,
) -> Frontier:
    """Search until the Pareto front is known to `gap` (in sums of normalised throughput): no mix is open by more, or
    for as many mixes in a row as there are tenants the front was where its neighbours said. Or until this number of
    `rays` was searched (None: 4 per tenant), or after the trial at whose end `time_is_up` says so: what was measured
    until then is kept, and the reason states how exactly the front is known.

    `start_per_s` are first guesses of the dedicated capacities, which are searched for first unless they are given.
    `mixes` (of rates in requests per second; only their ratios count) are searched before any other. `effort.tolerance`
    is how near the proven ends of each crossing shall be; its value is more exact. Raises Invalid, and NoCapacity for a
    tenant that keeps its objective at no rate, or at any.
    """
    effort = effort or Effort(tolerance=0.1, most_requests=10_000)
    if not 2 <= len(goals) <= MOST_TENANTS:
        raise Invalid(f"a Pareto front of {len(goals)} tenants", where="tenants", hint=f"give 2 to {MOST_TENANTS}")
    search = _Search(probe, goals, effort, on_trial, time_is_up)
    capacities = {} if dedicated else search.alone(start_per_s)
    search.begin(dedicated or {name: one.rate_per_s for name, one in capacities.items()})
    candidates = _candidates(len(goals), seed)
    most = 4 * len(goals) if rays is None else rays
    wanted = [_mix_of(search.normalised(mix)) for mix in mixes]
    surprises: list[float] = []
    while True:
        widths = search.widths(candidates)
        recent = max(surprises[-len(goals) :], default=math.inf)
        if time_is_up():
            widest = float(widths.max())
            text = f"the time is up after {search.rays} mixes; the front is known to {widest:.2f}"
            reason = Reason("time", text, {"rays": search.rays, "gap": widest})
            break
        if wanted:
            surprises.append(search.ray(wanted.pop(0)))
        elif widths.max() <= gap:
            reason = Reason("exact", f"no mix is less exactly known than {gap:g}", {"gap": gap})
            break
        elif len(surprises) >= len(goals) and recent <= gap:
            text = f"the last {len(goals)} mixes were within {recent:.3f} of what their neighbours said"
            reason = Reason("expected", text, {"surprise": recent, "gap": gap})
            break
        elif search.rays >= most:
            reason = Reason("rays", f"{search.rays} mixes were searched, as many as allowed", {"rays": most})
            break
        else:
            surprises.append(search.ray(candidates[int(np.argmax(widths * search.distances(candidates)))]))
    return search.frontier(candidates, recent, reason, capacities)


@dataclass(slots=True)
class _Search:
    probe: Probe
    goals: Mapping[str, Goal]
    effort: Effort
    on_trial: Callable[[VectorTrial], None]
    time_is_up: Callable[[], bool]
    scale: Floats = field(default_factory=lambda: np.empty(0))
    region: Region = field(init=False)
    dedicated: Mapping[str, Estimate] = field(default_factory=dict)
    points: list[ParetoPoint] = field(default_factory=list)
    trials: list[VectorTrial] = field(default_factory=list)
    rays: int = 0

    def __post_init__(self) -> None:
        self.region = Region(len(self.goals))

    def alone(self, start_per_s: Mapping[str, float]) -> dict[str, Capacity]:
        """Each tenant's capacity with no other tenant beside it."""
        missing = sorted(set(self.goals) - set(start_per_s))
        if missing:
            raise Invalid(f"there is no first guess for {missing}", where="start", hint="a rate each can surely take")
        return {name: self._capacity(name, goal, start_per_s[name]) for name, goal in self.goals.items()}

    def _capacity(self, name: str, goal: Goal, start_per_s: float) -> Capacity:
        def told(trial: Trial) -> None:
            self.on_trial(VectorTrial({name: trial.rate_per_s}, trial.verdict, trial.requests, _pressure(trial, goal)))

        def probe(rate_per_s: float, enough: Callable[[Floats], bool]) -> None:
            self.probe({name: rate_per_s}, lambda samples: enough(samples[name]))

        return find_capacity(
            probe, goal, start_per_s=start_per_s, effort=self.effort, on_trial=told,
            go_on=lambda: not self.time_is_up(),
        )  # fmt: skip

    def begin(self, dedicated: Mapping[str, Estimate]) -> None:
        for at, name in enumerate(self.goals):
            alone = dedicated[name]
            if not (alone.low > 0 and alone.high < math.inf and alone.value > 0):
                if self.time_is_up():
                    raise NoCapacity(
                        "the time was up before its capacity alone was known", where=name,
                        hint="give more time to the search, or less to each trial",
                    )  # fmt: skip
                raise NoCapacity(
                    "it keeps its objective at no rate that was tried, even alone"
                    if not alone.low > 0
                    else "it breaks its objective at no rate that was tried",
                    where=name,
                    hint="a Pareto front needs rates at which each objective holds, and others at which it does not",
                )
            axis = np.eye(len(self.goals))[at]
            self.region.add_kept(axis * (alone.low / alone.value))
            self.region.add_broken(axis * (alone.high / alone.value))
        self.dedicated = dedicated
        self.scale = np.array([dedicated[name].value for name in self.goals])
        for at, name in enumerate(self.goals):
            alone = dedicated[name]
            total = Estimate(1.0, alone.low / alone.value, alone.high / alone.value, self.effort.confidence)
            self.points.append(self._point(np.eye(len(self.goals))[at], total, 0))

    def normalised(self, rates: Mapping[str, float]) -> Floats:
        return np.array([rates.get(name, 0.0) for name in self.goals]) / self.scale

    def widths(self, candidates: Floats) -> Floats:
        return self.region.outer(candidates) - self.region.inner(candidates)

    def distances(self, candidates: Floats) -> Floats:
        """From each candidate (m, n) to the nearest mix that was searched, (m,)."""
        searched = np.array([list(point.mix.values()) for point in self.points])
        return np.asarray(np.abs(candidates[:, None, :] - searched[None, :, :]).sum(axis=2).min(axis=1))

    def ray(self, mix: Floats) -> float:
        """Find where the Pareto front crosses the mix. Returns by how much it is not where its neighbours said."""
        self.rays += 1
        tolerance = self.effort.tolerance
        corners = [self.normalised(point.rates_per_s) for point in self.points]
        expected = interpolated(corners, mix)
        on_ray: list[tuple[float, VectorTrial]] = []
        aim: float | None = expected / math.sqrt(1 + tolerance)
        step = tolerance
        while len(on_ray) < self.effort.most_trials and not (on_ray and self.time_is_up()):
            low, high = float(self.region.inner(mix)[0]), float(self.region.outer(mix)[0])
            vain = [at for at, trial in on_ray if trial.verdict is Verdict.UNDECIDED and low < at < high]
            if len(vain) > _MOST_UNDECIDED or high <= low * (1 + tolerance):
                break
            if vain:
                # The front is here. What is proven on either side shall be near, but not so near that it cannot be.
                reach = 1 + tolerance * 2 ** (len(vain) - 1)
                below, above = min(vain) / reach, max(vain) * reach
                if low >= below * _NEARLY and high <= above / _NEARLY:
                    break
                at = below if low < below * _NEARLY else above
            elif aim is not None and low < aim < high:
                at = aim
            else:
                at, aim = math.sqrt(low * high) if low > 0 else high / 2, None
            trial = self._attempt(at * mix)
            on_ray.append((at, trial))
            if aim is not None:
                # As long as no trial is on the other side, go on towards it in growing steps.
                aim = at * (1 + step) if trial.verdict is Verdict.KEPT else at / (1 + step)
                step *= 3
        low, high = float(self.region.inner(mix)[0]), float(self.region.outer(mix)[0])
        total = Estimate(_crossing(low, high, on_ray), low, high, self.effort.confidence)
        self.points.append(self._point(mix, total, len(on_ray)))
        return abs(total.value / expected - 1)

    def _attempt(self, vector: Floats) -> VectorTrial:
        rates = {name: float(rate) for name, rate in zip(self.goals, vector * self.scale, strict=True) if rate > 0}
        jury = _Jury({name: self.goals[name] for name in rates}, self.effort)
        self.probe(rates, jury)
        trial = jury.finish(rates)
        self.trials.append(trial)
        self.on_trial(trial)
        if trial.verdict is Verdict.KEPT:
            self.region.add_kept(vector)
        elif trial.verdict is Verdict.BROKEN:
            self.region.add_broken(vector)
        return trial

    def _point(self, mix: Floats, total: Estimate, trials: int) -> ParetoPoint:
        rates = mix * total.value * self.scale
        return ParetoPoint(
            {name: float(share) for name, share in zip(self.goals, mix, strict=True)},
            total,
            {name: float(rate) for name, rate in zip(self.goals, rates, strict=True)},
            trials,
        )

    def frontier(
        self, candidates: Floats, surprise: float, reason: Reason, capacities: Mapping[str, Capacity]
    ) -> Frontier:
        widths = self.widths(candidates)
        worst = int(np.argmax(widths))
        mix = {name: float(share) for name, share in zip(self.goals, candidates[worst], strict=True)}
        return Frontier(
            goals=dict(self.goals),
            dedicated=dict(self.dedicated),
            points=tuple(self.points),
            trials=tuple(self.trials),
            region=self.region,
            gap=Gap(float(widths.mean()), float(widths[worst]), mix),
            surprise=surprise,
            confidence=self.effort.confidence,
            reason=reason,
            capacities=capacities,
        )


class _Jury:
    """One judge per tenant: kept if all keep, broken if one breaks. Each is surer of itself, so that the verdict
    of all has the effort's confidence (Bonferroni)."""

    def __init__(self, goals: Mapping[str, Goal], effort: Effort) -> None:
        surer = replace(effort, confidence=1 - (1 - effort.confidence) / len(goals))
        self._goals = goals
        self._judges = {name: Judge(goal, surer) for name, goal in goals.items()}
        self._hearing = set(goals)

    def __call__(self, samples: Mapping[str, Floats]) -> bool:
        for name in sorted(self._hearing & set(samples)):
            if len(samples[name]) and self._judges[name](samples[name]):
                self._hearing.discard(name)
                if self._judges[name].verdict is not Verdict.KEPT:
                    return True  # one is broken, or cannot be told: the others do not matter any more
        return not self._hearing

    def finish(self, rates_per_s: Mapping[str, float]) -> VectorTrial:
        """The trial at these rates: no more will come."""
        trials = {name: judge.finish(rates_per_s[name]) for name, judge in self._judges.items()}
        broken = [name for name, trial in trials.items() if trial.verdict is Verdict.BROKEN]
        kept = all(trial.verdict is Verdict.KEPT for trial in trials.values())
        return VectorTrial(
            rates_per_s,
            Verdict.BROKEN if broken else Verdict.KEPT if kept else Verdict.UNDECIDED,
            sum(trial.requests for trial in trials.values()),
            max((_pressure(trial, self._goals[name]) for name, trial in trials.items() if trial.requests), default=1.0),
            broken[0] if broken else None,
        )


def _pressure(trial: Trial, goal: Goal) -> float:
    """Half a miss more than there were, so that its logarithm exists."""
    return (trial.misses + 0.5) / (trial.requests + 1) / goal.misses_allowed


def _crossing(low: float, high: float, on_ray: Sequence[tuple[float, VectorTrial]]) -> float:
    """The factor at which the pressure is 1: a straight line in logarithms between the nearest trials of the ray that
    measured less and more. Inside the interval that is proven, in any case."""
    points = [(math.log(at), math.log(trial.pressure)) for at, trial in on_ray]
    under = max((point for point in points if point[1] <= 0), default=None)
    over = min((point for point in points if point[1] > 0), default=None)
    if under and over and under[0] < over[0]:
        value = math.exp(under[0] - under[1] * (over[0] - under[0]) / (over[1] - under[1]))
    else:
        value = math.sqrt(low * high) if low > 0 else high / 2
    return min(max(value, low), high)


def _mix_of(vector: ArrayLike) -> Floats:
    taken = np.asarray(vector, dtype=np.float64)
    if not (np.isfinite(taken).all() and (taken >= 0).all() and taken.sum() > 0):
        raise Invalid("a mix needs rates that are not negative, at least one above 0", where="mixes")
    return np.asarray(taken / taken.sum())


def _candidates(tenants: int, seed: int) -> Floats:
    """Mixes to choose from, (candidates, tenants): evenly spread, the even mix first among equals."""
    if tenants == 2:
        first = np.linspace(0.0, 1.0, 201)
        spread = np.column_stack([first, 1 - first])
    else:
        spread = np.random.default_rng(seed).dirichlet(np.ones(tenants), size=_CANDIDATES)
    even = np.full((1, tenants), 1 / tenants)
    return np.concatenate([even, _LEAST_SHARE + (1 - tenants * _LEAST_SHARE) * spread])
