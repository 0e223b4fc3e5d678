"""What a plane is told of a gang, from the job that it is in the shared server. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from shoal.contract.lifecycle import ErrorCode, JobState
from shoal.contract.records import AttemptRecord, JobRecord
from shoal.core import Fault, Reason
from shoal.engine import Exit, GangStatus, Phase, RankStatus
from shoal.tenancy.telling import told

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
