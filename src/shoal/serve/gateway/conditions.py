"""Condition of a model over all its replicas, from what the runtime in each of them says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean

from shoal.inference.runtime import Condition, RuntimeState

COUNTER = "_total"
"""The end of the name of a figure that only grows."""


def summed_up(conditions: Mapping[str, Condition]) -> Condition:
    """By replica. Counters are added, of other figures it is the mean; of states the first that is not well counts, and
    names its replica where there are several. The word is "" where no runtime gave one."""
    if not conditions:
        return Condition(state=RuntimeState("", well=True))
    named: dict[str, list[float]] = {}
    for one in conditions.values():
        for name, value in one.figures.items():
            named.setdefault(name, []).append(value)
    figures = {name: sum(values) if name.endswith(COUNTER) else fmean(values) for name, values in named.items()}
    replica, shown = min(conditions.items(), key=lambda item: item[1].state.is_well)
    state = shown.state
    if len(conditions) > 1 and not state.is_well:
        state = replace(state, reason=f"{replica}: {state.reason}")
    return Condition(figures, state)
