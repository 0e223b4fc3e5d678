"""Duration of a training on transient servers: its work, checkpoints, revocations and restarts together."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from shoal.core import Estimate, Invalid, Lifetimes

_DRAWS = 1000
_GRID_S = 60.0
_LEVEL = 0.9
_REPLACEMENTS = 10_000
"""In one training. More is years of work, and minutes of simulation."""


@dataclass(frozen=True, slots=True)
class Training:
    """Seconds of work without interruption, of one checkpoint, of work between checkpoints, and from a revocation until
    the replacement works again."""

    work_s: float
    checkpoint_s: float
    every_s: float
    restart_s: float

    def __post_init__(self) -> None:
        for name in ("work_s", "every_s", "checkpoint_s", "restart_s"):
            value = getattr(self, name)
            if not 0 <= value < math.inf or (value == 0 and name in ("work_s", "every_s")):
                least = "positive" if name in ("work_s", "every_s") else "0 or more"
                what = {"every_s": "the time between checkpoints"}.get(name, f"the time of {name.removesuffix('_s')}")
                raise Invalid(f"{what} must be {least} and finite, not {value:g} s", where=name.removesuffix("_s"))


def total_time(
    training: Training, lifetimes: Lifetimes, kind: str, region: str, *, servers: int = 1, seed: int = 0
) -> Estimate:
    """Seconds from the start of the first servers to the end of the work, on a gang of servers that are replaced when
    they are revoked. Drawn 1,000 times. The gang stops when one is revoked, what was done since the last checkpoint is
    lost, and it goes on when the replacement works; the other servers grow older meanwhile. Raises Invalid where
    servers hardly live long enough for one checkpoint, and for work that needs more than 10,000 replacements."""
    if servers < 1:
        raise Invalid(f"a gang has one server at least, not {servers}")
    survival = [1.0]
    while survival[-1] > 0:
        survival.append(lifetimes.survival(kind, region, 0.0, len(survival) * _GRID_S))
    chance = random.Random(seed)  # noqa: S311 a simulation
    drawn = sorted(_once(training, survival, servers, chance) for _ in range(_DRAWS))
    median, low, high = (drawn[round(part * (_DRAWS - 1))] for part in (0.5, (1 - _LEVEL) / 2, (1 + _LEVEL) / 2))
    gang = "" if servers == 1 else f"gangs of {servers} with "
    source = f"{_DRAWS} simulated trainings on {gang}lifetimes of {kind} in {region}"
    return Estimate(median, low, high, _LEVEL, source)


def _once(training: Training, survival: list[float], servers: int, chance: random.Random) -> float:
    begun, done = 0.0, 0.0
    ends = [_life(survival, chance.random()) for _ in range(servers)]
    for _ in range(_REPLACEMENTS):
        first = min(ends)
        left = training.work_s - done
        # The last piece of work ends the training: no checkpoint follows it.
        checkpoints = max(0, -(-left // training.every_s) - 1)
        needed = left + checkpoints * training.checkpoint_s
        if first - begun >= needed:
            return begun + needed
        saved = min(checkpoints, max(0.0, first - begun) // (training.every_s + training.checkpoint_s))
        done += saved * training.every_s
        # Another may have been revoked while the gang waited for a replacement: that one is noticed when it goes on.
        begun = max(begun, first) + training.restart_s
        ends[ends.index(first)] = begun + _life(survival, chance.random())
    if not done:
        raise Invalid("servers hardly live long enough for one checkpoint", hint="make checkpoints more often")
    raise Invalid(
        f"{_REPLACEMENTS:,} replacements do {done / training.work_s:.2%} of this work: longer is not simulated",
        where="work", hint="ask for a part of it, and multiply",
    )  # fmt: skip


def _life(survival: list[float], drawn: float) -> float:
    """The age at which the survival falls below a number between 0 and 1."""
    low, high = 0, len(survival) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if survival[middle] > drawn else (low, middle)
    fallen = survival[low] - survival[high]
    # At the longest life all that are left end together.
    part = 1.0 if survival[high] == 0 else (survival[low] - drawn) / fallen
    return (low + part) * _GRID_S
