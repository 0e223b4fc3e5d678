"""Whether a cache of looked-up features pays: the rows' keys are replayed in the order in which they came.

A row alone waits for a request unless all of its keys are cached. So a cache pays if the requests that it saves take
longer than the search in it. The trace has no times, so how values age is not in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from shoal.cascade.program import Group, Program
from shoal.cascade.steps.lookup import LookupStep
from shoal.cascade.stores import CachedStore, Store, open_store
from shoal.cascade.table import Table

WORTH_IT = 0.8
"""A cache that saves less than a fifth of the time is left out: its values are older than the store's."""
MEASURED_ROWS = 40
MOST_TRACED_ROWS = 50_000
Clock = Callable[[], float]
Place = tuple[str, float, int, float]


def choose_caches(
    program: Program, trace: Table, clock: Clock = time.perf_counter, opened: Callable[[str, float], Store] = open_store
) -> tuple[Program, list[dict[str, Any]]]:
    """The program without the caches that do not pay, and what was found of each. `trace`: rows as they came."""
    steps = {group.name: group.lookup for group in program.groups}
    places = dict.fromkeys(step.place for step in steps.values() if step is not None and step.cache_bytes)
    found = [_measured(place, program, trace, clock, opened) for place in places]
    if not found:
        return program, []
    off = {place for place, one in zip(places, found, strict=True) if not one["on"]}
    groups = [_without_cache(group) if step and step.place in off else group
              for group, step in zip(program.groups, steps.values(), strict=True)]  # fmt: skip
    return Program(groups, program.stages), found


def _measured(
    place: Place, program: Program, trace: Table, clock: Clock, opened: Callable[[str, float], Store]
) -> dict[str, Any]:
    url, deadline_s, most_bytes, _ = place
    members = [(group, group.lookup) for group in program.groups if group.lookup and group.lookup.place == place]
    trace = trace.take(np.arange(min(len(trace), MOST_TRACED_ROWS)))
    columns = [step.keys(group.read(trace)) for group, step in members if step is not None]
    rows = list(zip(*columns, strict=True))
    store = opened(url, deadline_s)
    for keys in rows[:MEASURED_ROWS]:
        store.get_many(keys)  # connects
    began = clock()
    for keys in rows[:MEASURED_ROWS]:
        store.get_many(keys)
    request_us = (clock() - began) / max(1, min(len(rows), MEASURED_ROWS)) * 1e6
    stand_in = _Values(max(step.columns * 8 for _, step in members if step is not None))
    cache = CachedStore(stand_in, most_bytes, float("inf"))
    began = clock()
    for keys in rows:
        cache.get_many(keys)
    cache_us = (clock() - began) / max(1, len(rows)) * 1e6
    asked = stand_in.requests / max(1, len(rows))
    return {
        "groups": [group.name for group, _ in members], "hits": cache.hits / max(1, cache.hits + cache.misses),
        "rows_that_ask": asked, "request_us": request_us, "cache_us": cache_us,
        "on": cache_us + asked * request_us < WORTH_IT * request_us,
    }  # fmt: skip


class _Values:
    """A store that has every key, and counts its requests: values of as many bytes as the real one's."""

    def __init__(self, size: int) -> None:
        self._value = bytes(size)
        self.requests = 0

    def get_many(self, keys: Any) -> list[bytes | None]:
        self.requests += 1
        return [self._value] * len(keys)


def _without_cache(group: Group) -> Group:
    first, *others = group.steps
    assert isinstance(first, LookupStep)
    return replace(group, steps=(replace(first, cache_bytes=0), *others))
