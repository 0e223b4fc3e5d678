"""The sentences and numbers of every reason. Codes are stable: programs may rely on them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from shoal.admission.quota import Limit
from shoal.admission.reservation import MAX_NAMED, Reservation
from shoal.admission.snapshot import CPU_POOL, Layout, Need
from shoal.admission.types import NodeState, Pending
from shoal.core import CPU_SLOT, Reason, Share, Taint

PLACED, BACKFILL = "placed", "backfill"
"""Codes of starts."""

PREEMPTED, TAINT = "preempted", "taint"
"""Codes of preemptions."""

QUOTA, SHARE, SHAPE, PRIORITY = "quota", "share", "shape", "priority"
BACKOFF, PREEMPTING, RESERVED, IMPOSSIBLE = "backoff", "preempting", "reserved", "impossible"
CLOSED = "closed"
"""Codes of waits."""


def amount(need: Need, ranks: int) -> str:
    """What a job asks for, in words: `8 a100`, `4 x 2 a100`, `a guaranteed share of 1 a100 (20 GiB)`, `2 cores`."""
    per_rank = [devices(count, kind) for kind, count in need.kinds]
    if need.pool == CPU_POOL:
        per_rank = [cores(need.cpu_milli)] if need.cpu_milli else []
        if need.memory_bytes:
            per_rank.append(memory(need.memory_bytes))
    what = " and ".join(per_rank) or "a free node"
    if need.share is not Share.EXCLUSIVE:
        what = f"a {need.share.value} share of {what} ({memory(need.device_memory)})"
    if ranks > 1:
        return f"{ranks} x {what}, {need.per_node} on each node" if need.per_node else f"{ranks} x {what}"
    return what


def asked(need: Need, ranks: int) -> str:
    """What a job asks for and of which nodes, in words: `8 a100 on one node`, `4 x 2 a100`,
    `1 a100 on one node with zone=a (2 of 8 nodes)`."""
    what, nodes = amount(need, ranks), need.only.words if need.only is not None else ""
    if ranks > 1:
        return f"{what} on nodes{nodes}" if nodes else what
    return f"{what} on one node{nodes}" if need.count != 1 or need.others or nodes else what


def given(need: Need, job: Pending, ranks: int) -> str:
    """What a job starts with, in words; of one that may have more or fewer ranks, how many those are."""
    text = amount(need, ranks)
    return text if job.most == job.ranks else f"{text} ({ranks} of {job.ranks} to {job.most} ranks)"


def where(layout: Layout, nodes: Sequence[int]) -> str:
    """The nodes of a job in words: `n7`, `4 nodes of rack r2`, `9 nodes in 2 groups by rack`."""
    if len(nodes) == 1:
        return layout.names[nodes[0]]
    text = f"{len(nodes)} nodes"
    for level in layout.levels:
        groups = {level.of[at] for at in nodes}
        if len(groups) == 1:
            return f"{text} of {level.label} {level.names[groups.pop()]}"
    return f"{text} in {len(groups)} groups by {level.label}" if layout.levels else text


def devices(count: int, kind: str) -> str:
    """A declared slot is no core: a job asks for cores beside it."""
    if kind == CPU_SLOT:
        return f"{count} cpu slot{'' if count == 1 else 's'}"
    return f"{count} {kind}"


def cores(milli: int) -> str:
    return f"{milli / 1000:g} core{'' if milli == 1000 else 's'}"


_UNITS = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"))


def memory(number: int) -> str:
    unit, name = next(((unit, name) for unit, name in _UNITS if number >= unit), _UNITS[-1])
    return f"{number / unit:.3g} {name}" if number < 1000 * unit else f"{number / unit:.0f} {name}"


def need_facts(need: Need, ranks: int) -> dict[str, object]:
    per_rank: dict[str, object] = {
        "accelerators": dict(need.kinds), "cpu_milli": need.cpu_milli, "memory_bytes": need.memory_bytes
    }  # fmt: skip
    if need.share is not Share.EXCLUSIVE:
        per_rank |= {"share": need.share.value, "device_memory_bytes": need.device_memory}
    nodes = need.only.facts if need.only is not None else {}
    return {"ranks": ranks, "per_rank": per_rank, **nodes}


def quota(tenant: str, limit: Limit) -> Reason:
    left, whole = (_number(limit.name, value) for value in (max(0, limit.limit - limit.used), limit.limit))
    text = f"waits: needs {_of(limit, limit.needs)}, quota of {tenant} leaves {left} of {whole}"
    if limit.never:
        text = f"waits: needs {_of(limit, limit.needs)}, quota of {tenant} is {whole}"
    facts = {"quota": limit.name, "limit": limit.limit, "used": limit.used, "needs": limit.needs, "tenant": tenant}
    return Reason(QUOTA, text, facts)


def raise_quota(tenant: str, limits: Mapping[str, int]) -> str:
    """The command that sets these limits."""
    flags: dict[str, list[str]] = {}
    for name, value in limits.items():
        limit, _, kind = name.partition(".")
        flags.setdefault("--type" if kind else _FLAGS[limit], []).append(
            f"{kind}={value}" if kind else _exact(limit, value)
        )
    given = " ".join(f"{flag} {value}" for flag, values in flags.items() for value in values)
    return f"raise the quota: shoal quota {tenant} {given}"


_FLAGS = {
    "accelerators": "--accelerators", "cpu_milli": "--cpus", "memory_bytes": "--memory", "running_jobs": "--running"
}  # fmt: skip


def _number(limit: str, value: int) -> str:
    """A limit's value as a person gives it."""
    if limit == "cpu_milli":
        return f"{value / 1000:g}"
    return memory(value) if limit == "memory_bytes" and value else str(value)


