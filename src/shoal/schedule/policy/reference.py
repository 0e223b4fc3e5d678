"""What a heterogeneity-agnostic policy that reasons about time takes for true: all types are as fast as one."""

from __future__ import annotations

import numpy as np

from shoal.schedule.types import Array, Problem


def reference_rates(problem: Problem) -> Array:
    """(m, n) every job's rate on the column on which jobs are fastest in sum, wherever it can run; a job that cannot
    run there counts with its own fastest."""
    at = int(problem.rate.sum(axis=0).argmax())
    one = np.where(problem.rate[:, at] > 0.0, problem.rate[:, at], problem.rate.max(axis=1, initial=0.0))
    rates: Array = np.where(problem.rate > 0.0, one[:, None], 0.0)
    return rates
