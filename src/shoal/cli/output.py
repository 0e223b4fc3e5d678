"""Tables and figures for people. Rich is loaded only here, when something is shown."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from shoal.contract.lifecycle import JobState

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from shoal.sdk.models import JobView, NodeView, QuotaView, ResourcesView

STATE_STYLES = {
    JobState.QUEUED: "yellow",
    JobState.RUNNING: "green",
    JobState.SUCCEEDED: "bold green",
    JobState.FAILED: "bold red",
    JobState.CANCELLED: "dim",
    JobState.HALTED: "magenta",
}


_GAP = 2
"""Blanks between two columns."""

_LEAST = 12
"""Characters that are left of a column that gives way."""


@cache
def console() -> Console:
    """Stdout with colours on a terminal (unless NO_COLOR is set); a pipe gets plain lines that are never cut."""
    from rich.console import Console

    return Console(highlight=False, markup=False, soft_wrap=False, width=None if sys.stdout.isatty() else 4096)


def put(found: RenderableType) -> None:
    """Print it; into a pipe without the blanks that fill up a table's lines."""
    from rich.table import Table

    if console().is_terminal:
        if isinstance(found, Table):
            _fit(found, console().width)
        console().print(found, crop=False)
        return
    with console().capture() as captured:
        console().print(found)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()), flush=True)


def _fit(table: Table, width: int) -> None:
    """Cut the column that gives way, and no other: left to itself Rich would leave whole columns out. Where even that
    is not enough, the lines are longer than the terminal, which breaks them."""
    least = [column.min_width or max(_LEAST, len(str(column.header))) for column in table.columns]
    for column, needed in zip(table.columns, least, strict=True):
        if column.min_width is None:
            column.max_width = max(needed, width - sum(least) - _GAP * len(least) + needed)
    if sum(least) + _GAP * len(least) > width:
        table.width = sum(least) + _GAP * len(least)


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, last_gives_way: bool = True) -> Table:
    """A table without lines. On a narrow terminal the last column is cut, the others are whole."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    cells = [[cell if hasattr(cell, "plain") else str(cell) for cell in row] for row in rows]
    for position, column in enumerate(columns):
        if position == len(columns) - 1 and last_gives_way:
            made.add_column(column.upper(), no_wrap=True, overflow="ellipsis")
        else:
            widest = max((len(getattr(row[position], "plain", row[position])) for row in cells), default=0)
            made.add_column(column.upper(), no_wrap=True, overflow="fold", min_width=max(widest, len(column)))
    for row in cells:
        made.add_row(*row)
    return made


def styled(text: str, style: str | None) -> Any:
    from rich.text import Text

    return Text(text, style or "")


def state(job: JobView) -> Any:
    return styled(job.state.value, STATE_STYLES.get(job.state))


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d{hours:02d}h"
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m{rest:02d}s"


def moment(at: float | None) -> str:
    """Local time; with the date unless it is today's."""
    if at is None:
        return "-"
    when = datetime.fromtimestamp(at).astimezone()
    today = when.date() == datetime.now().astimezone().date()
    return when.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S")


def size(count: int | None) -> str:
    if count is None:
        return "-"
    number = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if number >= 10 or unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"


def needs(resources: ResourcesView) -> str:
    """`a100:1 1cpu 4GiB`, as short as it can be."""
    parts = [f"{kind}:{count}" for kind, count in resources.accelerators.items()]
    if resources.cpu_milli:
        parts.append(f"{resources.cpu_milli / 1000:g}cpu")
    if resources.memory_bytes:
        parts.append(size(resources.memory_bytes).replace(" ", ""))
    return " ".join(parts) or "-"


def gang(job: JobView) -> str:
    """What a job needs: `2x(a100:1 1cpu)`; where its size is open `1-4x(...)`, and `2 of 1-4x(...)` once it has one."""
    each, least = needs(job.resources), job.ranks if job.min_ranks is None else job.min_ranks
    if least == job.ranks:
        return each if job.ranks == 1 else f"{job.ranks}x({each})"
    has = "" if job.size is None else f"{job.size} of "
    return f"{has}{least}-{job.ranks}x({each})"