def _exact(limit: str, value: int) -> str:
    """A limit's value as an option takes it, never less than it is."""
    if limit == "cpu_milli":
        return f"{value / 1000:.3f}".rstrip("0").rstrip(".")
    return f"{-(-value // 2**20)}MiB" if limit == "memory_bytes" else str(value)


def _of(limit: Limit, number: int) -> str:
    if limit.name == "cpu_milli":
        return cores(number)
    if limit.name == "memory_bytes":
        return memory(number)
    if limit.name == "running_jobs":
        return "one more running job"
    if limit.name == "accelerators":
        return f"{number} accelerator{'' if number == 1 else 's'}"
    return f"{number} {limit.name.removeprefix('accelerators.')}"


def impossible(need: Need, ranks: int, best: int) -> Reason:
    nodes = need.only.words if need.only is not None else ""
    what = amount(need, ranks)
    text = f"no node{nodes} has {what}: would never fit"
    if need.only is not None and not need.only.at:
        text = f"there is no node{nodes}: would never fit"
    elif ranks > 1:
        text = f"needs {what}, all nodes{nodes} together hold {best} of {ranks} ranks: would never fit"
    return Reason(IMPOSSIBLE, text, {**need_facts(need, ranks), "ranks_that_fit": best})


def shape(need: Need, ranks: int, free: int, fitting: int) -> Reason:
    """`free`: the most of the pool's devices free on one node; `fitting`: how many ranks would fit now."""
    if ranks > 1:
        now = f"{fitting} of {ranks} ranks fit now"
    elif need.count > free:
        now = f"{free} free"
    else:
        now = _missing_beside(need)
    facts: dict[str, object] = {**need_facts(need, ranks), "free_on_one_node": free, "ranks_that_fit": fitting}
    return Reason(SHAPE, f"waits: needs {asked(need, ranks)}, {now}", facts)


def closed(nodes: Sequence[NodeState]) -> Reason:
    """These nodes would help, and take no new work."""
    told = ", ".join(f"{state.node.name} ({state.closed})" if state.closed else state.node.name for state in nodes[:3])
    more = f" and {len(nodes) - 3} more" if len(nodes) > 3 else ""
    one = len(nodes) == 1
    text = f"node{'' if one else 's'} {told}{more} take{'s' if one else ''} no new work"
    return Reason(CLOSED, text, {"nodes": [state.node.name for state in nodes]})


def reserved(reason: Reason, reservation: Reservation | None) -> Reason:
    """The reason of a job that waits, with what its reservation says about its end."""
    if reservation is None:
        return reason
    facts = {
        **reason.facts,
        "after": list(reservation.after[:MAX_NAMED]),
        "after_count": len(reservation.after),
        "starts_at": reservation.at if reservation.known else None,
    }
    if reservation.endless:
        facts["endless"] = list(reservation.endless)
        return Reason(reason.code, f"{reason.text}; {held_by(reservation.endless)}", facts)
    after = f"; starts when {jobs_end(reservation.after)}" if reservation.after else ""
    return Reason(reason.code, reason.text + after, facts)


def backoff(not_before: float, now: float) -> Reason:
    text = f"waits: tries again in {math.ceil(not_before - now)} s after a failure"
    return Reason(BACKOFF, text, {"not_before": not_before})


