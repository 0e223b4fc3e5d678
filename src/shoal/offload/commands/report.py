"""`shoal offload report`: where the calls of a job ran."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from shoal.base.console.command import CommandContext, TenantOption
from shoal.base.console.output import put, table
from shoal.core import NotFound
from shoal.offload.listing import Summary
from shoal.offload.profile import REASONS
from shoal.offload.summaries import from_metrics


def report(
    context: CommandContext,
    job: Annotated[str, typer.Argument(metavar="JOB", help="Its name or id.")],
    tenant: TenantOption = None,
) -> None:
    """Where the captured calls of a job ran, what that saved, and why others stayed with the plain library.

    A running job tells it every ten seconds, and each job when its program ends."""
    with context.client() as client:
        seen = client.job(job, tenant=tenant)
    found = from_metrics(seen.progress.get("metrics", {}))
    if found is None:
        raise NotFound(
            f"{seen.name} has told of no captured call",
            where=seen.id,
            hint="its manifest needs `extensions: {offload: {enabled: true}}`, and arrays that are large enough",
        )
    context.show({"job": seen.id, **asdict(found), "share": _shares(found)}, lambda: _show(found))


def _shares(found: Summary) -> dict[str, float]:
    """Of the time, by backend."""
    whole = sum(found.seconds.values()) or 1.0
    return {name: seconds / whole for name, seconds in found.seconds.items()}


def _show(found: Summary) -> None:
    shares = _shares(found)
    rows = [
        (name, found.calls[name], f"{found.seconds[name]:.2f} s", f"{shares[name]:.0%}") for name in sorted(found.calls)
    ]
    put(table(("backend", "calls", "time", "share"), rows))
    print(f"\nabout {abs(found.saved):.2f} s {'less' if found.saved >= 0 else 'more'} than with the plain library")
    if found.stayed:
        print("\ncalls that stayed with it:")
        for reason, count in sorted(found.stayed.items(), key=lambda each: -each[1]):
            print(f"{count:8}  {REASONS[reason]}")