def waited(job: JobView, now: float | None = None) -> float:
    now = time.time() if now is None else now
    return job.waited_s + (max(0.0, now - job.queued_at) if job.state is JobState.QUEUED else 0.0)


def ran(job: JobView, now: float | None = None) -> float | None:
    """Run time of ended attempts, and of the present one as far as it is known."""
    now = time.time() if now is None else now
    if job.started_at is None:
        return None
    if job.state in (JobState.RUNNING, JobState.CHECKPOINTING, JobState.STORING) and not job.ran_s:
        return max(0.0, now - job.started_at)
    return job.ran_s


def progress(job: JobView) -> str:
    """`40/100 12/s 5.0s left`, as far as the job reports it."""
    known = job.progress
    parts = []
    if known.get("step") is not None:
        parts.append(f"{known['step']:g}/{known['total']:g}" if known.get("total") else f"step {known['step']:g}")
    if known.get("rate_per_s") and not job.terminal:
        parts.append(f"{known['rate_per_s']:.3g}/s")
    if known.get("eta_s") is not None and not job.terminal:
        parts.append(f"{duration(known['eta_s'])} left")
    return " ".join(parts) or "-"


def why(job: JobView) -> str:
    """What a person would ask next about this job."""
    if job.state is JobState.QUEUED:
        return str((job.reason or {}).get("text", "waits behind another job of its kind"))
    if job.state is JobState.FAILED:
        return f"{job.error_code}: {job.message}" if job.error_code else job.message
    return job.message


def jobs(found: Iterable[JobView], *, tenants: bool = True) -> Table:
    columns = ["job", "name", "tenant", "state", "class", "needs", "try", "waited", "ran", "progress", "why"]
    rows = []
    for job in found:
        row = [
            job.id, job.name, job.tenant, state(job), job.priority_class.value, gang(job),
            job.attempt, duration(waited(job)), duration(ran(job)), progress(job), why(job),
        ]  # fmt: skip
        rows.append(row if tenants else row[:2] + row[3:])
    return table(columns if tenants else columns[:2] + columns[3:], rows)


def facts(values: Mapping[str, Any]) -> None:
    """`name  value` lines; absent values are left out."""
    kept = {name: value for name, value in values.items() if value not in (None, "", "-")}
    width = max((len(name) for name in kept), default=0)
    for name, value in kept.items():
        text = styled(f"{name:<{width}}  ", "dim")
        text.append(value if hasattr(value, "plain") else str(value))
        console().print(text, soft_wrap=True)


def quota(limits: QuotaView) -> str:
    parts = []
    if limits.accelerators is not None:
        parts.append(f"accelerators {limits.accelerators}")
    parts += [f"{kind} {count}" for kind, count in limits.by_type.items()]
    if limits.cpu_milli is not None:
        parts.append(f"cpus {limits.cpu_milli / 1000:g}")
    if limits.memory_bytes is not None:
        parts.append(f"memory {size(limits.memory_bytes)}")
    if limits.running_jobs is not None:
        parts.append(f"running {limits.running_jobs}")
    if limits.queued_jobs is not None:
        parts.append(f"queued {limits.queued_jobs}")
    if limits.disk_bytes is not None:
        parts.append(f"disk {size(limits.disk_bytes)}")
    return ", ".join(parts) or "unlimited"


def squares(node: NodeView) -> Any:
    """One square per device: hollow where it is free."""
    text = styled("", None)
    for device in node.devices:
        text.append("□ " if device.free else "■ ", style="green" if device.free else "bold yellow")
    return text


def nodes(found: Iterable[NodeView]) -> Table:
    rows = []
    for node in found:
        kinds = sorted({device.type for device in node.devices})
        holders = sorted({f"{device.job_id}" for device in node.devices if device.job_id})
        rows.append(
            [
                node.name, "yes" if node.schedulable else "no", ", ".join(kinds) or "-", squares(node),
                f"{node.free_cpu_milli / 1000:g}/{node.cpu_milli / 1000:g}",
                f"{size(node.free_memory_bytes)}/{size(node.memory_bytes)}", " ".join(holders) or "-",
            ]
        )  # fmt: skip
    return table(["node", "open", "type", "devices", "cpus free", "memory free", "jobs"], rows)
