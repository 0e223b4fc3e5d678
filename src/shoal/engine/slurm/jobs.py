"""Slurm's jobs as its commands print them, and what the state of one means for a gang. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from shoal.core import Reason
from shoal.engine.protocol import Exit, RankStatus

FORMAT = "%i|%T|%k|%N|%j|%r"
"""Job, state, comment, nodes, name, reason: for `squeue -o`."""

_OVER = frozenset(
    {
        "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE",
        "OUT_OF_MEMORY", "REVOKED", "SPECIAL_EXIT",
    }
)  # fmt: skip
_WAITING = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"})


@dataclass(frozen=True, slots=True)
class SlurmJob:
    id: str
    state: str
    mark: str
    nodes: str
    name: str
    reason: str = ""

    @property
    def over(self) -> bool:
        return self.state in _OVER

    @property
    def waiting(self) -> bool:
        return self.state in _WAITING

    @property
    def order(self) -> int:
        return int(self.id) if self.id.isdigit() else 0

    @property
    def hosts(self) -> list[str]:
        return expand(self.nodes) if self.nodes else []

    def why_waiting(self) -> Reason:
        told = self.reason.partition(",")[0].strip() or "None"
        code, words = _WAITS.get(told, ("", ""))
        if not code and told.startswith(("Assoc", "QOS")):
            code, words = "quota", "a limit of its Slurm account or QOS is reached"
        if not code:
            code, words = "cluster", "Slurm does not start it yet"
        return Reason(code, f"Slurm: {told}: {words}", {"slurm": told, "slurm_job": self.id})

    def why_over(self) -> str:
        return why_over(self, {})

    def judged(self, rank: RankStatus, why: str) -> RankStatus:
        end = rank.exit
        if end is None or end.code is not None or self.state in ("COMPLETED", "FAILED"):
            return rank  # its own record says more
        if self.state == "TIMEOUT":
            told = replace(end, lost=False, stopped=False, limit="time", detail=why)
        elif self.state == "OUT_OF_MEMORY":
            told = replace(end, lost=False, stopped=False, oom=True, detail=why)
        else:
            told = Exit(lost=True, node_lost=self.state in ("NODE_FAIL", "BOOT_FAIL"), detail=why)
        return replace(rank, exit=told)


def read_jobs(printed: str) -> list[SlurmJob]:
    """The lines of `squeue -h -o FORMAT`."""
    found = []
    for line in printed.splitlines():
        fields = line.split("|", 5)
        if len(fields) == 6:
            number, state, mark, nodes, name, reason = (field.strip() for field in fields)
            found.append(SlurmJob(number, state, mark, nodes, name, reason))
    return found


def read_facts(printed: str) -> dict[str, str]:
    """`NAME=VALUE` fields of one line of `scontrol show -o`; a value may hold spaces."""
    found: dict[str, str] = {}
    name = ""
    for word in printed.split():
        key, equals, value = word.partition("=")
        if equals and key and key[0].isupper():
            name = key
            found[name] = value
        elif name:
            found[name] += f" {word}"
    return found


def job_of(facts: Mapping[str, str]) -> SlurmJob | None:
    """One of `scontrol show job -o`; None where the fields that every job has are not there."""
    if not facts.get("JobId") or not facts.get("JobState"):
        return None
    told = {name: "" if facts.get(name) == "(null)" else facts.get(name, "") for name in ("Comment", "NodeList")}
    name, reason = facts.get("JobName", ""), facts.get("Reason", "")
    return SlurmJob(facts["JobId"], facts["JobState"], told["Comment"], told["NodeList"], name, reason)


def expand(nodes: str) -> list[str]:
    """The names in `n[1-3,07],gpu1`."""
    names: list[str] = []
    for stem, ranges, rest in re.findall(r"([^,\[]+)(?:\[([^\]]*)\])?([^,\[]*)", nodes):
        if not ranges:
            names.append(stem + rest)
        for part in ranges.split(",") if ranges else ():
            first, _, last = part.partition("-")
            names += [f"{stem}{number:0{len(first)}}{rest}" for number in range(int(first), int(last or first) + 1)]
    return names


_WAITS = {
    "Resources": ("resources", "the resources that it needs are in use"),
    "Priority": ("priority", "jobs with a higher priority in Slurm wait too"),
    "ReqNodeNotAvail": ("nodes", "nodes that it needs are not available"),
    "PartitionDown": ("partition", "its partition is down"),
    "PartitionInactive": ("partition", "its partition is inactive"),
    "PartitionNodeLimit": ("limit", "it asks for more nodes than its partition allows"),
    "PartitionTimeLimit": ("limit", "it asks for more time than its partition allows"),
    "JobHeldAdmin": ("held", "an operator of the cluster holds it"),
    "JobHeldUser": ("held", "it is held in Slurm"),
    "Licenses": ("licenses", "a licence that it needs is in use"),
    "Reservation": ("reservation", "its reservation has not begun"),
    "BeginTime": ("begin", "Slurm starts it later"),
    "None": ("scheduling", "Slurm has not looked at it yet"),
}


def exit_code(facts: dict[str, str]) -> int | None:
    """What a job's script left with, of `scontrol show job`."""
    code = facts.get("ExitCode", "").partition(":")[0]
    return int(code) if code.isdigit() else None


def why_over(job: SlurmJob, facts: dict[str, str]) -> str:
    """Why Slurm ended a job, in words."""
    words = {
        "PREEMPTED": "Slurm preempted it",
        "TIMEOUT": f"it ran into Slurm's time limit of {facts.get('TimeLimit', 'its partition')}",
        "CANCELLED": "it was cancelled in Slurm",
        "NODE_FAIL": "its node failed",
        "BOOT_FAIL": "its node did not boot",
        "OUT_OF_MEMORY": "Slurm's memory limit killed it",
    }
    return f"{words.get(job.state, f'its Slurm job ended as {job.state}')} (Slurm job {job.id})"
