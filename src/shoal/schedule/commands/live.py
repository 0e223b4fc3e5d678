"""`shoal schedule what-if`: what another policy would do with the jobs that wait and run now."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.base.console.command import CommandContext, command
from shoal.schedule.commands.options import AgnosticFlag, PolicyOption, RestartOption

if TYPE_CHECKING:
    from shoal.schedule import JobView
    from shoal.schedule.live.plan import Plan
    from shoal.schedule.workloads.snapshot import Snapshot


def register(app: typer.Typer) -> None:
    command(app, "what-if")(what_if)


def what_if(
    context: CommandContext,
    policy: PolicyOption,
    agnostic: AgnosticFlag = False,
    restart_cost: RestartOption = 30.0,
    snapshot: Annotated[Path | None, typer.Option("--snapshot", help="This file instead of the server.")] = None,
    save: Annotated[Path | None, typer.Option("--save", help="Keep the live state there, for `--snapshot`.")] = None,
) -> None:
    """Ask a policy what it would decide about the jobs of the running server (admin). Nothing is changed.

    shoal schedule what-if --policy finish-time
    """
    from shoal.schedule.live.plan import what_if as play
    from shoal.schedule.policies import policy_of
    from shoal.schedule.presets import ScheduleSettings
    from shoal.schedule.workloads import read_snapshot

    policy_of(policy)
    if snapshot is not None:
        found = read_snapshot(snapshot)
    else:
        with context.client() as client:
            text = client.schedule.snapshot()
        if save is not None:
            save.write_text(text, encoding="utf-8")
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            found = read_snapshot(Path(file.name))
    if not found.jobs or not found.pools:
        context.show(
            {"simulated": True, "policy": policy, "jobs": {}}, lambda: print("no job competes for accelerators")
        )
        return
    plan = play(found, ScheduleSettings(policy, agnostic=agnostic, restart_cost_s=restart_cost))
    rows = {view.id: _row(view, plan) for view in found.jobs}
    body = {"simulated": True, "policy": policy, "prices": plan.prices, "jobs": rows}
    context.show(body, lambda: _show(policy, found, plan, rows))


def _row(job: JobView, plan: Plan) -> dict[str, Any]:
    reason = plan.reason(job.id)
    assert reason is not None
    share = plan.allocation.share[plan.row[job.id]]
    then = plan.target.get(job.id)
    columns = plan.allocation.problem.columns
    return {
        "now": job.placed,
        "then": then,
        "accelerators": None if then is None else plan.size.get(job.id, job.gang),
        "changes": job.placed != then or plan.size.get(job.id, job.gang) != job.gang,
        "shares": {column.name: float(part) for column, part in zip(columns, share, strict=True) if part > 1e-6},
        "reason": reason.as_json(),
    }


def _show(policy: str, found: Snapshot, plan: Plan, rows: dict[str, dict[str, Any]]) -> None:
    from shoal.base.console import output

    changed = sum(row["changes"] for row in rows.values())
    print(f"simulated: the next round by {policy} would change the place of {changed} of {len(rows)} jobs")
    lines = []
    for view in found.jobs:
        row = rows[view.id]
        shares = ", ".join(f"{name} {part:.0%}" for name, part in row["shares"].items()) or "-"
        then = f"{row['then']} x{row['accelerators']}" if row["then"] else "waits"
        lines.append([view.id, view.tenant, view.gang, row["now"] or "waits", then, shares])
    output.put(output.table(["job", "tenant", "gang", "now", "then", "share of time"], lines, last_gives_way=False))
    print()
    output.facts({f"price of {kind}": f"{price:.4g}" for kind, price in plan.prices.items()})
