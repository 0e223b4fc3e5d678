"""Jobs, nodes and quotas as tables for people."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from shoal.base.console import output
from shoal.contract.lifecycle import JobState

if TYPE_CHECKING:
    from shoal.base.console.output import FittedTable
    from shoal.sdk.models import ArrayView, AttemptView, JobDetail, JobView, NodeView, QuotaView, SubmittedView

DROPPED = ("class", "try", "needs", "progress", "waited", "tenant", "ran")
"""Columns of jobs that go first on a narrow terminal. The job, its name, its state and why stay."""

STATE_STYLES = {
    JobState.QUEUED: "yellow",
    JobState.RUNNING: "green",
    JobState.SUCCEEDED: "bold green",
    JobState.FAILED: "bold red",
    JobState.CANCELLED: "dim",
    JobState.SUSPENDED: "magenta",
}


WAITS = "waits: "
"""How the reason of a wait begins, where nothing before it says so."""


def state(job: JobView) -> Any:
    return output.styled(job.state.value, STATE_STYLES.get(job.state))


def gang(job: JobView) -> str:
    """What a job needs: `2x(a100:1 1cpu)`; where its size is open `1-4x(...)`, and `2 of 1-4x(...)` once it has one."""
    each, least = output.needs(job.resources), job.ranks if job.min_ranks is None else job.min_ranks
    if least == job.ranks:
        return each if job.ranks == 1 else f"{job.ranks}x({each})"
    has = "" if job.size is None else f"{job.size} of "
    return f"{has}{least}-{job.ranks}x({each})"


def waited(job: JobView, now: float | None = None) -> float:
    now = time.time() if now is None else now
    return job.waited_s + (max(0.0, now - job.queued_at) if job.state is JobState.QUEUED else 0.0)


def ran(job: JobView, now: float | None = None) -> float | None:
    return job.ran_until(time.time() if now is None else now)


def by_default(job: SubmittedView) -> str:
    """`, memory 2.6 GiB by default`, where the server chose it: a process that needs more is ended."""
    if job.memory_from is None:
        return ""
    return f", memory {output.size(job.resources.memory_bytes)} by default"


def memory(job: JobDetail) -> str | None:
    """`2.6 GiB for each rank, the default by what earlier jobs of this name used; 312 MiB used at most`."""
    from shoal.contract.manifest import MemoryDefault

    if not job.resources.memory_bytes:
        return None
    parts = [output.size(job.resources.memory_bytes)]
    if job.ranks > 1:
        parts[0] += " for each rank"
    if (whose := job.manifest.get("resources", {}).get("memory_from")) is not None:
        parts.append(MemoryDefault(whose).words)
    used = max((rank.get("memory_bytes", 0) for one in job.attempts for rank in one.ranks), default=0)
    return ", ".join(parts) + (f"; {output.size(used)} used at most" if used else "")


def attempt_ran(attempt: AttemptView, now: float | None = None) -> float | None:
    """How long an attempt has run, or ran."""
    if attempt.running_at is None:
        return None
    end = (time.time() if now is None else now) if attempt.ended_at is None else attempt.ended_at
    return max(0.0, end - attempt.running_at)


def progress(job: JobView) -> str:
    """`40/100 12/s 5.0s left`, as far as the job reports it."""
    known = job.progress
    parts = []
    if known.get("step") is not None:
        parts.append(f"{known['step']:g}/{known['total']:g}" if known.get("total") else f"step {known['step']:g}")
    if known.get("rate_per_s") and not job.terminal:
        parts.append(f"{known['rate_per_s']:.3g}/s")
    if (finish := finish_in(job)) is not None:
        parts.append(f"{output.duration(finish['low'])} to {output.duration(finish['high'])} left")
    elif known.get("eta_s") is not None and not job.terminal:
        parts.append(f"{output.duration(known['eta_s'])} left")
    return " ".join(parts) or "-"


def finish_in(job: JobView, now: float | None = None) -> dict[str, float] | None:
    """Seconds until a running job ends (median, low, high), as an extension predicts it."""
    known = job.progress.get("finish")
    if known is None or job.state is not JobState.RUNNING:
        return None
    now = time.time() if now is None else now
    return {name: max(0.0, known[name] - now) for name in ("median", "low", "high")}


def finish(job: JobView) -> str | None:
    """`in 5.0s (4.1s to 6.2s in 90% of all cases): measured over 40 steps of this job`."""
    left = finish_in(job)
    if left is None:
        return None
    known, (median, low, high) = job.progress["finish"], map(output.duration, left.values())
    return f"in {median} ({low} to {high} in {known['level']:.0%} of all cases): {known['source']}"


def why(job: JobView) -> str:
    """What a person would ask next about this job."""
    if job.state is JobState.QUEUED:
        return str((job.reason or {}).get("text", "waits behind another job that asks for the same"))
    if job.state is JobState.FAILED:
        return f"{job.error_code}: {job.message}" if job.error_code else job.message
    return job.message


def jobs(found: Iterable[JobView], arrays: Iterable[ArrayView] = (), *, tenants: bool = True) -> FittedTable:
    columns = ["job", "name", "tenant", "state", "class", "needs", "try", "waited", "ran", "progress", "why"]
    dated = [(one.submitted_at, one.id, _array_row(one)) for one in arrays]
    for job in found:
        row = [
            job.id, job.name, job.tenant, state(job), job.priority_class.value, gang(job),
            job.attempt, output.duration(waited(job)), output.duration(ran(job)), progress(job), why(job),
        ]  # fmt: skip
        dated.append((job.submitted_at, job.id, row))
    if dated and arrays:
        dated.sort(key=lambda one: one[:2], reverse=True)
    rows = [row if tenants else row[:2] + row[3:] for _, _, row in dated]
    return output.table(
        columns if tenants else columns[:2] + columns[3:], rows, drop=DROPPED, cut_middle=("name",),
        least={"why": 24, "name": 12},
    )  # fmt: skip


def _array_row(array: ArrayView) -> list[Any]:
    counts = ", ".join(f"{count} {state}" for state, count in sorted(array.states.items()))
    name = f"{array.name}[{array.indices}]"
    return [array.id, name, array.tenant, "array", "-", "-", "-", "-", "-", "-", counts]


def quota(limits: QuotaView) -> str:
    parts = []
    if limits.accelerators is not None:
        parts.append(f"accelerators {limits.accelerators}")
    parts += [f"{kind} {count}" for kind, count in limits.by_type.items()]
    if limits.cpu_milli is not None:
        parts.append(f"cpus {limits.cpu_milli / 1000:g}")
    if limits.memory_bytes is not None:
        parts.append(f"memory {output.size(limits.memory_bytes)}")
    if limits.running_jobs is not None:
        parts.append(f"running {limits.running_jobs}")
    if limits.queued_jobs is not None:
        parts.append(f"queued {limits.queued_jobs}")
    if limits.disk_bytes is not None:
        parts.append(f"disk {output.size(limits.disk_bytes)}")
    return ", ".join(parts) or "unlimited"


def squares(node: NodeView) -> Any:
    """One square per device: hollow where it is free, half full where only best-effort jobs share it."""
    text = output.styled("", None)
    for device in node.devices:
        full = device.job_id is not None or not device.best_effort_jobs
        text.append("□ " if device.free else "■ " if full else "◧ ", style="green" if device.free else "bold yellow")
    return text


def nodes(found: Iterable[NodeView]) -> FittedTable:
    rows = []
    for node in found:
        kinds = sorted({device.type for device in node.devices})
        held = {job for device in node.devices for job in (device.job_id, *device.best_effort_jobs)}
        holders = sorted(job for job in held if job)
        state = f"tainted: {', '.join(node.taints)}" if node.taints else "yes"
        state = state if node.schedulable else f"no: {node.closed}".removesuffix(": ")
        rows.append(
            [
                node.name, state, ", ".join(kinds) or "-", squares(node),
                f"{node.free_cpu_milli / 1000:g}/{node.cpu_milli / 1000:g}",
                f"{output.size(node.free_memory_bytes)}/{output.size(node.memory_bytes)}", " ".join(holders) or "-",
            ]
        )  # fmt: skip
        rows += [[f"  {machine.name}", *[""] * 5, " ".join(machine.job_ids)] for machine in node.machines]
    return output.table(
        ["node", "open", "type", "devices", "cpus free", "memory free", "jobs"], rows,
        drop=("memory free", "cpus free", "type"), cut_middle=("node", "devices"),
    )  # fmt: skip
