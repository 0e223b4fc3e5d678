"""Capacity of a server: the highest Poisson rate at which a quantile of latency keeps its objective.

A trial at one rate is stopped as soon as its outcome is sure enough (see `judge`). The next rate halves the interval
between the highest rate that kept the objective and the lowest that broke it. Far from the capacity a few hundred
requests settle a trial; only close to it are many needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shoal.core import Invalid, Reason
from shoal.measure.search.judge import Effort, Goal, Judge, Trial, Verdict
from shoal.measure.statistics import Estimate
from shoal.measure.types import Floats

_FARTHEST = 4096.0
"""A search does not leave its first guess by more than this factor."""
_FIRST_STEP, _LARGEST_STEP = 1.4, 4.0
"""Factors between the rates that are tried until the capacity lies between two of them."""
_MOST_OPEN = 3
"""Undecided trials after which a search ends; they are the dearest."""
_MOST_PROOFS = 4
"""Trials that only give the answer its ends."""


RateProbe = Callable[[float, Callable[[Floats], bool]], None]
"""`probe(rate_per_s, enough)` offers Poisson requests at this rate and hands their latencies (k,) to `enough`, in order
of schedule and with infinity for failures, until it says true."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """The answer: `rate_per_s` is between the highest rate proven to keep the goal (0 if none) and the lowest proven to
    break it (infinite if none). `reason` says why the search ended, `warnings` why the answer is not to be trusted."""

    goal: Goal
    rate_per_s: Estimate
    trials: tuple[Trial, ...]
    reason: Reason
    warnings: tuple[Reason, ...] = ()

    @property
    def requests(self) -> int:
        return sum(trial.requests for trial in self.trials)

    def as_json(self) -> dict[str, Any]:
        return {
            "slo_s": self.goal.slo_s,
            "p": self.goal.p,
            "capacity_per_s": self.rate_per_s.as_json(),
            "requests": self.requests,
            "reason": self.reason.as_json(),
            "warnings": [warning.as_json() for warning in self.warnings],
            "trials": [
                {
                    "rate_per_s": trial.rate_per_s,
                    "verdict": trial.verdict.value,
                    "requests": trial.requests,
                    "misses": trial.misses,
                    "share": trial.share.as_json(),
                }
                for trial in self.trials
            ],
        }


@dataclass(slots=True)
class _CapacitySearch:
    """Where a search stands. What is *proven* bounds the answer; an undecided trial leans to one side all the same,
    and so shows where to look next."""

    probe: RateProbe
    goal: Goal
    effort: Effort
    on_trial: Callable[[Trial], None] | None
    go_on: Callable[[], bool] | None
    trials: list[Trial] = field(default_factory=list)

    def attempt(self, rate_per_s: float) -> None:
        judge = Judge(self.goal, self.effort)
        self.probe(rate_per_s, judge)
        trial = judge.finish(rate_per_s)
        self.trials.append(trial)
        if self.on_trial is not None:
            self.on_trial(trial)

    def proven(self) -> tuple[float, float]:
        """The highest rate that kept the goal, and the lowest that broke it; 0 and infinity where there is none. Where
        trials contradict each other, the nearest ones outside the contradiction."""
        kept = [one.rate_per_s for one in self.trials if one.verdict is Verdict.KEPT]
        broken = [one.rate_per_s for one in self.trials if one.verdict is Verdict.BROKEN]
        top, bottom = max(kept, default=0.0), min(broken, default=math.inf)
        if top < bottom:
            return top, bottom
        low = max((rate for rate in kept if rate < bottom), default=0.0)
        return low, min((rate for rate in broken if rate > top), default=math.inf)

    def leaning(self) -> tuple[float, float]:
        """The neighbouring rates between which the capacity is as all trials together see it (see `_fitted`)."""
        shares = _fitted(self.trials, self.goal)
        kept = (one.rate_per_s for one, share in shares if share <= self.goal.misses_allowed)
        broken = (one.rate_per_s for one, share in shares if share > self.goal.misses_allowed)
        return max(kept, default=0.0), min(broken, default=math.inf)

    def open(self) -> int:
        """How many undecided trials are still between what is proven."""
        low, high = self.proven()
        return sum(one.verdict is Verdict.UNDECIDED and low < one.rate_per_s < high for one in self.trials)

    def lowest(self) -> float:
        return min(one.rate_per_s for one in self.trials)

    def highest(self) -> float:
        return max(one.rate_per_s for one in self.trials)

    def may_go_on(self) -> bool:
        return len(self.trials) < self.effort.most_trials and (self.go_on is None or self.go_on())


def find_capacity(
    probe: RateProbe,
    goal: Goal,
    *,
    start_per_s: float,
    effort: Effort | None = None,
    on_trial: Callable[[Trial], None] | None = None,
    go_on: Callable[[], bool] | None = None,
) -> Capacity:
    """Search from a first guess; a good one (70 % of the saturated throughput, say) saves a few trials. Before each
    further trial `go_on` is asked whether there is time for it.

    Raises Invalid for a guess that is no rate, and what the probe raises.
    """
    if not (math.isfinite(start_per_s) and start_per_s > 0):
        raise Invalid(
            f"{start_per_s:g} requests per second is not a rate", where="start", hint="give a positive number"
        )
    effort = effort or Effort()
    search = _CapacitySearch(probe, goal, effort, on_trial, go_on)
    reason = _approach(search, start_per_s)
    low, high = search.proven()
    answer = Estimate(_between(search), low, high, effort.confidence)
    return Capacity(goal, answer, tuple(search.trials), reason, _contradictions(search.trials))


def _approach(search: _CapacitySearch, start_per_s: float) -> Reason:
    """Try rates until the capacity is known as exactly as it shall be, or as trials can tell; says why it ended."""
    search.attempt(start_per_s)
    step, proofs = _FIRST_STEP, 0
    while search.may_go_on():
        low, high = search.leaning()
        if low == 0 or high == math.inf:
            # Outwards in growing steps, until it lies between two trials.
            rate = search.lowest() / step if low == 0 else search.highest() * step
            step = min(step**2, _LARGEST_STEP)
            if rate < start_per_s / _FARTHEST:
                return Reason("never-kept", f"even at {search.lowest():.3g} requests per second the goal was broken")
            if rate > start_per_s * _FARTHEST:
                return Reason("never-broken", f"even at {search.highest():.3g} requests per second the goal was kept")
            search.attempt(rate)
        elif (reason := _settled(search)) is None:
            search.attempt(math.sqrt(low * high))
        elif (end := _unproven(search)) is not None and proofs < _MOST_PROOFS:
            proofs += 1
            search.attempt(end)
        else:
            return reason
    count = len(search.trials)
    if count < search.effort.most_trials:
        low, high = search.proven()
        return Reason("time", f"the time was up after {count} trials", {"trials": count, "low": low, "high": high})
    return Reason("spent", f"no more than these {count} trials were allowed", {"trials": count})


def _settled(search: _CapacitySearch) -> Reason | None:
    """Why no rate between the neighbours would tell more."""
    low, high = search.leaning()
    if high <= low * (1 + search.effort.tolerance):
        exact = search.effort.tolerance
        return Reason("exact", f"the capacity is known to {exact:.1%}", {"tolerance": exact})
    if search.open() >= _MOST_OPEN:
        most = search.effort.most_requests
        text = "closer to the capacity than this, trials as long as allowed cannot tell kept from broken"
        return Reason("requests", text, {"most_requests": most})
    return None


def _unproven(search: _CapacitySearch) -> float | None:
    """A rate further off, where an answer that rests on leaning trials still lacks an end; None if both are proven."""
    low, high = search.proven()
    if low == 0:
        return search.lowest() / _FIRST_STEP
    return search.highest() * _FIRST_STEP if high == math.inf else None


def _between(search: _CapacitySearch) -> float:
    """The rate at which just the allowed share of requests is late: a straight line in logarithms through the fitted
    shares. Inside of what is proven, in any case."""
    low, high = search.leaning()
    if low == 0 or high == math.inf:
        return low
    fitted = _fitted(search.trials, search.goal)
    # Of the trials in which nothing was late, one far below the capacity says nothing of where it is.
    clean = max((one.rate_per_s for one, _ in fitted if not one.misses), default=0.0)
    rates, shares, weights = zip(
        *(
            (math.log(one.rate_per_s), math.log(share), _weight(one))
            for one, share in fitted
            if one.misses or one.rate_per_s == clean
        ),
        strict=True,
    )
    # Trials that were made equal stand for one, at their centre.
    levels = sorted(set(shares))
    centres = []
    for level in levels:
        members = [at for at, share in enumerate(shares) if share == level]
        centres.append(np.average([rates[at] for at in members], weights=[weights[at] for at in members]))
    at = float(np.interp(math.log(search.goal.misses_allowed), levels, centres))
    low, high = search.proven()
    return min(max(math.exp(at), low), high)


def _fitted(trials: Sequence[Trial], goal: Goal) -> list[tuple[Trial, float]]:
    """The trials in order of rate, with shares of late requests that ascend: isotonic regression, weighted by what
    each trial is worth, since more load never makes fewer requests late."""
    from scipy.optimize import isotonic_regression

    ordered = sorted((one for one in trials if one.requests), key=lambda one: one.rate_per_s)
    if not ordered:
        return []
    # Half an independent miss more, among as many requests as may have one: a trial without any has a logarithm, too,
    # as far down as it can tell, and none changes sides.
    more = 0.5 / goal.misses_allowed
    counted = [(one.misses / one.effect + 0.5) / (_weight(one) + more) for one in ordered]
    found = isotonic_regression(counted, weights=[_weight(one) for one in ordered])
    return list(zip(ordered, found.x.tolist(), strict=True))


def _contradictions(trials: Sequence[Trial]) -> tuple[Reason, ...]:
    """Where surely more requests were late at a lower rate: something else than the load has changed meanwhile."""
    ordered = sorted(trials, key=lambda one: one.rate_per_s)
    for at, lower in enumerate(ordered):
        higher = next((one for one in ordered[at + 1 :] if one.share.high < lower.share.low), None)
        if higher is not None:
            text = (
                f"{lower.late:.2%} were late at {lower.rate_per_s:.4g}/s, but only {higher.late:.2%} at "
                f"{higher.rate_per_s:.4g}/s: the server or its machine is not steady, so measure again when it is quiet"
            )
            rates = {"lower_per_s": lower.rate_per_s, "higher_per_s": higher.rate_per_s}
            return (Reason("unsteady", text, rates),)
    return ()


def _weight(trial: Trial) -> float:
    """How many independent requests it is worth."""
    return trial.requests / trial.effect
