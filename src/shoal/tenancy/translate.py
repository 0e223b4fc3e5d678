"""Between a plane and the shared server: what each is told of the other's work. Pure.

Down: enough to place a gang, and nothing of what it runs. Up: how a gang is, why it waits, and how large the pool is,
without names of other teams, their jobs and the machines.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from shoal.admission import Blocker, reasons
from shoal.contract.lifecycle import ErrorCode, JobState
from shoal.contract.manifest import JobManifest, Nodes
from shoal.contract.records import AttemptRecord, JobRecord
from shoal.core import Affinity, Device, Fault, Node, Quota, Reason, Resources
from shoal.engine import Exit, Gang, GangStatus, Phase, RankStatus
from shoal.engine.pool import wanted


class Asked(NamedTuple):
    """A manifest, and what would be worked out of it for every job that has it."""

    manifest: JobManifest
    text: str
    resources: Resources


def asked_for(gang: Gang, own: JobRecord | None) -> Asked:
    """`own` is the plane's job that the gang is of."""
    kind, count = next(iter(wanted(gang.ranks[0]).items()), ("any", 0))
    named = ("gang", "best-effort", 0) if own is None else (own.name, own.priority_class.value, own.priority)
    return _asked(*named, kind, count, gang.cpu_milli, gang.memory_bytes, len(gang.ranks), gang.grace_s, gang.affinity)


@lru_cache(maxsize=4096)
def _asked(
    name: str, priority_class: str, priority: int, kind: str, count: int, cpu_milli: int, memory_bytes: int, ranks: int,
    grace_s: float, affinity: Affinity,
) -> Asked:  # fmt: skip
    manifest = JobManifest.model_validate(
        {
            "name": name,
            "command": ["handed-over"],
            "resources": {
                "accelerators": {"type": kind, "count": count}, "cpus": cpu_milli / 1000,
                "memory": memory_bytes or None,
            },
            "ranks": ranks,
            "nodes": Nodes.of(affinity),
            "priority_class": priority_class,
            "priority": priority,
            "restart": {"limits": {"user": 0, "platform": 100, "infrastructure": 0}},
            "grace": grace_s,
        }
    )  # fmt: skip
    return Asked(manifest, manifest.canonical_json(), manifest.resources_per_rank())


POOL = "shared"


def pool_for(quota: Quota, nodes: Iterable[Node]) -> Node:
    """`nodes` are the machines, or pools, of the shared server."""
    nodes = tuple(nodes)
    kinds = Counter(device.type for node in nodes for device in node.devices)
    limits = dict(quota.by_type)
    places = tuple(
        Device(f"{kind}:{index}", kind, index)
        for kind, count in sorted(kinds.items())
        for index in range(_least(count, limits.get(kind), quota.accelerators))
    )
    cpu_milli = _least(sum(node.cpu_milli for node in nodes), quota.cpu_milli)
    memory_bytes = _least(sum(node.memory_bytes for node in nodes), quota.memory_bytes)
    return Node(POOL, places, cpu_milli, memory_bytes, pooled=True)


def _least(amount: int, *limits: int | None) -> int:
    return min([amount, *(limit for limit in limits if limit is not None)])


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
    """What the team's quota of the shared pool says to gangs of this number of ranks; None where it lets one start.
    `next_free`: when the first of what it uses is likely to end."""
    held = {kind: count for kind, count in used.accelerators.items() if count}
    asked = {kind: count * ranks for kind, count in needs.accelerators.items() if count}
    limits = [(kind, held.get(kind, 0), asked.get(kind, 0), limit) for kind, limit in quota.by_type]
    if quota.accelerators is not None:
        limits.append(("accelerators", sum(held.values()), sum(asked.values()), quota.accelerators))
    for name, taken, more, limit in limits:
        if more and taken + more > limit:
            when = "" if next_free is None else f"; next free about {datetime.fromtimestamp(next_free):%H:%M}"
            text = f"quota of the shared pool: {taken} of {limit} {name}{when}"
            facts = {"quota": name, "used": taken, "limit": limit, "next_free": next_free}
            return Reason(reasons.QUOTA, text, facts)
    return None


def from_pool(pool: Reason) -> Blocker:
    """The cause that the shared pool adds to what a plane says of a job that waits."""
    return Blocker("shared-pool", True, pool, "wait for the team's own work to end, or ask for a higher quota")


TAKEN_BACK = "the shared pool needed its place"
_PATH = re.compile(r"(?<![\w./])/[^\s:;,'\"()]+")
_PHASES = {
    JobState.QUEUED: Phase.QUEUED, JobState.STARTING: Phase.STARTING, JobState.RUNNING: Phase.RUNNING,
    JobState.CHECKPOINTING: Phase.RUNNING,
}  # fmt: skip

Hide = Callable[[str], str]
"""A machine's name as the plane is told it."""


def cleared(text: str, attempt: AttemptRecord | None, hide: Hide, *, paths: bool = False) -> str:
    """What the shared server says, with its machines under the names that the plane knows, and without its own `paths`
    where these may be in it."""
    nodes = {place.node for place in attempt.placement} if attempt is not None else set()
    if nodes:
        names = "|".join(re.escape(node) for node in sorted(nodes, key=len, reverse=True))
        text = re.sub(rf"(?<![\w.-])(?:{names})(?![\w-]|\.\w)", lambda found: hide(found[0]), text)
    return _PATH.sub("(a path of the shared server)", text) if paths else text