def kept_for(reservations: Sequence[Reservation], pool: str, now: float) -> Reason:
    """Capacity that would fit is kept for others: for one of the same pool, else for any of them, else for jobs for
    which others free capacity."""
    same = (other for other in reservations if other.need.pool == pool)
    kept = next(same, None) or next(iter(reservations), None)
    if kept is None:
        text = "waits: the free capacity is kept for jobs for which others free capacity"
        return Reason(RESERVED, text, {"for_job": None, "until": None})
    when = f", due in {kept.at - now:.0f} s" if kept.known else ""
    facts = {"for_job": kept.job_id, "until": kept.at if kept.known else None}
    return Reason(RESERVED, f"waits: the free capacity is kept for job {kept.job_id}{when}", facts)


def overtaken(equals: Sequence[str], takers: Sequence[str]) -> Reason:
    """Others took the capacity in this decision: `takers`, the tenants of all; `equals`, other tenants in its class."""
    if not equals:
        text = "waits: jobs of higher priority or earlier arrival go first"
        return Reason(PRIORITY, text, {"served_first": list(takers)})
    listed = equals[0] if len(equals) == 1 else f"{len(equals)} tenants ({', '.join(equals[:3])})"
    return Reason(SHARE, f"waits for its turn: {listed} had less than their share", {"served_first": list(equals)})


def _missing_beside(need: Need) -> str:
    """What stands in the way when the pool's devices do not."""
    beside = [devices(count, kind) for kind, count in need.others if count]
    beside += [cores(need.cpu_milli)] * bool(need.cpu_milli) + [memory(need.memory_bytes)] * bool(need.memory_bytes)
    if not beside and need.share is Share.EXCLUSIVE:
        return "none is open to it now"
    holder = f"node with {devices(need.count, need.pool)} free" if need.count else "node"
    if need.share is not Share.EXCLUSIVE:
        holder = f"node with a place on {devices(need.count, need.pool)}"
        beside.insert(0, f"{memory(need.device_memory)} of device memory")
    return f"no {holder} has {' and '.join(beside)} free"


def listed(names: Sequence[str]) -> str:
    if len(names) <= 3:
        return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    return f"{', '.join(names[:2])} and {len(names) - 2} more"


def held_by(endless: Sequence[str], what: str = "it") -> str:
    """Who holds capacity and never ends by itself."""
    return f"{listed(endless)} hold{'s' if len(endless) == 1 else ''} {what}"


def to_free(endless: Sequence[str]) -> str:
    """The change that frees capacity held by work that never ends by itself."""
    services = [name for name in endless if name.startswith("service ")]
    jobs = [name for name in endless if name not in services]
    steps = [f"scale or undeploy {listed(services)}"] if services else []
    steps += [f"cancel {listed(jobs)}"] if jobs else []
    return " and ".join(steps) + ", or ask for less"


def jobs_end(ids: Sequence[str]) -> str:
    if len(ids) == 1:
        return f"job {ids[0]} ends"
    if len(ids) <= 3:
        return f"jobs {', '.join(ids[:-1])} and {ids[-1]} end"
    return f"{len(ids)} jobs end ({', '.join(ids[:2])}, ...)"


def tainted(node: str, taint: Taint) -> Reason:
    return Reason(TAINT, f"leaves node {node}, which has taint {taint}", {"node": node, "taint": str(taint)})


def preempting(victims: int) -> Reason:
    who = "what is stopping" if not victims else f"{victims} best-effort job{'s' if victims > 1 else ''}"
    return Reason(PREEMPTING, f"waits: {who} leave{'' if victims > 1 else 's'} to free capacity", {"victims": victims})


def preempted(for_job: str, tenant: str, lost_s: float, slots: float, checkpoint_age_s: float | None) -> Reason:
    """`lost_s` is what the job is taken to lose; `checkpoint_age_s` is None when it never reported a checkpoint."""
    held = f"{slots:g} slot{'' if slots == 1 else 's'}"
    saved = f"it never reported a checkpoint and holds {held}"
    if checkpoint_age_s is not None:
        saved = f"{checkpoint_age_s:.0f} s since its last checkpoint on {held}"
    text = f"gives way to guaranteed job {for_job} of {tenant}; {saved}"
    return Reason(PREEMPTED, text, {"for_job": for_job, "tenant": tenant, "at_risk_s": lost_s, "slots": slots})
