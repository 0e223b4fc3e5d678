"""The ideal that fair schedulers are measured against: generalized processor sharing (Parekh and Gallager 1993), where
every tenant that has work is served all the time, at a rate in proportion to its weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def served_s(
    work: Mapping[str, Sequence[tuple[float, float]]], weights: Mapping[str, float], slots: int, until_s: float
) -> dict[str, float]:
    """The slot-seconds each tenant got by then; its work is (arrival, slot-seconds), in order. Work is divisible, and
    one tenant may use all slots."""
    arrivals = sorted((at, tenant, amount) for tenant, jobs in work.items() for at, amount in jobs)
    left = dict.fromkeys(work, 0.0)
    served = dict.fromkeys(work, 0.0)
    now, upcoming = 0.0, 0
    while now < until_s:
        while upcoming < len(arrivals) and arrivals[upcoming][0] <= now:
            left[arrivals[upcoming][1]] += arrivals[upcoming][2]
            upcoming += 1
        active = [tenant for tenant, amount in left.items() if amount > 1e-12]
        next_at = min(until_s, arrivals[upcoming][0] if upcoming < len(arrivals) else until_s)
        if not active:
            now = next_at
            continue
        total = sum(weights[tenant] for tenant in active)
        rates = {tenant: slots * weights[tenant] / total for tenant in active}
        step_s = min(next_at - now, *(left[tenant] / rates[tenant] for tenant in active))
        for tenant in active:
            served[tenant] += rates[tenant] * step_s
            left[tenant] = max(0.0, left[tenant] - rates[tenant] * step_s)
        now += max(step_s, 1e-12)
    return served
