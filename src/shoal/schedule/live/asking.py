"""Answers of another policy on the present state: asked on the component's page and in the API."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from shoal.contract.pages import Column, Table, Unit, Value
from shoal.schedule.live.plan import what_if
from shoal.schedule.models import WhatIf, WhatIfJob
from shoal.schedule.presets import ScheduleSettings
from shoal.schedule.workloads import read_snapshot

MOST = 1000
"""Jobs that are shown: those that would change first."""


class LastQuestion(NamedTuple):
    """The last question, and when it was put (Unix time)."""

    at: float
    answer: WhatIf


def ask(lines: Sequence[str], settings: ScheduleSettings) -> WhatIf:
    """The next round that this policy would make of a snapshot's lines. Changes nothing; for thousands of jobs it takes
    seconds. Raises Invalid where the policy cannot decide about them."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
        file.write("".join(f"{line}\n" for line in lines))
        file.flush()
        found = read_snapshot(Path(file.name))
    if not found.jobs or not found.pools:
        return WhatIf(policy=settings.policy, changed=0, of=0)
    plan = what_if(found, settings)
    jobs = []
    for view in found.jobs:
        then = plan.target.get(view.id)
        size = plan.size.get(view.id, view.gang)
        reason = plan.reason(view.id)
        jobs.append(WhatIfJob(
            job=view.id, tenant=view.tenant, accelerators=size, now=view.placed, then=then,
            changes=view.placed != then or (then is not None and size != view.gang),
            share=min(1.0, float(plan.allocation.share[plan.row[view.id]].sum())),
            why="" if reason is None else reason.text,
        ))  # fmt: skip
    jobs.sort(key=lambda one: not one.changes)
    return WhatIf(
        policy=settings.policy, changed=sum(one.changes for one in jobs), of=len(jobs), jobs=jobs[:MOST]
    )  # fmt: skip


def table_of(asked: LastQuestion) -> Table:
    found = asked.answer
    columns = [Column(name="job"), Column(name="tenant"), Column(name="accelerators"), Column(name="now"),
               Column(name="then"), Column(name="share of time", unit=Unit.SHARE), Column(name="why")]  # fmt: skip
    rows: list[list[Value]] = [
        [one.job, one.tenant, one.accelerators, one.now or "waits", one.then or "waits", one.share, one.why]
        for one in found.jobs
    ]
    title = f"What if {found.policy} decided: {found.changed} of {found.of} jobs would change their place"
    return Table(title=title, columns=columns, rows=rows, empty="no job competes for accelerators")