def status_of(
    name: str, job: JobRecord, attempt: AttemptRecord | None, wait: Reason | None, hide: Hide, *, asked: bool = False
) -> GangStatus:
    """The gang `name`, which is this job there; `attempt` is its last, `wait` why it waits. `asked`: the plane asked
    for its end."""
    if job.state is JobState.CANCELLED and not asked:
        return _cancelled(name, job, attempt, hide)
    if job.state.terminal:
        return _ended(name, job, attempt, hide)
    if job.state is JobState.QUEUED and attempt is not None and attempt.running_at is not None:
        # It was preempted there. Whether and when to try again is for the plane to say.
        return _ended(name, job, attempt, hide, taken_back=True)
    phase = _PHASES.get(job.state, Phase.STARTING)
    if phase is Phase.QUEUED:
        ranks = tuple([RankStatus(rank, phase) for rank in range(job.ranks)])
        return GangStatus(name, phase, ranks, None if wait is None else told(wait))
    facts = attempt.ranks if attempt is not None and phase is Phase.RUNNING else ()
    placed = tuple(
        [RankStatus(fact["rank"], phase, hide(fact["node"]), fact["pid"], fact["started_at"]) for fact in facts]
    )
    return GangStatus(name, phase, placed or tuple([RankStatus(rank, phase) for rank in range(job.ranks)]))


def unknown(last: GangStatus) -> GangStatus:
    """Of a gang that the shared server does not know any more; `last` is what it said before."""
    lost = Exit(lost=True, detail="the shared server does not know it any more")
    ranks = tuple([replace(rank, phase=Phase.ENDED, exit=lost) for rank in last.ranks])
    return GangStatus(last.name, Phase.ENDED, ranks)


def _cancelled(name: str, job: JobRecord, attempt: AttemptRecord | None, hide: Hide) -> GangStatus:
    """Somebody ended it there. To try it anew would be to fight over it: it counts as a limit that it went over."""
    exit_ = Exit(
        limit="shared-pool", detail=f"cancelled in the shared server: {cleared(job.message, attempt, hide, paths=True)}"
    )
    facts = attempt.ranks if attempt is not None else ()
    ranks = tuple(
        [
            RankStatus(
                fact["rank"], Phase.ENDED, hide(fact["node"]), fact["pid"], fact["started_at"], job.ended_at, exit_
            )
            for fact in facts
        ]
    ) or tuple([RankStatus(rank, Phase.ENDED, exit=exit_) for rank in range(job.ranks)])
    return GangStatus(name, Phase.ENDED, ranks, Reason("cancelled", exit_.detail))


def _ended(
    name: str, job: JobRecord, attempt: AttemptRecord | None, hide: Hide, *, taken_back: bool = False
) -> GangStatus:
    if attempt is None or attempt.running_at is None:
        never = Exit(stopped=True, detail="not started")
        ranks = tuple(RankStatus(rank, Phase.ENDED, exit=never) for rank in range(job.ranks))
        stopped = job.state is JobState.CANCELLED
        code = job.error_code or ErrorCode.LAUNCH
        message = cleared(job.message, attempt, hide, paths=code.fault is not Fault.USER)
        reason = Reason("stopped" if stopped else str(code), message)
        return GangStatus(name, Phase.ENDED, ranks, reason, None if stopped else code.fault)
    ranks = tuple([_ended_rank(fact, job, attempt, hide, taken_back) for fact in attempt.ranks])
    return GangStatus(name, Phase.ENDED, ranks, Reason("ended", cleared(attempt.message, attempt, hide)))


def _ended_rank(
    fact: Mapping[str, Any], job: JobRecord, attempt: AttemptRecord, hide: Hide, taken_back: bool
) -> RankStatus:
    if taken_back:
        exit_ = Exit(lost=True, detail=TAKEN_BACK)
    else:
        exit_ = Exit(
            code=fact["exit_code"], signal=fact["signal"], lost=fact["lost"], stopped=fact["stopped"],
            node_lost=attempt.error_code is ErrorCode.NODE_LOST,
            oom=attempt.error_code is ErrorCode.OUT_OF_MEMORY and fact["signal"] is not None,
            limit="above" if attempt.error_code is ErrorCode.OVER_LIMIT else "",
            memory_bytes=fact.get("memory_bytes", 0),
            detail=cleared(_detail(attempt), attempt, hide),
        )  # fmt: skip
    ended_at = fact["ended_at"] or attempt.ended_at or job.updated_at
    return RankStatus(fact["rank"], Phase.ENDED, hide(fact["node"]), fact["pid"], fact["started_at"], ended_at, exit_)


def _detail(attempt: AttemptRecord) -> str:
    """What an exit's detail was there, as far as it cannot be told from the exit itself."""
    if attempt.error_code is ErrorCode.COMMAND_NOT_FOUND:
        return "could not be executed"
    if attempt.error_code in (ErrorCode.OVER_LIMIT, ErrorCode.RANK_LOST, ErrorCode.NODE_LOST):
        return attempt.message.partition(": ")[2] or attempt.message
    return ""
