"""A comparison of simulated policies as one HTML page: a table, and the distributions of completion times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shoal.base.report import Report, Section, Table, distribution, html
from shoal.schedule.metrics import COMPARED, HOUR, Metrics
from shoal.schedule.types import Array


def page(title: str, found: Sequence[Metrics], times_s: Mapping[str, Array], *, facts: Mapping[str, str]) -> str:
    """`times_s` are the completion times by policy; `facts` are shown under the title (trace, cluster, seed...)."""
    rows = [[each.policy, *cells(each)] for each in found]
    table = Table("Policies compared", ["policy", *(name for _, name in COMPARED)], rows)
    figure = distribution(
        "Completion times", {name: times / HOUR for name, times in times_s.items()}, table,
        axis="time from arrival to end (logarithmic)", unit=" h", tail=False,
    )  # fmt: skip
    text = ["No job ran, and no accelerator was used."]
    return html(Report.of(title, [Section("Policies", text, [figure], simulated=True)], facts=facts))


def cells(found: Metrics) -> list[str]:
    """A row of a table: the numbers of `COMPARED`, with their units."""
    texts = []
    for field, _ in COMPARED:
        value = getattr(found, field)
        if field.endswith("_h"):
            texts.append(f"{value:.2f} h")
        elif field == "utilisation":
            texts.append(f"{value:.0%}")
        elif field == "cost_usd":
            texts.append(f"${value:,.2f}" if value else "-")
        elif field.endswith("_s"):
            texts.append(f"{value:.2f} s")
        else:
            texts.append(f"{value:,}" if isinstance(value, int) else f"{value:.2f}")
    return texts
