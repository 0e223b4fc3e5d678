"""The calendar's page: what is planned in the next two weeks, and cron jobs."""

from __future__ import annotations

from shoal.calendar.live.crons import Crons
from shoal.calendar.live.plans import Plans
from shoal.contract.pages import Action, Column, Figure, Mood, Page, Span, Table, Timeline, Unit, Value

_SHOWN_S = 14 * 86_400.0
_MOST_SPANS = 500


def page_of(crons: Crons, plans: Plans, now: float, tenant: str | None) -> Page | None:
    """For a tenant's people, or for an admin (None). What is reserved for others has no name."""
    records, windows = crons.of(tenant), [one for one in plans.windows(now) if one.begin < now + _SHOWN_S]
    if not records and not windows:
        return None
    spans = []
    for window in windows[:_MOST_SPANS]:
        plan = window.plan
        own = tenant is None or plan.tenant in (None, tenant)
        what = "maintenance" if plan.tenant is None else "reserved"
        lane = ", ".join(plan.nodes) or "any node"
        spans.append(Span(lane=lane, name=plan.name if own else what, start=window.begin, end=window.end))
    rows: list[list[Value]] = [
        [one.name, one.tenant, one.expression, one.zone, crons.next_at(one), one.last_job, crons.trouble(one)]
        for one in records
    ]
    columns = [
        Column(name="cron"), Column(name="tenant"), Column(name="at"), Column(name="zone"),
        Column(name="next", unit=Unit.TIME), Column(name="last job"), Column(name="trouble"),
    ]  # fmt: skip
    troubled = sum(bool(crons.trouble(one)) for one in records)
    return Page(
        title="Calendar",
        figures=[
            Figure(name="cron jobs", value=len(records)),
            Figure(name="in trouble", value=troubled, mood=Mood.BAD if troubled else Mood.PLAIN),
            Figure(name="planned", value=len(windows)),
        ],
        parts=[
            Timeline(title="Planned", spans=spans),
            Table(title="Cron jobs", columns=columns, rows=rows),
        ],
        actions=[
            Action(
                name=f"Run {one.name} now",
                command=["shoal", "cron", "run-now", one.name, "--tenant", one.tenant],
                method="POST",
                path=f"/v1/crons/{one.name}/run?tenant={one.tenant}",
            )
            for one in records
        ],
    )
