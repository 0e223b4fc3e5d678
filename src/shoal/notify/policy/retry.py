"""Retries: when a delivery that failed is tried again, and which are tried now. Pure."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from shoal.notify.policy.times import is_due

LONGEST_S = 3600.0
_EXPONENT = 20


def back_off_s(attempts: int, key: str, first_s: float, asked_s: float = 0.0) -> float:
    """Seconds to wait after this number of failures: `first_s`, then twice as long each time, at most an hour. It is
    spread by a quarter, so that receivers are not met by all at once. `asked_s` is what the receiver asked for; it
    counts up to the hour."""
    spread = 0.75 + 0.5 * random.Random(f"{key}/{attempts}").random()  # noqa: S311 - no secret
    grown = first_s * 2.0 ** min(max(attempts - 1, 0), _EXPONENT) * spread
    return min(max(grown, asked_s), LONGEST_S)


@dataclass(frozen=True, slots=True)
class Open:
    """A delivery that is neither made nor given up."""

    id: str
    channel: str
    """Whose receiver it is for: one delivery of a channel is under way at a time."""

    tenant: str
    next_at: float


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many deliveries are under way at a time."""

    all: int = 64
    of_tenant: int = 8


def choose(waiting: Iterable[Open], under_way: Iterable[Open], now: float, bounds: Bounds) -> list[Open]:
    """Those to try now, the one that is due first first. A receiver that never answers takes the place of its own
    channel only, and a tenant's receivers those of that tenant."""
    busy = list(under_way)
    channels, tenants, free = {one.channel for one in busy}, Counter(one.tenant for one in busy), bounds.all - len(busy)
    chosen: list[Open] = []
    for one in sorted(waiting, key=lambda one: (one.next_at, one.id)):
        if len(chosen) >= free:
            break
        if one.channel in channels or tenants[one.tenant] >= bounds.of_tenant:
            continue
        if is_due(one.next_at, now, LONGEST_S):
            chosen.append(one)
            channels.add(one.channel)
            tenants[one.tenant] += 1
    return chosen
