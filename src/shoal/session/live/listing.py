"""Open sessions as people see them: in the API and on a page. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from shoal.contract.pages import Action, Column, Figure, Page, Table, Unit, Value
from shoal.session.live.book import Open
from shoal.session.live.commands import MAIN

if TYPE_CHECKING:
    from shoal.session.models import OpenSession

_SSHD = "sshd"
_MOST_ROWS = 500


def view_of(one: Open, name: str, now: float) -> OpenSession:
    """`name` is the job's."""
    from shoal.session.models import OpenSession

    state, passed = one.state, max(0.0, now - one.looked_at)
    return OpenSession(
        id=one.id, job_id=one.job, job=name, tenant=one.tenant, rank=one.rank, who=one.who, since=one.since,
        kind=_kind(one), program=one.program, clients=None if state is None else state.clients,
        idle_s=None if state is None else state.idle_s + passed,
        sent_bytes=None if state is None else state.written, received_bytes=None if state is None else state.typed,
    )  # fmt: skip


def _kind(one: Open) -> str:
    if one.id == MAIN:
        return "job"
    return "ssh" if one.program == _SSHD else "command"


def page_of(sessions: Iterable[Open], names: dict[str, str], tenant: str | None, now: float) -> Page | None:
    """For a tenant's people, or for an admin (None)."""
    found = sorted((one for one in sessions if tenant in (None, one.tenant)), key=lambda one: one.since)
    if not found:
        return None
    views = [view_of(one, names.get(one.job, one.job), now) for one in found]
    attached = sum(1 for one in views if one.clients)
    rows: list[list[Value]] = [
        [one.id, one.job, one.tenant, one.who, one.kind, one.since, one.idle_s, one.sent_bytes, one.received_bytes]
        for one in views[:_MOST_ROWS]
    ]
    columns = [
        Column(name="session"), Column(name="job"), Column(name="tenant"), Column(name="who"), Column(name="kind"),
        Column(name="since", unit=Unit.TIME), Column(name="idle", unit=Unit.SECONDS),
        Column(name="written", unit=Unit.BYTES), Column(name="typed", unit=Unit.BYTES),
    ]  # fmt: skip
    return Page(
        title="Sessions",
        figures=[Figure(name="open", value=len(views)), Figure(name="attached", value=attached)],
        parts=[Table(title="Open sessions", columns=columns, rows=rows)],
        actions=[
            Action(
                name=f"End session {one.id} of {one.job}",
                command=["shoal", "sessions", "--end", one.id],
                method="DELETE",
                path=f"/v1/jobs/{one.job_id}/sessions/{one.id}?rank={one.rank}",
                warning="What runs in it is asked to end, and killed ten seconds later.",
            )
            for one in views[:_MOST_ROWS]
            if one.id != MAIN
        ],
    )
