"""Whether a policy that looks at neither time nor work sees a difference between two problems."""

from __future__ import annotations

import numpy as np

from shoal.schedule.types import Array, Problem

_ASKED = ("rate", "gang", "weight", "tenant", "entity")


def unchanged(before: Problem, now: Problem) -> bool:
    """Whether the jobs are the same, and all that such a policy looks at."""
    return (
        before.jobs == now.jobs
        and before.pools == now.pools
        and before.tenants == now.tenants
        and (before.ids is now.ids or list(before.ids) == list(now.ids))
        and all(_equal(getattr(before, name), getattr(now, name)) for name in _ASKED)
    )


def _equal(before: Array, now: Array) -> bool:
    return before is now or np.array_equal(before, now)
