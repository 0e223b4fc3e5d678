"""API models of sweeps."""

from __future__ import annotations

from typing import Literal

from shoal.contract.lifecycle import JobState
from shoal.contract.view import View


class TrialView(View):
    """One trial. `best` and `last` are of the values that it reported of the sweep's metric, None before the first.
    `stopped_early`: it was hopeless."""

    index: int
    job: str
    title: str
    values: dict[str, bool | int | float | str]
    state: JobState
    step: int | None
    best: float | None
    last: float | None
    stopped_early: bool


class SweepView(View):
    """A sweep with its trials, the best first; without a metric in their own order."""

    array: str
    name: str
    tenant: str
    metric: str | None
    goal: Literal["min", "max"]
    trials: tuple[TrialView, ...]
