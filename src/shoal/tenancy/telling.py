"""Why the shared server does not start something, as a plane may be told it: without names of other teams, their jobs
and the machines. Pure."""

from __future__ import annotations

from datetime import datetime

from shoal.admission import Blocker, Explanation, reasons
from shoal.core import Quota, Reason, Resources

_GENERAL = {
    reasons.SHARE: "waits for its turn in the shared pool: other teams had less than their share",
    reasons.RESERVED: "waits: the free capacity of the shared pool is kept for other work",
    reasons.CLOSED: "waits: machines of the shared pool take no new work",
    reasons.PRIORITY: "waits: work of the shared pool with higher priority, or that came earlier, goes first",
}
_NAMES_NOBODY = (reasons.SHAPE, reasons.BACKOFF, reasons.PREEMPTING, reasons.IMPOSSIBLE)


def told(reason: Reason) -> Reason:
    """A cause of a wait there."""
    if reason.code in _NAMES_NOBODY:
        return Reason(reason.code, reason.text.partition(";")[0])  # behind it: which jobs are to end
    if reason.code == reasons.QUOTA:
        name = str(reason.facts["quota"]).removeprefix("accelerators.")
        return Reason(
            reason.code, f"quota of the shared pool: {reason.facts['used']} of {reason.facts['limit']} {name}"
        )
    return Reason(reason.code, _GENERAL.get(reason.code, "waits in the shared pool"))


def quota_left(quota: Quota, used: Resources, needs: Resources, ranks: int, next_free: float | None) -> Reason | None:
    """What the team's quota of the shared pool says to gangs of so many ranks; None where it lets one start.
    `next_free`: when the first of what it uses is likely to end."""
    held = {kind: count for kind, count in used.accelerators.items() if count}
    asked = {kind: count * ranks for kind, count in needs.accelerators.items() if count}
    limits = [(kind, held.get(kind, 0), asked.get(kind, 0), limit) for kind, limit in quota.by_type]
    if quota.accelerators is not None:
        limits.append(("accelerators", sum(held.values()), sum(asked.values()), quota.accelerators))
    for name, taken, wanted, limit in limits:
        if wanted and taken + wanted > limit:
            when = "" if next_free is None else f"; next free about {datetime.fromtimestamp(next_free):%H:%M}"
            text = f"quota of the shared pool: {taken} of {limit} {name}{when}"
            facts = {"quota": name, "used": taken, "limit": limit, "next_free": next_free}
            return Reason(reasons.QUOTA, text, facts)
    return None


def with_pool(own: Explanation, pool: Reason) -> Explanation:
    """What the plane says of a job that waits, and what the shared pool adds."""
    found = Blocker("shared-pool", True, pool, "wait for the team's own work to end, or ask for a higher quota")
    return Explanation(
        own.job_id, (*own.causes, found), own.ahead, own.estimated_start, f"{own.summary}; {pool.text}", own.estimate
    )
