"""Streams on the terminal: logs, events, metrics."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from shoal.base.console.command import JobArgument, TenantOption, command
from shoal.base.console.panels import JOBS, START
from shoal.cli.context import CliContext
from shoal.contract import times

if TYPE_CHECKING:
    from shoal.sdk.models import MetricView

_PATIENCE_S = 30.0


def register(app: typer.Typer) -> None:
    command(app, "logs", rich_help_panel=START, short_help="A job's output")(logs)
    command(app, "events", rich_help_panel=JOBS, short_help="What happened, when, by whom and why")(events)
    command(app, "metrics", rich_help_panel=JOBS)(metrics)


def logs(
    context: CliContext,
    job: JobArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on to the job's end.")] = False,
    rank: Annotated[int, typer.Option(min=0, help="Which process of the gang.")] = 0,
    attempt: Annotated[int | None, typer.Option(min=1, help="Which attempt.", show_default="the current one")] = None,
    tail: Annotated[int | None, typer.Option(min=0, max=100_000, help="Only the last lines, at most 4 MiB.")] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="DURATION|TIME", help="Only lines since then: 10m, 2h, 2026-11-22T14:30."),
    ] = None,
    timestamps: Annotated[
        bool, typer.Option("--timestamps", help="Each line behind its time (UTC), exact to a second.")
    ] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Let a terminal obey control sequences in the log.")] = False,
    tenant: TenantOption = None,
) -> None:
    """A job's output, byte for byte; on a terminal, control sequences other than colours are shown and not obeyed.
    Following outlasts restarts of the server, and goes on through later attempts."""
    from shoal.cli.terminal import Harmless

    harmless = Harmless() if sys.stdout.isatty() and not raw else None
    out = sys.stdout.buffer
    begin = None if since is None else times.since(since)
    with context.client(patience_s=_PATIENCE_S if follow else 2.0) as client:
        for piece in client.logs(
            job, tenant=tenant, rank=rank, attempt=attempt, tail=tail, since=begin, timestamps=timestamps, follow=follow
        ):
            if context.json:
                context.line({"attempt": piece.attempt, "offset": piece.offset, "text": piece.text}, lambda: None)
            else:
                out.write(harmless.feed(piece.data) if harmless else piece.data)
                out.flush()
    if harmless and not context.json:
        out.write(harmless.feed(b"", last=True))
        out.flush()


def events(
    context: CliContext,
    job: Annotated[
        str | None,
        typer.Argument(metavar="JOB|SERVICE", help="Of this job, or service and its replicas.", show_default="all"),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more.")] = False,
    after: Annotated[int | None, typer.Option(min=0, help="Only after this sequence number.")] = None,
    tenant: TenantOption = None,
) -> None:
    """What happened, when, by whom and why. Following all events begins now; --after 0 begins at the first."""
    from shoal.base.console import output
    from shoal.base.console.subjects import meant

    with context.client(patience_s=_PATIENCE_S if follow else 2.0) as client:
        subject = meant(client, job, tenant) if job is not None else None
        if subject is not None:
            found = subject.events(after=after, follow=follow)
        else:
            found = client.events(job, tenant=tenant, after=after, follow=follow)
        for event in found:
            move = f"{event.old_state or 'new'} > {event.new_state}" if event.new_state else event.kind
            about = event.job_id or event.owner_id or event.tenant or ""
            text = f"{event.seq:>7}  {output.dated(event.at)}  {about:<16}  {move:<24}  {event.actor}: {event.cause}"
            context.line(event, lambda text=text: print(text.rstrip(": "), flush=True))  # type: ignore[misc]


def metrics(
    context: CliContext,
    job: JobArgument,
    name: Annotated[str | None, typer.Option(help="Only this one.")] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=100_000, help="The most entries to show, the newest.")
    ] = 1000,
    csv: Annotated[
        bool, typer.Option("--csv", help="A table for other programs: lines of values, with commas.")
    ] = False,
    tenant: TenantOption = None,
) -> None:
    """What a job reported, oldest first."""
    with context.client() as client:
        found = client.metrics(job, tenant=tenant, name=name, limit=limit)

    def human() -> None:
        from shoal.base.console import output

        if csv:
            _write_csv(found)
            return
        if not found:
            print("nothing was reported")
            return
        rows = [
            [output.moment(one.at), one.attempt, "-" if one.step is None else one.step, one.name,
             "not a number" if one.value is None else f"{one.value:.6g}"]
            for one in found
        ]  # fmt: skip
        output.put(output.table(["time", "try", "step", "name", "value"], rows))

    context.show({"metrics": found}, human)


def _write_csv(found: list[MetricView]) -> None:
    import csv

    lines = csv.writer(sys.stdout, lineterminator="\n")
    lines.writerow(["at", "attempt", "step", "name", "value"])
    lines.writerows([one.at, one.attempt, one.step, one.name, one.value] for one in found)
