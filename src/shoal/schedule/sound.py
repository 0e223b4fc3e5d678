"""Whether an allocation can be carried out at all: of a policy that is not Shoal's own, that is checked first."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.core import Invalid
from shoal.schedule.types import Allocation, Array, Mask, Problem
from shoal.schedule.validate import NAMED

_ROUNDING = 1e-6


def check(found: Any, problem: Problem, policy: str) -> None:
    """Raises Invalid for an allocation that nothing could carry out: of another problem, with shares that are no parts
    of time, or of more accelerators than there are."""
    if not isinstance(found, Allocation) or found.problem is not problem:
        raise Invalid(f"{policy} returned no allocation of the problem", where="policy")
    if found.share.shape != problem.rate.shape:
        raise Invalid(f"{policy}: share has the shape {found.share.shape}, not {problem.rate.shape}", where="policy")
    if found.configuration is None and (wrong := np.flatnonzero(_impossible(found.share, problem))).size:
        names = ", ".join(problem.ids[row] for row in wrong[:NAMED])
        what = f"{policy} gives {names} no part of time between 0 and 1, or time where they cannot run"
        raise Invalid(what, where="policy")
    if (over := np.flatnonzero(~(found.usage <= problem.counts + _ROUNDING))).size:
        pool = problem.pools[over[0]]
        what = f"{policy} uses {found.usage[over[0]]:g} of {pool.count} accelerators of {pool.type}"
        raise Invalid(what, where="policy")


def _impossible(share: Array, problem: Problem) -> Mask:
    """(m,) jobs whose shares are no parts of time, or where they cannot run."""
    sound = (share >= -_ROUNDING) & (share <= 1.0 + _ROUNDING)  # false for what is no number
    elsewhere = (share > _ROUNDING) & ~problem.possible & ~problem.held[:, None]
    wrong: Mask = ~sound.all(axis=1) | elsewhere.any(axis=1) | ~(share.sum(axis=1) <= 1.0 + _ROUNDING)
    return wrong
