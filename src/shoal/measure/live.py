"""The capacity search against a real server: what it costs is a few minutes of load, most of it near the answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shoal.base.arrivals import poisson
from shoal.core import Clock, Reason, SystemClock
from shoal.measure.load.generator import OpenLoad, Settings, drive, run
from shoal.measure.load.oip import Prepared, prepare
from shoal.measure.progress import OnProgress, silent
from shoal.measure.search.capacity import Capacity, find_capacity
from shoal.measure.search.concurrent import CLIENTS, FIRST_GUESS, SATURATED_S, SPARE, check, closed
from shoal.measure.search.judge import Effort, Goal, Trial
from shoal.measure.statistics import Estimate
from shoal.measure.types import Floats, LoadResult, Target

MOST_REQUESTS = 100_000
"""Of one trial. Against a real server its time is the limit that is met first, unless it is very fast: then many
requests go by in one hiccup of the machine, and say no more than one."""
_ALONE_S = 0.5
_FEWEST = 100
"""Requests a trial may take even where that is long."""


@dataclass(frozen=True, slots=True)
class LiveCapacity:
    """`alone` is one client's load, `saturated` that of many in a closed loop (None if it was not needed for a first
    guess), `loads` the trials' (in their order). `warnings` say why the answer may be the generator's and not the
    server's."""

    capacity: Capacity
    alone: LoadResult
    saturated: LoadResult | None
    loads: tuple[LoadResult, ...]
    warnings: tuple[Reason, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            **self.capacity.as_json(),
            "alone_p50_s": self.alone.quantile(0.5).as_json(),
            "saturated_per_s": self.saturated.completed_per_s() if self.saturated is not None else None,
            "warnings": [warning.as_json() for warning in self.warnings],
        }


def measure_capacity(
    target: Target,
    goal: Goal,
    *,
    effort: Effort | None = None,
    settings: Settings | None = None,
    start_per_s: float | None = None,
    trial_s: float = 30.0,
    budget_s: float = 600.0,
    clock: Clock | None = None,
    on_trial: Callable[[Trial], None] | None = None,
    on_progress: OnProgress = silent,
) -> LiveCapacity:
    """The highest Poisson rate at which the target keeps the goal. `settings.warmup_s` is spent in every trial, which
    then takes `trial_s` at most (longer only where that were fewer than 100 requests). No trial begins later than
    `budget_s` after the search.

    Raises what `prepare` does, and Unavailable if the server stops answering on the way.
    """
    effort, settings = effort or Effort(most_requests=MOST_REQUESTS), settings or Settings(warmup_s=0.5)
    prepared = run(prepare(target, encoding=settings.encoding, seed=settings.seed, timeout_s=settings.timeout_s))
    clock = clock or SystemClock()
    end_s = clock.monotonic() + budget_s
    alone = closed(prepared, 1, _ALONE_S, settings, on_progress)
    if alone.quantile(0.5).value > goal.slo_s:
        took_s = alone.quantile(0.5).value
        reason = Reason("too-slow-alone", f"even alone half the requests take longer than {took_s * 1e3:.3g} ms")
        return LiveCapacity(Capacity(goal, Estimate(0.0, 0.0, 0.0), (), reason), alone, None, (), ())
    saturated = closed(prepared, CLIENTS, SATURATED_S, settings, on_progress) if start_per_s is None else None
    guess = FIRST_GUESS * saturated.completed_per_s() if saturated is not None else start_per_s
    assert guess is not None
    loads: list[LoadResult] = []

    def probe(rate_per_s: float, enough: Callable[[Floats], bool]) -> None:
        loads.append(live_trial(prepared, rate_per_s, enough, goal, effort, settings, trial_s, len(loads), on_progress))

    capacity = find_capacity(
        probe, goal, start_per_s=guess, effort=effort, on_trial=on_trial, go_on=lambda: clock.monotonic() < end_s
    )
    return LiveCapacity(capacity, alone, saturated, tuple(loads), (*capacity.warnings, *_warnings(capacity, loads)))


def live_trial(
    prepared: Prepared,
    rate_per_s: float,
    enough: Callable[[Floats], bool],
    goal: Goal,
    effort: Effort,
    settings: Settings,
    trial_s: float,
    number: int,
    on_progress: OnProgress = silent,
) -> LoadResult:
    """One Poisson load at this rate, for `trial_s` at most, ended as soon as `enough` says so; `number` tells trials of
    one search apart."""
    # Where the rate is too much, the queue needs at least so long to grow beyond the objective.
    settings = replace(settings, warmup_s=max(settings.warmup_s, goal.slo_s))
    most = max(_FEWEST, min(SPARE * effort.most_requests, rate_per_s * trial_s))
    duration_s = settings.warmup_s + most / rate_per_s
    arrivals = poisson(rate_per_s, duration_s, seed=settings.seed * 1009 + number)
    to_skip = int((arrivals < settings.warmup_s).sum())

    def watch(samples: Sequence[Floats]) -> bool:
        nonlocal to_skip
        (latencies,) = samples
        skipped = min(to_skip, len(latencies))
        to_skip -= skipped
        return bool(len(latencies) > skipped and enough(latencies[skipped:]))

    load = OpenLoad(prepared.target, arrivals, duration_s)
    (result,) = run(
        drive([load], settings, watch=watch, late_s=goal.slo_s, prepared=[prepared], on_progress=on_progress)
    )
    check(result)
    return result


def _warnings(capacity: Capacity, loads: list[LoadResult]) -> tuple[Reason, ...]:
    """Where the generator was the bottleneck in a trial that the answer rests on."""
    ends = (capacity.rate_per_s.low, capacity.rate_per_s.high)
    found = []
    for trial, load in zip(capacity.trials, loads, strict=True):
        warning = load.bottleneck()
        if warning is not None and ends[0] <= trial.rate_per_s <= ends[1]:
            text = f"at {trial.rate_per_s:.4g}/s {warning.text}"
            found.append(Reason(warning.code, text, {**warning.facts, "rate_per_s": trial.rate_per_s}))
    return tuple(found)
