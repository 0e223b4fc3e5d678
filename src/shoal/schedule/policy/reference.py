"""What a heterogeneity-agnostic policy that reasons about time takes for true: all types are as fast as one."""

from __future__ import annotations

import numpy as np

from shoal.core import Invalid
from shoal.schedule.types import Array, Problem


def reference_rates(problem: Problem, reference: str | None) -> Array:
    """(m, n) every job's rate on the reference column, wherever it can run. Without a name it is the column on which
    jobs are fastest in sum; a job that cannot run there counts with its own fastest."""
    names = [column.name for column in problem.columns]
    if reference is not None and reference not in names:
        raise Invalid(f"{reference!r} is no column", where="reference", hint=f"one of {', '.join(names)}")
    at = int(problem.rate.sum(axis=0).argmax()) if reference is None else names.index(reference)
    one = np.where(problem.rate[:, at] > 0.0, problem.rate[:, at], problem.rate.max(axis=1, initial=0.0))
    rates: Array = np.where(problem.rate > 0.0, one[:, None], 0.0)
    return rates
